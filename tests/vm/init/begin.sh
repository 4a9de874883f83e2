# shellcheck shell=dash
# What a guest's first and only process begins with. It prints a line "RESULT ..." for each part; anything that fails prints
# one without "ok". A hang is the end of the test's time.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /mnt
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
ip link set lo up
round=start

given() { # what the kernel's command line says after "$1="
    sed -n "s/^\(.* \)\{0,1\}$1=\([^ ]*\).*/\2/p" /proc/cmdline
}

insert_modules() {
    while read -r module; do
        insmod "/modules/$module" || echo "RESULT insmod $module failed"
    done </modules/order
}

more_at_failure() { :; } # each may have its own

fail() {
    echo "RESULT $round failed: $*"
    tail -n 20 /tmp/*.log
    more_at_failure
    dmesg | tail -n 30
    poweroff -f
}

ok() { echo "RESULT $round ok"; }

ended() { # process $1
    ! [ -d "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status"
}

eventually() { # "$@" becomes true; the end of waiting is only for what never does
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "never came true: $*"
        sleep 0.1
    done
}
