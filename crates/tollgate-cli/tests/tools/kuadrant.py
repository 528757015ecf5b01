"""Calls Kuadrant's rate limit service as its data plane does, with grpcio and the messages that reflection describes.

usage: kuadrant.py ADDRESS DOMAIN KEY VALUE COUNTER LIMIT

A descriptor has the entry KEY=VALUE, and the entry COUNTER with the user. LIMIT is the limit of a user. It is not
reached again by waiting during the run. Fails with the reason if an answer is not what Limitador documents.
"""

import sys
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "kuadrant.service.ratelimit.v1.RateLimitService"
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
OK, OVER_LIMIT = 1, 2


def text_field(number, text):
    return bytes([number << 3 | 2, len(text)]) + text.encode()


def fields(message):
    """Yields the fields of a message that have bytes."""
    at = 0

    def varint():
        nonlocal at
        number = shift = 0
        while True:
            byte = message[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            varint()
        else:
            length = varint()
            yield key >> 3, message[at:at + length]
            at += length


def described(channel):
    """Returns the pool of the messages that the server describes."""
    ask = channel.stream_stream(REFLECTION)
    listed, files = ask(iter([text_field(7, "*"), text_field(4, SERVICE)]))
    services = [it for number, found in fields(listed) if number == 6 for _, it in fields(found)]
    names = [name.decode() for service in services for _, name in fields(service)]
    assert SERVICE in names, names
    pool, left = descriptor_pool.DescriptorPool(), {}
    for number, found in fields(files):
        for _, file in fields(found) if number == 4 else ():
            file = descriptor_pb2.FileDescriptorProto.FromString(file)
            left[file.name] = file

    def add(file):
        for name in file.dependency:
            if name in left:
                add(left.pop(name))
        pool.Add(file)

    while left:
        add(left.popitem()[1])
    return pool


class Client:
    def __init__(self, address, domain, entry, counter):
        self.channel = grpc.insecure_channel(address)
        pool = described(self.channel)
        service = pool.FindServiceByName(SERVICE)
        self.methods = {it.name: it for it in service.methods}
        assert sorted(self.methods) == ["CheckRateLimit", "Commit", "Report", "Reserve"], self.methods
        self.domain, self.entry, self.counter = domain, entry, counter

    def call(self, name, user, **more):
        method = self.methods[name]
        request = message_factory.GetMessageClass(method.input_type)(domain=self.domain, **more)
        entries = request.descriptors.add().entries
        for key, value in (self.entry, (self.counter, user)):
            entries.add(key=key, value=value)
        response = message_factory.GetMessageClass(method.output_type)
        call = self.channel.unary_unary(
            f"/{SERVICE}/{name}", lambda it: it.SerializeToString(), response.FromString)
        return call(request, timeout=60)


def expect(found, wanted, what):
    if found != wanted:
        sys.exit(f"{what}: {found}, and not {wanted}")


def main():
    address, domain, key, value, counter, limit = sys.argv[1:]
    client, limit = Client(address, domain, (key, value), counter), int(limit)

    # Checks charge nothing, and reports are never refused.
    for _ in range(3):
        expect(client.call("CheckRateLimit", "ann", hits_addend=limit + 1).overall_code, OK, "a check")
    expect(client.call("Report", "ann", hits_addend=limit - 1).overall_code, OK, "a report")
    checked = client.call("CheckRateLimit", "ann")
    expect((checked.overall_code, checked.statuses[0].limit_remaining), (OK, 1), "a check of the last unit")
    expect(list(checked.response_headers_to_add), [], "headers")
    expect(client.call("Report", "ann", hits_addend=2 * limit).overall_code, OK, "a report beyond the limit")
    expect(client.call("CheckRateLimit", "ann").overall_code, OVER_LIMIT, "a check without units")

    # Requests that are under way at the same time do not pass the limit together.
    with futures.ThreadPoolExecutor(20) as pool:
        reserve = lambda _: client.call("Reserve", "bob", amount=limit // 10)
        answers = list(pool.map(reserve, range(50)))
    ids = [it.reservation_id for it in answers if it.code == OK]
    expect(len(ids), 10, "reservations of a tenth of the limit each")
    expect({it.reservation_id for it in answers if it.code != OK}, {""}, "ids of refused reservations")
    expect(len(set(ids)), 10, "different ids")
    expect(client.call("CheckRateLimit", "bob").overall_code, OVER_LIMIT, "a check of reserved units")
    for at, id in enumerate(ids):
        committed = client.call("Commit", "bob", reservation_id=id, actual_amount=at)
        expect(committed.reservation_released, True, "a commit")
    expect(client.call("Commit", "bob", reservation_id=ids[0]).reservation_released, False, "a second commit")
    left = client.call("CheckRateLimit", "bob").statuses[0].limit_remaining
    expect(left, limit - sum(range(10)), "units after the commits")

    # A reservation without a commit ends.
    client.call("Reserve", "eve", amount=limit).reservation_id
    expect(client.call("CheckRateLimit", "eve").overall_code, OVER_LIMIT, "a check of reserved units")
    short = client.call("Reserve", "dan", amount=limit, ttl={"seconds": 1}).reservation_id
    while client.call("CheckRateLimit", "dan").overall_code == OVER_LIMIT:
        pass
    expect(client.call("Commit", "dan", reservation_id=short, actual_amount=1).reservation_released, False,
           "a commit after the end")
    left = client.call("CheckRateLimit", "dan").statuses[0].limit_remaining
    expect(left, limit - 1, "units after a late commit")
    print("ok")


main()
