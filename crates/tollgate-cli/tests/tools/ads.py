"""A configuration server (xDS, state of the world) for RateLimitConfig resources, on grpcio.

usage: ads.py [--cert FILE --key FILE [--client-ca FILE]]

The first line on standard output is the port. Then each request of a client is one line of JSON. Each line
on standard input is a command in JSON:
  {"push": ["a.yaml", ...], "version": "1"}      the whole configuration, from files with name, domain, descriptors
  {"push": [...], "version": "1", "unit": 4}     with another unit in all limits (4: a day)
  {"push": [], "version": "1", "type": "..."}    with another type URL
  {"close": true}                                ends all streams
"""

import argparse
import json
import queue
import sys
import threading
from concurrent import futures

import grpc
import yaml
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, struct_pb2
from google.protobuf.json_format import MessageToDict, ParseDict

TYPE_URL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
METHOD = "StreamAggregatedResources"
SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"

FIELD = descriptor_pb2.FieldDescriptorProto
TEXT, BOOL, UINT32, INT32, MESSAGE, ENUM = (
    FIELD.TYPE_STRING, FIELD.TYPE_BOOL, FIELD.TYPE_UINT32, FIELD.TYPE_INT32, FIELD.TYPE_MESSAGE, FIELD.TYPE_ENUM,
)


def message(file, name, fields):
    """Adds a message to a file: fields are (name, number, type, type name, repeated)."""
    found = file.message_type.add(name=name)
    for field, number, kind, type_name, repeated in fields:
        label = FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL
        found.field.add(name=field, number=number, type=kind, type_name=type_name, label=label)


def classes():
    """Returns the classes of the messages."""
    pool = descriptor_pool.Default()
    file = descriptor_pb2.FileDescriptorProto(name="ads.proto", package="ads", syntax="proto3")
    file.dependency.extend(["google/protobuf/any.proto", "google/protobuf/struct.proto"])
    struct, any_type = ".google.protobuf.Struct", ".google.protobuf.Any"
    units = file.enum_type.add(name="Unit")
    for number, unit in enumerate(["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"]):
        units.value.add(name=unit, number=number)
    message(file, "Replace", [("name", 1, TEXT, None, False)])
    message(file, "Policy", [
        ("unit", 1, ENUM, ".ads.Unit", False), ("requests_per_unit", 2, UINT32, None, False),
        ("unlimited", 3, BOOL, None, False), ("name", 4, TEXT, None, False),
        ("replaces", 5, MESSAGE, ".ads.Replace", True),
    ])
    message(file, "Descriptor", [
        ("key", 1, TEXT, None, False), ("value", 2, TEXT, None, False),
        ("rate_limit", 3, MESSAGE, ".ads.Policy", False), ("descriptors", 4, MESSAGE, ".ads.Descriptor", True),
        ("shadow_mode", 5, BOOL, None, False), ("detailed_metric", 6, BOOL, None, False),
        ("quota_mode", 7, BOOL, None, False), ("metadata", 8, MESSAGE, struct, False),
    ])
    message(file, "RateLimitConfig", [
        ("name", 1, TEXT, None, False), ("domain", 2, TEXT, None, False),
        ("descriptors", 3, MESSAGE, ".ads.Descriptor", True),
    ])
    message(file, "Node", [
        ("id", 1, TEXT, None, False), ("cluster", 2, TEXT, None, False), ("metadata", 3, MESSAGE, struct, False),
    ])
    message(file, "Status", [("code", 1, INT32, None, False), ("message", 2, TEXT, None, False)])
    message(file, "DiscoveryRequest", [
        ("version_info", 1, TEXT, None, False), ("node", 2, MESSAGE, ".ads.Node", False),
        ("resource_names", 3, TEXT, None, True), ("type_url", 4, TEXT, None, False),
        ("response_nonce", 5, TEXT, None, False), ("error_detail", 6, MESSAGE, ".ads.Status", False),
    ])
    message(file, "DiscoveryResponse", [
        ("version_info", 1, TEXT, None, False), ("resources", 2, MESSAGE, any_type, True),
        ("type_url", 4, TEXT, None, False), ("nonce", 5, TEXT, None, False),
    ])
    pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    get = lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName("ads." + name))
    return get("RateLimitConfig"), get("DiscoveryRequest"), get("DiscoveryResponse")


