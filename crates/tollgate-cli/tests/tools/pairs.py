"""Runs pairs of Envoy Gateway with a real Envoy and a real Tollgate, and judges each response by a model.

usage: pairs.py --tollgate FILE --envoy FILE FOLDER

FOLDER has NAME.yaml, the configuration of the rate limit service, and NAME.routes.yaml, the rate limits of
Envoy's routes, both as in the tests of Envoy Gateway. Tollgate gets the first over xDS from ads.py, as
`tollgate ratelimit`. The model finds the limits of a request in the same files and counts by itself. Limits
are per day, so that a busy machine does not affect the result.
"""

import argparse
import collections
import http.client
import ipaddress
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

DAY = 4
PATIENCE = 120
RATELIMIT = "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3."


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def wait_for(what, ready):
    end = time.monotonic() + PATIENCE
    while not ready():
        if time.monotonic() > end:
            sys.exit(f"no {what} within {PATIENCE} s")
        time.sleep(0.05)


def listens(port):
    with socket.socket() as it:
        return it.connect_ex(("127.0.0.1", port)) == 0


# ---- the rate limits of routes: for Envoy, and for the model


def action(spec):
    """Returns an action as Envoy reads it."""
    (kind, value), = spec["ActionSpecifier"].items()
    name = re.sub("(?<!^)(?=[A-Z])", "_", kind).lower()
    value = dict(value)
    if "expect_match" in value:
        value["expect_match"] = (value["expect_match"] or {}).get("value", False)
    if "headers" in value:
        value["headers"] = [header(it) for it in value["headers"]]
    if kind == "RemoteAddressMatch":
        ranges = value["address_matcher"]["ranges"]
        value["address_matcher"] = dict(value["address_matcher"])
        value["address_matcher"]["ranges"] = [
            {"address_prefix": it["address_prefix"], "prefix_len": (it.get("prefix_len") or {}).get("value", 0)}
            for it in ranges
        ]
    return {name: value}


def header(spec):
    (kind, pattern), = spec["HeaderMatchSpecifier"]["StringMatch"]["MatchPattern"].items()
    match = {"exact": pattern} if kind == "Exact" else {"safe_regex": {"regex": pattern["regex"]}}
    found = {"name": spec["name"], "string_match": match}
    if spec.get("invert_match"):
        found["invert_match"] = True
    return found


def matches(spec, headers):
    value, match = headers.get(spec["name"]), spec["string_match"]
    if value is None:
        return False
    if "exact" in match:
        found = value == match["exact"]
    else:
        found = re.fullmatch(match["safe_regex"]["regex"], value) is not None
    return found != spec.get("invert_match", False)


def entry(kind, value, headers):
    """Returns the entry of a descriptor that an action makes of a request; None if it makes none."""
    if kind == "generic_key":
        return (value.get("descriptor_key", "generic_key"), value["descriptor_value"])
    if kind == "header_value_match":
        found = all(matches(it, headers) for it in value["headers"])
        return (value["descriptor_key"], value["descriptor_value"]) if found == value.get("expect_match", True) else None
    if kind == "request_headers":
        found = headers.get(value["header_name"])
        return None if found is None else (value["descriptor_key"], found)
    if kind == "remote_address_match":
        matcher = value["address_matcher"]
        networks = [ipaddress.ip_network(f"{it['address_prefix']}/{it['prefix_len']}") for it in matcher["ranges"]]
        address = ipaddress.ip_address(headers["x-forwarded-for"])
        found = any(address in it for it in networks) != matcher.get("invert_match", False)
        return (value["descriptor_key"], value["descriptor_value"]) if found else None
    sys.exit(f"unknown action {kind}")


