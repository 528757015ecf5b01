"""Checks values of the chart against its schema: values.py CHART VALUES... Wrong values must be rejected."""
import copy
import json
import pathlib
import sys

import jsonschema
import yaml

chart = pathlib.Path(sys.argv[1])
schema = json.loads((chart / "values.schema.json").read_text())
default = yaml.safe_load((chart / "values.yaml").read_text())


def merged(into, values):
    into = copy.deepcopy(into)
    for key, value in values.items():
        both = isinstance(value, dict) and isinstance(into.get(key), dict)
        into[key] = merged(into[key], value) if both else value
    return into


for file in [None, *sys.argv[2:]]:
    jsonschema.validate(merged(default, yaml.safe_load(open(file)) if file else {}), schema)
WRONG = [
    {"replicas": "two"},
    {"replica": 2},
    {"policy": {"limits": []}},
    {"store": {"kind": "redis"}},
    {"store": {"kind": "peers"}},
    {"store": {"kind": "mysql"}},
    {"env": {"LOG": "x"}},
    {"autoscaling": {"cpu": 700}},
    {"serviceMonitor": {"interval": 15}},
    {"service": {"gatewayPort": 0}},
]
for values in WRONG:
    try:
        jsonschema.validate(merged(default, values), schema)
    except jsonschema.ValidationError:
        continue
    sys.exit(f"values.schema.json accepts {values}")
