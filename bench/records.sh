#!/bin/sh
# Refusals per second of the gateway without and with the decision log, alternating, the CPU time of the server for each, and
# what was lost. On a busy machine the CPU time is the steadier number.
# usage: bench/records.sh TOLLGATE [SECONDS] [ROUNDS]
set -eu
tollgate=$1 seconds=${2:-8} rounds=${3:-3}
dir=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -rf "$dir"' EXIT
run() {
    rm -f "$dir/ready"
    "$tollgate" serve --set 'limits=[{name: api, by: ip, bucket: 1/hour}]' --set log.refusals=off --ready-file "$dir/ready" \
        --set 'listen={gateway: "127.0.0.1:0", api: "127.0.0.1:0", rls: off, resp: off}' "$@" 2>"$dir/log" &
    server=$!
    while ! [ -s "$dir/ready" ]; do sleep 0.05; done
    gateway=$(sed 's/.*"gateway":"\([^"]*\)".*/\1/' "$dir/ready")
    api=$(sed 's/.*"api":"\([^"]*\)".*/\1/' "$dir/ready")
    wrk -t1 -c64 -d"${seconds}s" "http://$gateway/api" > "$dir/wrk"
    requests=$(awk '/requests in/ { print $1 }' "$dir/wrk")
    awk '/Requests.sec/ { printf "%8.0f refusals/s, ", $2 }' "$dir/wrk"
    # Fields 14 and 15: user and system time in hundredths of a second.
    awk -v n="$requests" '{ printf "%.2f us of CPU each ", ($14 + $15) * 10000 / n }' "/proc/$server/stat"
    curl -s "http://$api/metrics" | awk '/^tollgate_records_(written|dropped)_total|^tollgate_records_bytes/ { printf "%s=%s ", $1, $2 }'
    echo
    kill "$server"; wait "$server" || true
}
for round in $(seq "$rounds"); do
    printf 'without  '; run
    rm -rf "$dir/records"
    printf 'with     '; run --set "records={dir: $dir/records, max: 2GiB}"
done
