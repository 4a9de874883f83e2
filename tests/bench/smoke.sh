#!/bin/bash
# nbdload against nbdkit: it accepts right contents, detects wrong ones, and reports errors.
# usage: smoke.sh NBDLOAD SOCKET_CEILING GPUNBD
set -u

nbdload=$1
ceiling=$2
gpunbd=$3
command -v nbdkit >/dev/null || {
    echo "SKIP: nbdkit is not installed"
    exit 77
}
export nbdload
failures=0
fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

# served EXPECTED-STATUS NAME NBDLOAD-ARGUMENTS NBDKIT-ARGUMENTS...
served() {
    local expected=$1 name=$2 arguments=$3 output status
    shift 3
    output=$(timeout 120 nbdkit -U - "$@" --run "\"\$nbdload\" --uri \"\$uri\" $arguments" 2>&1)
    status=$?
    [ "$status" = "$expected" ] || fail "$name: exit $status, not $expected: $output"
}

short="--seconds 0.1 --warmup 0.05 --timeout 20"
served 0 "verify, simple replies" "--verify --span 10M --qd 16" memory 16M
served 0 "verify, structured replies" "--verify --structured --connections 2" memory 16M
served 0 "verify, out of order" "--verify --size 4k --connections 2 --span 4M" \
    --filter=delay memory 8M rdelay=1ms
served 0 "prefill and read" "--op read --prefill --qd 8 $short" memory 16M
served 0 "odd end of the span" "--prefill --size 4k --span 3000001 $short" memory 16M
served 0 "structured read" "--op read --structured --size 1M --qd 4 $short" memory 16M
served 0 "sequential write" "--op write --pattern sequential --connections 3 $short" memory 16M
served 0 "both ways, shared thread" "--op rw --connections 4 --threads 1 $short" memory 16M
served 1 "lost writes are found" "--verify --size 4k --span 1M" null 1M
served 1 "error replies" "--op read $short" --filter=error memory 16M error-rate=1
served 1 "error chunks" "--op read --structured $short" --filter=error memory 16M error-rate=1
served 1 "errors while verifying" "--verify" --filter=error memory 16M error-pwrite-rate=10%
served 2 "read-only" "--op write $short" -r memory 16M
served 2 "span past the end" "--span 32M $short" memory 16M

folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
"$gpunbd" tls-setup "$folder/tls" --host localhost --client bench >/dev/null || fail "no certificates"
tls="--tls-certificates $folder/tls/clients/bench"
tls_server=(--tls=require --tls-verify-peer "--tls-certificates=$folder/tls")
served 0 "TLS" "--op rw --connections 4 --prefill --size 64k $tls $short" "${tls_server[@]}" memory 16M
served 0 "TLS, small" "--op write --qd 100 --structured $tls $short" "${tls_server[@]}" memory 16M
mkdir "$folder/stranger" && cp "$folder/tls/ca-cert.pem" "$folder/stranger"
served 2 "TLS without a certificate" "--tls-certificates $folder/stranger $short" "${tls_server[@]}" memory 16M

"$nbdload" --uri "nbd+unix:///?socket=/nonexistent/socket" >/dev/null 2>&1
[ $? = 2 ] || fail "no server: wrong exit status"
for transport in unix tcp; do
    "$ceiling" --transport $transport --op rw --connections 2 --seconds 0.1 --warmup 0.05 \
        >/dev/null || fail "socket_ceiling over $transport"
done

# A port may be taken: another is tried.
for _ in 1 2 3 4 5; do
    port=$((20000 + RANDOM % 12000))
    output=$(timeout 120 nbdkit -i 127.0.0.1 -p $port memory 16M \
        --run "\"\$nbdload\" --uri nbd://127.0.0.1:$port/ --verify --structured --connections 3" \
        2>&1)
    tcp=$?
    case $output in *"in use"*) continue ;; esac
    break
done
[ "$tcp" = 0 ] || fail "verify over TCP: exit $tcp: $output"

[ "$failures" = 0 ] && echo "nbdload and socket_ceiling work"
exit $((failures > 0))