class Model:
    """Counts requests like envoyproxy/ratelimit, with the limits of the configuration."""

    def __init__(self, configs, routes):
        self.configs = {it["domain"]: it.get("descriptors") or [] for it in configs}
        self.routes = routes
        self.counts = collections.Counter()

    def limit(self, domain, entries):
        level, found = self.configs.get(domain, []), None
        for key, value in entries:
            same = [it for it in level if it["key"] == key]
            found = next((it for it in same if it.get("value") == value), None)
            found = found or next((it for it in same if not it.get("value")), None)
            if found is None:
                return None
            level = found.get("descriptors") or []
        return found if found and found.get("rate_limit") else None

    def status(self, route, headers):
        refused = False
        for domain, limits in self.routes[route].items():
            over = False
            for limit in limits:
                entries = [entry(*next(iter(it.items())), headers) for it in limit]
                if None in entries:
                    continue
                found = self.limit(domain, entries)
                if found is None or found["rate_limit"].get("unlimited"):
                    continue
                self.counts[domain, tuple(entries)] += 1
                is_over = self.counts[domain, tuple(entries)] > found["rate_limit"]["requests_per_unit"]
                over |= is_over and not found.get("shadow_mode")
            refused |= over
            if over:
                # The filter of the next domain is not reached.
                break
        return 429 if refused else 200

    def largest(self):
        """The largest limit that can be reached with a few requests."""
        numbers = [0]

        def visit(level):
            for it in level:
                if it.get("rate_limit"):
                    numbers.append(it["rate_limit"].get("requests_per_unit", 0))
                visit(it.get("descriptors") or [])

        for level in self.configs.values():
            visit(level)
        return max(it for it in numbers if it <= 100)


def probes(routes, count):
    """Returns requests for each route: matching each rate limit, and none. A header may have several values."""
    found = []
    for route, domains in routes.items():
        candidates = [{}]
        for limits in domains.values():
            for limit in limits:
                wanted = {}
                for it in limit:
                    (kind, value), = it.items()
                    if kind == "header_value_match":
                        for spec in value["headers"]:
                            match = spec["string_match"]
                            wanted[spec["name"]] = match.get("exact") or match["safe_regex"]["regex"]
                    elif kind == "request_headers":
                        wanted[value["header_name"]] = "ann"
                        candidates.append({**wanted, value["header_name"]: "bob"})
                    elif kind == "remote_address_match":
                        first = value["address_matcher"]["ranges"][0]["address_prefix"]
                        wanted["x-forwarded-for"] = str(ipaddress.ip_address(first) + 258)
                candidates.append(wanted)
        for headers in candidates:
            headers.setdefault("x-forwarded-for", "10.9.8.7")
            headers.setdefault(":method", "GET")
            headers.setdefault(":path", f"/{route}")
            found.extend([(route, headers)] * (count + 2))
    return found


# ---- the programs


def envoy_config(routes, domains, rls, listener, app, admin):
    socket_of = lambda port: {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    filters = [
        {
            "name": f"envoy.filters.http.ratelimit/{domain}",
            "typed_config": {
                "@type": RATELIMIT + "RateLimit", "domain": domain, "timeout": "60s", "failure_mode_deny": True,
                "disable_x_envoy_ratelimited_header": True, "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
                "rate_limit_service": {
                    "transport_api_version": "V3",
                    "grpc_service": {"envoy_grpc": {"cluster_name": "ratelimit_cluster"}},
                },
            },
        }
        for domain in domains
    ]
    router = {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
    filters.append({"name": "envoy.filters.http.router", "typed_config": router})
    per_route = lambda limits: {
        f"envoy.filters.http.ratelimit/{domain}": {
            "@type": RATELIMIT + "RateLimitPerRoute", "rate_limits": [{"actions": it} for it in found],
        }
        for domain, found in limits.items()
    }
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "pairs", "use_remote_address": True, "xff_num_trusted_hops": 1, "http_filters": filters,
        "route_config": {"virtual_hosts": [{
            "name": "all", "domains": ["*"],
            "routes": [
                {
                    "match": {"prefix": "/", "headers": [{"name": "x-route", "string_match": {"exact": name}}]},
                    "route": {"cluster": "app"}, "typed_per_filter_config": per_route(limits),
                }
                for name, limits in routes.items()
            ],
        }]},
    }
    # A direct response is not limited, so a second listener answers.
    hello = {
        "@type": manager["@type"], "stat_prefix": "app", "http_filters": [filters[-1]],
        "route_config": {"virtual_hosts": [{
            "name": "all", "domains": ["*"],
            "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 200}}],
        }]},
    }
    listening = lambda name, port, config: {
        "name": name, "address": socket_of(port),
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager", "typed_config": config,
        }]}],
    }
    http2 = {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
    }
    cluster = lambda name, port, options: {
        "name": name, "type": "STATIC", "connect_timeout": "30s", "typed_extension_protocol_options": options,
        "load_assignment": {
            "cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket_of(port)}}]}],
        },
    }
    return {
        "admin": {"address": socket_of(admin)},
        "static_resources": {
            "listeners": [listening("pairs", listener, manager), listening("app", app, hello)],
            "clusters": [cluster("ratelimit_cluster", rls, http2), cluster("app", app, {})],
        },
    }