assert struct_pb2
CONFIG, REQUEST, RESPONSE = classes()
PRINTING = threading.Lock()


def report(line):
    with PRINTING:
        print(json.dumps(line), flush=True)


def resources(path, unit):
    """Reads a file as packed resources. Words that protobuf does not have are left out."""
    with open(path, encoding="utf-8") as file:
        for found in yaml.safe_load_all(file):
            config = ParseDict(pruned(found), CONFIG(), ignore_unknown_fields=True)
            if unit is not None:
                for descriptor in config.descriptors:
                    set_unit(descriptor, unit)
            yield any_pb2.Any(type_url=TYPE_URL, value=config.SerializeToString())


def set_unit(descriptor, unit):
    """Replaces the units of a tree, so that a test does not depend on the time of day."""
    if descriptor.HasField("rate_limit") and not descriptor.rate_limit.unlimited:
        descriptor.rate_limit.unit = unit
    for below in descriptor.descriptors:
        set_unit(below, unit)


def pruned(value):
    """Leaves out empty values, which protobuf leaves out too."""
    if isinstance(value, dict):
        return {name: pruned(it) for name, it in value.items() if it is not None}
    if isinstance(value, list):
        return [pruned(it) for it in value]
    return value


class Server:
    """The configuration, and the streams that receive it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.snapshot = None
        self.streams = {}
        self.count = 0
        self.nonce = 0

    def command(self, command):
        with self.lock:
            if command.get("close"):
                for stream in self.streams.values():
                    stream.put(None)
                return
            self.snapshot = command
            for stream in self.streams.values():
                stream.put(self.response())

    def response(self):
        self.nonce += 1
        command = self.snapshot
        found = [it for path in command["push"] for it in resources(path, command.get("unit"))]
        type_url = command.get("type", TYPE_URL)
        return RESPONSE(version_info=command["version"], resources=found, type_url=type_url, nonce=str(self.nonce))

    def stream(self, requests, _context):
        out = queue.Queue()
        with self.lock:
            self.count += 1
            number = self.count

        def receive():
            is_first = True
            try:
                for request in requests:
                    report({
                        "stream": number, "version": request.version_info, "nonce": request.response_nonce,
                        "node": request.node.id, "metadata": MessageToDict(request.node.metadata),
                        "names": list(request.resource_names), "type": request.type_url,
                        "error": request.error_detail.message if request.HasField("error_detail") else None,
                    })
                    if is_first:
                        is_first = False
                        with self.lock:
                            self.streams[number] = out
                            if self.snapshot is not None:
                                out.put(self.response())
            except grpc.RpcError:
                pass
            out.put(None)

        threading.Thread(target=receive, daemon=True).start()
        while (response := out.get()) is not None:
            yield response
        with self.lock:
            self.streams.pop(number, None)


def main():
    arguments = argparse.ArgumentParser()
    for name in ["--cert", "--key", "--client-ca"]:
        arguments.add_argument(name)
    arguments.add_argument("--port", type=int, default=0)
    given = arguments.parse_args()
    read = lambda path: open(path, "rb").read()
    server = Server()
    handler = grpc.stream_stream_rpc_method_handler(
        server.stream, request_deserializer=REQUEST.FromString, response_serializer=RESPONSE.SerializeToString,
    )
    options = [("grpc.max_send_message_length", -1)]
    grpc_server = grpc.server(futures.ThreadPoolExecutor(max_workers=20), options=options)
    grpc_server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    address = f"127.0.0.1:{given.port}"
    if given.cert:
        authority = read(given.client_ca) if given.client_ca else None
        pairs = [(read(given.key), read(given.cert))]
        credentials = grpc.ssl_server_credentials(pairs, authority, require_client_auth=authority is not None)
        port = grpc_server.add_secure_port(address, credentials)
    else:
        port = grpc_server.add_insecure_port(address)
    grpc_server.start()
    report({"port": port})
    for line in sys.stdin:
        server.command(json.loads(line))
    grpc_server.stop(None)


main()
