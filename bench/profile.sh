#!/bin/sh
# The CPU time of one request of the gateway by groups of symbols: the kernel, libraries and crates of Tollgate. It samples the
# server with perf while wrk loads it. Functions that were inlined count for the crate of their caller.
# usage: bench/profile.sh TOLLGATE [refused|admitted|off] [SECONDS]
set -eu
tollgate=$1 case=${2:-refused} seconds=${3:-5}
dir=$(mktemp -d)
server='' upstream=''
trap 'kill $server $upstream 2>/dev/null || true; rm -rf "$dir"' EXIT
ample='{endpoint: /api/**, by: ip, bucket: 1000000/second}, {endpoint: /api/v1/**, by: api_key, bucket: 1000000/second}'
case $case in
    refused) limits="[$ample, {endpoint: /api/v1/posts, by: global, bucket: 1/day}]" ;;
    admitted) limits="[$ample, {endpoint: /api/v1/posts, by: global, bucket: 1000000/second}]" ;;
    off) limits='[{endpoint: /never, by: ip, bucket: 1/minute}]' ;;
    *) echo "the case is refused, admitted or off, not \`$case\`" >&2; exit 2 ;;
esac
cat > "$dir/nginx.conf" <<EOF
daemon off; worker_processes 1; pid $dir/nginx.pid; error_log stderr error;
events { worker_connections 1024; }
http {
    access_log off; keepalive_requests 1000000000;
    client_body_temp_path $dir/body; proxy_temp_path $dir/proxy; fastcgi_temp_path $dir/fastcgi; uwsgi_temp_path $dir/uwsgi; scgi_temp_path $dir/scgi;
    server { listen 127.0.0.1:${PROFILE_PORT:-18931}; location / { return 200 "0123456789"; } }
}
EOF
PATH=$PATH:/usr/sbin
taskset -c 1 nginx -p "$dir" -e stderr -c "$dir/nginx.conf" & upstream=$!
taskset -c 0 "$tollgate" serve --set "limits=$limits" --set "gateway.upstream=http://127.0.0.1:${PROFILE_PORT:-18931}" \
    --set 'listen={gateway: "127.0.0.1:0", api: off, rls: off, resp: off}' --ready-file "$dir/ready" 2>"$dir/log" & server=$!
while ! [ -s "$dir/ready" ]; do sleep 0.05; done
gateway=$(sed 's/.*"gateway":"\([^"]*\)".*/\1/' "$dir/ready")
load() { taskset -c 1 wrk -t1 -c64 -d"$1s" -H 'X-Api-Key: bench-7f3a9c2e51' "http://$gateway/api/v1/posts"; }
load 1 > /dev/null
# Fields 14 and 15: user and system time in hundredths of a second.
ticks() { awk '{ print $14 + $15 }' "/proc/$server/stat"; }
before=$(ticks)
perf record -q -e cpu-clock -F 4999 -o "$dir/perf" -p "$server" 2>/dev/null & perf=$!
load "$seconds" > "$dir/wrk"
kill -INT $perf; wait $perf || true
micros=$(awk -v before="$before" -v after="$(ticks)" '/requests in/ { print (after - before) * 10000 / $1 }' "$dir/wrk")
perf report -i "$dir/perf" --no-children --sort dso,symbol 2>/dev/null | awk -v micros="$micros" '
    /^#/ || NF < 3 { next }
    {
        share = $1 + 0
        name = $0
        sub(/^ *[0-9.]+% +[^ ]+ +\[.\] /, "", name)
        if ($2 ~ /kernel|^\[k/) group = "kernel"
        else if ($2 ~ /vdso/ || name ~ /clock_gettime/) group = "clocks"
        else if (name ~ /^_*mem(move|cpy|set|cmp)/) group = "memory moves"
        else if (name ~ /^_*mi_|malloc|^_int_free|^free/) group = "allocator"
        else if (match(name, /tollgate(_[a-z]+)?/)) group = substr(name, RSTART, RLENGTH)
        else if (match(name, /^<*&*(mut )?[a-z0-9_]+::/)) { group = substr(name, RSTART, RLENGTH); gsub(/[<&:]|mut /, "", group) }
        else group = "other"
        sum[group] += share
    }
    END { for (group in sum) printf "%6.2f us %5.1f %%  %s\n", micros * sum[group] / 100, sum[group], group | "sort -rn"; close("sort -rn"); printf "%6.2f us          a request\n", micros }'
