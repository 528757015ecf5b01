#!/bin/sh
# Refusals per second of the API without and with the decision log, alternating, and what was lost.
# usage: bench/records.sh TOLLGATE [SECONDS] [ROUNDS]
set -eu
tollgate=$1 seconds=${2:-8} rounds=${3:-3}
dir=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -rf "$dir"' EXIT
cat > "$dir/post.lua" <<'LUA'
wrk.method = "POST"
wrk.body = '{"method":"GET","path":"/api/v1/search","ip":"203.0.113.9"}'
wrk.headers["content-type"] = "application/json"
LUA
run() {
    rm -f "$dir/ready"
    "$tollgate" serve --set 'limits=[{name: api, by: ip, bucket: 1/hour}]' --set log.refusals=off --ready-file "$dir/ready" \
        --set 'listen={gateway: off, api: "127.0.0.1:0", rls: off, resp: off}' "$@" 2>"$dir/log" &
    server=$!
    while ! [ -s "$dir/ready" ]; do sleep 0.05; done
    api=$(sed 's/.*"api":"\([^"]*\)".*/\1/' "$dir/ready")
    wrk -t1 -c64 -d"${seconds}s" -s "$dir/post.lua" "http://$api/v1/check" | awk '/Requests.sec/ { printf "%s ", $2 }'
    curl -s "http://$api/metrics" | awk '/^tollgate_records_(written|dropped)_total|^tollgate_records_bytes/ { printf "%s=%s ", $1, $2 }'
    echo
    kill "$server"; wait "$server" || true
}
for round in $(seq "$rounds"); do
    printf 'without  '; run
    rm -rf "$dir/records"
    printf 'with     '; run --set "records={dir: $dir/records, max: 2GiB}"
done
