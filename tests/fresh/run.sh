#!/usr/bin/env bash
# What a newcomer does, on Debian 12 systems with nothing but git, in chroots: it is the check that ./dev
# installs what it needs, for root and for others, and goes on. It takes what is committed. Needs root and
# the network; skipped (77) where one is missing. $GPUNBD_FRESH_FOLDER holds the systems: 3 GB.
# usage: run.sh [SCENARIO...]    scenarios: run test user archive package; all if none is named
set -euo pipefail
checkout=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
folder=$(realpath -m "${GPUNBD_FRESH_FOLDER:-/var/tmp/gpunbd-fresh}")
pristine=$folder/debian-12
log=$folder/log
mirror=${GPUNBD_FRESH_MIRROR:-http://deb.debian.org/debian}
system=

skip() {
    echo "SKIPPED: fresh: $*"
    exit 77
}

fail() {
    echo "FAILED: $*" >&2
    if [[ -s $log ]]; then tail -n 60 "$log" | sed 's/^/    /' >&2; fi
    exit 1
}

# --- systems -------------------------------------------------------------------------------------

host_needs() { # $1: program, $2: its package. What this script itself calls
    command -v "$1" >/dev/null && return
    { apt-get update && apt-get install -y --no-install-recommends "$2"; } >"$log" 2>&1 </dev/null ||
        skip "$1 is not installed, and apt cannot install $2: $(grep '^E:' "$log" | tail -n 1)"
}

bootstrap() { # the pristine system, kept for the next time
    [[ -e $pristine ]] && return
    host_needs debootstrap debootstrap
    rm -rf --one-file-system "$pristine.new"
    nice debootstrap --variant=minbase --include=git,ca-certificates bookworm "$pristine.new" "$mirror" >"$log" 2>&1 ||
        skip "debootstrap fails: $(tail -n 1 "$log")"
    # If this is Debian 12 as well, apt looks where it does here.
    if grep -q '^VERSION_CODENAME=bookworm' /etc/os-release && [[ -e /etc/apt/sources.list.d/debian.sources ]]; then
        rm "$pristine.new/etc/apt/sources.list"
        cp /etc/apt/sources.list.d/debian.sources "$pristine.new/etc/apt/sources.list.d/"
    elif grep -q '^VERSION_CODENAME=bookworm' /etc/os-release && [[ -s /etc/apt/sources.list ]]; then
        cp /etc/apt/sources.list "$pristine.new/etc/apt/"
    fi
    cp -n /etc/apt/apt.conf.d/* "$pristine.new/etc/apt/apt.conf.d/"
    mv "$pristine.new" "$pristine"
}

leave() {
    [[ $system ]] || return 0
    local below
    for below in dev/shm dev/pts dev sys proc; do
        if mountpoint -q "$system/$below"; then umount -l "$system/$below"; fi
    done
    if ! grep -qF " $system/" /proc/self/mounts; then rm -rf --one-file-system "$system"; fi
    system=
}

enter() { # $1: name. A fresh system; in it, the checkout's last commit, to clone and as an archive
    leave
    system=$folder/$1
    rm -rf --one-file-system "$system"
    cp -a --reflink=auto "$pristine" "$system"
    cp /etc/resolv.conf "$system/etc/"
    mount -t proc proc "$system/proc"
    mount --bind /sys "$system/sys"
    mount --bind /dev "$system/dev"
    mount -t devpts -o ptmxmode=0666 devpts "$system/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$system/dev/shm"
    git -C "$checkout" -c safe.directory='*' bundle create -q "$system/gpunbd.bundle" HEAD
    git -C "$checkout" -c safe.directory='*' archive --prefix=gpunbd-archive/ -o "$system/gpunbd.tar" HEAD
    chroot "$system" useradd --create-home --shell /bin/bash somebody
}

# --- steps ---------------------------------------------------------------------------------------

within() { # $1: user, $2: shell commands. No more environment than after a login
    local home=/root
    [[ $1 == root ]] || home=/home/$1
    nice chroot --userspec="$1:$1" "$system" /usr/bin/env -i HOME="$home" LANG=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -ec "cd ~; $2"
}

step() { # $1: what it is, the rest: a command. Its output goes to the log, its times to the terminal
    local status=0 TIMEFORMAT="  $1: %lR, CPU %lU user, %lS system"
    shift
    time "$@" >"$log" 2>&1 </dev/null || status=$?
    return "$status"
}

clone='git -c advice.detachedHead=false clone -q /gpunbd.bundle gpunbd; cd gpunbd'
archive='mkdir -p "a folder"; cd "a folder"; tar xf /gpunbd.tar; cd gpunbd-archive; unset HOME'

# The build and the server are one process in the end, which this ends when nbdinfo, from outside of the
# system, has seen the export.
serve() { # $1: user, $2: shell commands that make and enter the checkout
    local port=0 commands
    until ((port)) && ! reached "$port"; do port=$((20000 + RANDOM % 10000)); done
    commands="echo \$\$ >/tmp/pid; $2; exec ./dev run --size 64M --port $port"
    rm -f "$system/tmp/pid"
    within "$1" "$commands" &
    until reached "$port"; do
        sleep 1
        if [[ -z $(jobs -rp) ]]; then return 1; fi
    done
    echo "answered after $SECONDS s"
    nbdinfo "nbd://127.0.0.1:$port"
    kill "$(cat "$system/tmp/pid")"
    wait -n
}

reached() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

passed() { # the last line that ./dev test printed
    local last
    last=$(tail -n 1 "$log")
    grep '^skipped, ' "$log" | sed 's/^/    /'
    echo "    $last"
    [[ $last =~ ^[0-9]+\ passed,\ 0\ failed,\ [0-9]+\ skipped$ ]] || fail "this is not the line of tests that passed"
}

# --- scenarios -----------------------------------------------------------------------------------

run_scenario() {
    step "git clone, ./dev run until nbdinfo has answered" serve root "$clone" || fail "./dev run"
    grep '^setup: ' "$log" | sed 's/^/    /'
    grep -q 'export-size: 67108864' "$log" || fail "nbdinfo does not tell of the export"
}

test_scenario() {
    step "git clone, ./dev test" within root "$clone; ./dev test" || fail "./dev test"
    grep '^setup: ' "$log" | sed 's/^/    /'
    passed
    step "./dev test once more" within root "cd gpunbd; ./dev test" || fail "./dev test once more"
    passed
}

user_scenario() {
    local status=0
    step "an ordinary user's ./dev run where nothing is installed" within somebody "$clone; ./dev run" || status=$?
    [[ $status == 1 ]] || fail "it ended with $status, not 1"
    grep -qx '  g++' "$log" || fail "it does not list what is missing"
    tail -n 1 "$log" | grep -q '^  apt-get update && apt-get install -y .* g++ ' || fail "it does not tell the command"
    step "root's ./dev setup" within root "$clone; ./dev setup" || fail "./dev setup"
    step "an ordinary user's ./dev run" serve somebody 'cd gpunbd' || fail "./dev run as an ordinary user"
    grep -q '^setup: ' "$log" && fail "there was something to set up"
    step "an ordinary user's ./dev test" within somebody 'cd gpunbd; ./dev test' || fail "./dev test as an ordinary user"
    passed
    grep -q '^skipped, .*kernel for tests/vm' "$log" && fail "root's kernel is not used"
    return 0
}

archive_scenario() {
    step "an archive in a folder with a space, no HOME: ./dev run" serve root "$archive" || fail "./dev run of an archive"
    step "its ./dev test" within root "${archive/tar*tar;/}; ./dev test" || fail "./dev test of an archive"
    passed
}

# $GPUNBD_FRESH_DEB: a package to use instead of making one.
package_scenario() {
    local deb=$folder/gpunbd.deb
    if [[ ${GPUNBD_FRESH_DEB:-} ]]; then
        cp "$GPUNBD_FRESH_DEB" "$deb"
    else
        step "git clone, ./dev package" within root "$clone; ./dev package" || fail "./dev package"
        cp "$system"/root/gpunbd/build/release/gpunbd_*.deb "$deb"
        enter package # where nothing is installed
    fi
    cp "$deb" "$system/gpunbd.deb"
    step "a package that is newer by its number" within root 'dpkg-deb -R /gpunbd.deb /new; sed -i "s/^Version: .*/Version: 999-1/" \
        /new/DEBIAN/control; dpkg-deb -b /new /gpunbd-new.deb' || fail "dpkg-deb"
    step "apt-get install" within root 'apt-get update -q; apt-get install -y --no-install-recommends /gpunbd.deb' || fail "apt-get install"
    step "what is there then" within root "$installed" || fail "something is missing"
    step "apt-get install of a newer one" within root 'echo "# mine" >>/etc/gpunbd/gpunbd.yaml
        apt-get install -y --no-install-recommends /gpunbd-new.deb; tail -n 1 /etc/gpunbd/gpunbd.yaml | grep -x "# mine"' || fail "the upgrade"
    step "apt-get remove" within root 'apt-get remove -y gpunbd; ! test -e /usr/bin/gpunbd; test -e /etc/gpunbd/gpunbd.yaml' || fail "apt-get remove"
    step "apt-get purge" within root "apt-get purge -y gpunbd; $purged" || fail "apt-get purge"
    step "lintian" within root 'apt-get install -y --no-install-recommends lintian
        lintian --allow-root --fail-on error,warning --tag-display-limit 0 /gpunbd.deb' || fail "lintian"
}

# As its user, in the service's own configuration.
# shellcheck disable=SC2016
installed='id gpunbd; gpunbd --version; zcat /usr/share/man/man8/gpunbd.8.gz | grep -q "Nm gpunbd"
    install -d -o gpunbd -g gpunbd /run/gpunbd; gpunbd check /etc/gpunbd/gpunbd.yaml
    setpriv --reuid gpunbd --regid gpunbd --init-groups gpunbd serve --config /etc/gpunbd/gpunbd.yaml --pidfile /run/gpunbd/pid &
    for _ in $(seq 300); do if test -s /run/gpunbd/pid; then break; fi; sleep 0.1; done
    gpunbd ping "nbd+unix:///?socket=/run/gpunbd/gpunbd.sock"
    test "$(stat -c "%U %G %a" /run/gpunbd/gpunbd.sock)" = "gpunbd gpunbd 660"
    kill "$(cat /run/gpunbd/pid)"; wait'

# The user stays, as of every package: files of its may be left.
# shellcheck disable=SC2016
purged='! test -e /etc/gpunbd; ! dpkg -s gpunbd; test -z "$(find / -xdev -path /new -prune -o -path "*gpunbd*" \
    ! -path "/gpunbd*" ! -path "/run/gpunbd*" ! -path "/var/log/*" ! -path "/var/cache/*" -print)"'

# -------------------------------------------------------------------------------------------------

[[ $(id -u) == 0 ]] || skip "needs root, for chroot"
if [[ ! ${GPUNBD_FRESH_MOUNTS:-} ]]; then # mounts of its own, which end with it
    unshare --mount true 2>/dev/null || skip "may not mount here"
    GPUNBD_FRESH_MOUNTS=own exec unshare --mount "${BASH_SOURCE[0]}" "$@"
fi
git -C "$checkout" -c safe.directory='*' rev-parse -q --verify HEAD >/dev/null 2>&1 || skip "$checkout is no git checkout"
mkdir -p "$folder"
trap leave EXIT
host_needs nbdinfo libnbd-bin
bootstrap
(($#)) || set -- run test user archive package
for scenario; do
    [[ $(type -t "${scenario}_scenario") == function ]] || fail "there is no scenario '$scenario': run test user archive package"
done
for scenario; do
    echo "== $scenario"
    enter "$scenario"
    SECONDS=0
    "${scenario}_scenario"
done
echo "all scenarios passed: $*"
