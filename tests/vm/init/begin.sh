# shellcheck shell=dash
# The start of a guest's only process. It prints a line "RESULT ..." for each part, which ends with "ok" on success. The
# time limit of the test ends a guest that hangs.
/bin/busybox echo 'init has started'
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /mnt
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
ip link set lo up
round=start

parameter() { # the value of a kernel parameter
    sed -n "s/^\(.* \)\{0,1\}$1=\([^ ]*\).*/\2/p" /proc/cmdline
}

insert_modules() {
    while read -r module; do
        insmod "/modules/$module" || echo "RESULT insmod $module failed"
    done </modules/order
}

failure_details() { :; } # a script may override it

fail() {
    echo "RESULT $round failed: $*"
    tail -n 20 /tmp/*.log
    failure_details
    dmesg | tail -n 30
    poweroff -f
}

ok() { echo "RESULT $round ok"; }

start_server() { # $1: name of its log; the rest: arguments of gpunbd. Sets $server
    log=/tmp/$1.log
    shift
    rm -f "$log" # of an earlier one
    gpunbd "$@" 2>"$log" &
    # shellcheck disable=SC2034 # for scripts that read this file
    server=$!
    eventually grep -qs 'ready: ' "$log"
}

drop_caches() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
}

signal_server() { # $1: signal, $2: process id of its keeper
    read -r child _ <"/proc/$2/task/$2/children" # the line ends with a space
    kill "-$1" "$child" || fail the server does not run
}

# In the background: writes files of $2 KiB to folder $1, and reads earlier ones back.
begin_load() {
    rm -f /tmp/stop /tmp/load-*
    echo 0 >/tmp/written
    load "$@" &
    writer=$!
}
load() {
    n=0
    while [ ! -e /tmp/stop ]; do
        dd if=/dev/urandom of=/tmp/new bs="$2k" count=1 2>/dev/null
        dd if=/tmp/new of="$1/load-$((n % 16))" bs="$2k" conv=fsync 2>/dev/null || fail "write $n"
        md5sum </tmp/new >/tmp/load-$((n % 16))
        [ $((n % 4)) != 0 ] || echo 3 >/proc/sys/vm/drop_caches
        verify_file "$1" $(((n + 5) % 16))
        n=$((n + 1))
        echo $n >/tmp/counted
        mv /tmp/counted /tmp/written # never empty
        echo PROGRESS
    done
}
verify_file() {
    [ ! -e "/tmp/load-$2" ] || md5sum <"$1/load-$2" | cmp -s - "/tmp/load-$2" || fail "file $2 has changed"
}
verify_load() {
    drop_caches
    for n in $(seq 0 15); do verify_file "$1" "$n"; done
}
written_since() { [ "$(cat /tmp/written)" -gt "$1" ]; }
wait_for_writes() { # $1: how many more
    eventually written_since $(($(cat /tmp/written) + $1 - 1))
}
end_load() {
    touch /tmp/stop
    wait "$writer"
    verify_load "$1"
}

ended() { # process $1, with all its threads
    ! [ -d "/proc/$1" ] || { grep -q '^State:.Z' "/proc/$1/status" && is_one "/proc/$1/task/"*; }
}
is_one() { [ $# = 1 ]; }

eventually() { # waits until the command "$@" succeeds; fails after a generous time limit
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "timeout: $*"
        sleep 0.1
    done
}
