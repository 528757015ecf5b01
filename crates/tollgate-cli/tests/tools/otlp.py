"""Reads a message of OTLP in JSON as the official definition has it, and says what is in it."""

import base64
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

with open(sys.argv[1], encoding="utf-8") as file:
    message = json.load(file)

# OTLP writes ids in hexadecimal digits, where JSON of protobuf has base64: the one difference.
for resource in message["resourceSpans"]:
    for scope in resource["scopeSpans"]:
        for span in scope["spans"]:
            for name in ("traceId", "spanId", "parentSpanId"):
                if name in span:
                    assert span[name] == span[name].lower(), span[name]
                    span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()

# Unknown fields and wrong types are errors here.
request = json_format.Parse(json.dumps(message), ExportTraceServiceRequest())
resource = request.resource_spans[0]
spans = [span for scope in resource.scope_spans for span in scope.spans]
for span in spans:
    assert len(span.trace_id) == 16 and len(span.span_id) == 8, span
    assert len(span.parent_span_id) in (0, 8), span
    assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano, span
attributes = {it.key: it.value.string_value for it in resource.resource.attributes}
print(json.dumps({"service": attributes["service.name"], "spans": len(spans), "trace": spans[0].trace_id.hex()}))