def run(name, folder, given, scratch):
    configs = [it for it in yaml.safe_load_all((folder / f"{name}.yaml").read_text()) if it]
    routes = {}
    for it in yaml.safe_load_all((folder / f"{name}.routes.yaml").read_text()):
        limits = it["rateLimitsByDomain"]
        routes[it["routeName"]] = {
            domain: [[action(a) for a in limit["actions"]] for limit in found] for domain, found in limits.items()
        }
    domains = sorted({domain for limits in routes.values() for domain in limits})
    # Filters have the order of the domains.
    routes = {name: {domain: limits[domain] for domain in domains if domain in limits} for name, limits in routes.items()}
    programs = []
    start = lambda *arguments, **options: programs.append(subprocess.Popen(arguments, **options)) or programs[-1]
    try:
        ads = start(
            sys.executable, str(Path(__file__).with_name("ads.py")),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        server = json.loads(ads.stdout.readline())["port"]
        grpc, health, debug, listener, app, admin = (free_port() for _ in range(6))
        environment = {
            **os.environ, "CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": f"127.0.0.1:{server}",
            "CONFIG_GRPC_XDS_NODE_ID": "envoy-ratelimit", "FORCE_START_WITHOUT_INITIAL_CONFIG": "true",
            "HOST": "127.0.0.1", "PORT": str(health), "GRPC_HOST": "127.0.0.1", "GRPC_PORT": str(grpc),
            "DEBUG_HOST": "127.0.0.1", "DEBUG_PORT": str(debug), "TOLLGATE_LISTEN_API": "127.0.0.1:0",
        }
        log = open(scratch / "tollgate.log", "w", encoding="utf-8")
        start(given.tollgate, "ratelimit", env=environment, stderr=log)
        wait_for("Tollgate", lambda: listens(grpc))
        json.loads(ads.stdout.readline())
        push = {"push": [str(folder / f"{name}.yaml")], "version": "1", "unit": DAY}
        ads.stdin.write(json.dumps(push) + "\n")
        ads.stdin.flush()
        answer = json.loads(ads.stdout.readline())
        if answer["error"] is not None or answer["version"] != "1":
            sys.exit(f"{name}: not accepted: {answer}")
        path = scratch / "envoy.json"
        path.write_text(json.dumps(envoy_config(routes, domains, grpc, listener, app, admin)))
        start(
            given.envoy, "--config-path", str(path), "--concurrency", "1", "--disable-hot-restart", "--log-level", "error",
        )
        wait_for("Envoy", lambda: listens(listener) and listens(app))
        model = Model(configs, routes)
        seen = collections.Counter()
        connection = http.client.HTTPConnection("127.0.0.1", listener, timeout=PATIENCE)
        for route, headers in probes(routes, model.largest()):
            expected = model.status(route, headers)
            sent = {name: value for name, value in headers.items() if not name.startswith(":")}
            path = headers[":path"] if headers[":path"].startswith("/") else "/" + headers[":path"]
            connection.request(headers[":method"], path, headers={**sent, "x-route": route})
            response = connection.getresponse()
            response.read()
            if ":path" in headers and not headers[":path"].startswith("/"):
                # A path that no client can send: the request has another one, which matches nothing.
                expected = 200
            if response.status != expected:
                sys.exit(f"{name}: {route} with {headers}: {response.status} instead of {expected}")
            seen[response.status] += 1
        print(f"{name}: {seen[200]} admitted, {seen[429]} refused, as the model says", flush=True)
    finally:
        for program in reversed(programs):
            program.terminate()
        for program in programs:
            program.wait()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--tollgate", required=True)
    arguments.add_argument("--envoy", required=True)
    arguments.add_argument("folder", type=Path)
    given = arguments.parse_args()
    names = sorted(it.name.removesuffix(".routes.yaml") for it in given.folder.glob("*.routes.yaml"))
    if not names:
        sys.exit(f"no pairs in {given.folder}")
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            run(name, given.folder, given, Path(scratch))


main()
