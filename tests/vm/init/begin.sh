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
