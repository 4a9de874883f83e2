#!/usr/bin/env bash
# Runs a new developer's first commands on fresh Debian 12 systems in chroots, which have only git installed. This
# checks that ./dev installs its dependencies as root and as another user. It tests the last commit. Needs root and
# the network, and is skipped (77) without them. $GPUNBD_FRESH_FOLDER stores the systems: 3 GB.
# usage: run.sh [SCENARIO...]    scenarios: run test user archive package (default: all)
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

host_needs() { # $1: program, $2: its package. Installs a program that this script uses
    command -v "$1" >/dev/null && return
    { apt-get update && apt-get install -y --no-install-recommends "$2"; } >"$log" 2>&1 </dev/null ||
        skip "$1 is not installed, and apt cannot install $2: $(grep '^E:' "$log" | tail -n 1)"
}

bootstrap() { # makes the pristine system, which later runs reuse
    [[ -e $pristine ]] && return
    host_needs debootstrap debootstrap
    rm -rf --one-file-system "$pristine.new"
    nice debootstrap --variant=minbase --include=git,ca-certificates bookworm "$pristine.new" "$mirror" >"$log" 2>&1 ||
        skip "debootstrap fails: $(tail -n 1 "$log")"
    # If the host is Debian 12 as well, use its package sources.
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

enter() { # $1: name. Makes a fresh system with the last commit as a git bundle and as an archive
    leave
    system=$folder/$1
    rm -rf --one-file-system "$system"
    cp -a --reflink=auto "$pristine" "$system"
    cp /etc/resolv.conf "$system/etc/"
    rm -f "$system/etc/hosts" # debootstrap makes none; nothing may depend on a lookup of localhost
    chmod 0700 "$system/root" # as in a normal installation: other users cannot read a checkout there
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

within() { # $1: user, $2: shell commands. The environment is that of a login
    local home=/root
    [[ $1 == root ]] || home=/home/$1
    nice chroot --userspec="$1:$1" "$system" /usr/bin/env -i HOME="$home" LANG=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -ec "cd ~; $2"
}

step() { # $1: description, the rest: a command. Writes its output to the log, and its times to the terminal
    local status=0 TIMEFORMAT="  $1: %lR, CPU %lU user, %lS system"
    shift
    time "$@" >"$log" 2>&1 </dev/null || status=$?
    return "$status"
}

clone='git -c advice.detachedHead=false clone -q /gpunbd.bundle gpunbd; cd gpunbd'
archive='mkdir -p "a folder"; cd "a folder"; tar xf /gpunbd.tar; cd gpunbd-archive; unset HOME'

# The build and the server run as one process, because ./dev ends with exec. It is terminated after nbdinfo,
# from outside of the system, has seen the export.
serve() { # $1: user, $2: shell commands that make the checkout and change to it
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

passed() { # checks the last line of ./dev test
    local last
    last=$(tail -n 1 "$log")
    grep '^skipped, ' "$log" | sed 's/^/    /'
    echo "    $last"
    [[ $last =~ ^[0-9]+\ passed,\ 0\ failed,\ [0-9]+\ skipped$ ]] || fail "the last line does not report that all tests passed"
}

temporary() { # lists the temporary files of the system
    (cd "$system" && find tmp run var/tmp dev/shm -mindepth 1 ! -type p | sort)
}

# --- scenarios -----------------------------------------------------------------------------------

run_scenario() {
    step "git clone, ./dev run until nbdinfo succeeds" serve root "$clone" || fail "./dev run"
    grep '^setup: ' "$log" | sed 's/^/    /'
    grep -q 'export-size: 67108864' "$log" || fail "nbdinfo does not report the export"
}

test_scenario() {
    # Installs the packages and builds. The one test creates no files: all that the other tests leave is new.
    step "git clone, ./dev test of one test" within root "$clone; ./dev test fresh.summary" || fail "./dev test fresh.summary"
    grep '^setup: ' "$log" | sed 's/^/    /'
    passed
    grep -q '^build, release: ' "$log" || fail "it does not report the progress of the build"
    temporary >"$folder/before"
    step "./dev test" within root "cd gpunbd; ./dev test" || fail "./dev test"
    passed
    grep -q '^== build, release (' "$log" || fail "it does not report the build"
    temporary | comm -13 "$folder/before" - >"$log"
    [[ ! -s $log ]] || fail "./dev test leaves these files behind"
}

user_scenario() {
    local status=0
    step "./dev run of an ordinary user, without packages" within somebody "$clone; ./dev run" || status=$?
    [[ $status == 1 ]] || fail "the exit status is $status, not 1"
    grep -qx '  g++' "$log" || fail "it does not list the missing packages"
    tail -n 1 "$log" | grep -q '^  apt-get update && apt-get install -y .* g++ ' || fail "it does not print the command"
    step "root's ./dev setup" within root "$clone; ./dev setup" || fail "./dev setup"
    step "./dev run of an ordinary user" serve somebody 'cd gpunbd' || fail "./dev run as an ordinary user"
    grep -q '^setup: ' "$log" && fail "packages were missing after ./dev setup"
    step "./dev test of an ordinary user" within somebody 'cd gpunbd; ./dev test' || fail "./dev test as an ordinary user"
    passed
    grep -q '^skipped, .*kernel for tests/vm' "$log" && fail "the kernel that root downloaded is not used"
    return 0
}

archive_scenario() {
    step "./dev run of an archive in a folder with a space, without HOME" serve root "$archive" || fail "./dev run of an archive"
    step "./dev test of the archive" within root "${archive/tar*tar;/}; ./dev test" || fail "./dev test of an archive"
    passed
}

# $GPUNBD_FRESH_DEB: a package to test instead of a newly built one.
package_scenario() {
    local deb=$folder/gpunbd.deb
    if [[ ${GPUNBD_FRESH_DEB:-} ]]; then
        cp "$GPUNBD_FRESH_DEB" "$deb"
    else
        step "git clone, ./dev package" within root "$clone; ./dev package" || fail "./dev package"
        cp "$system"/root/gpunbd/build/release/gpunbd_*.deb "$deb"
        enter package # a system without build packages
    fi
    cp "$deb" "$system/gpunbd.deb"
    # package.deb uses, upgrades, removes and purges it.
    step "apt-get install" within root 'apt-get update -q; apt-get install -y --no-install-recommends /gpunbd.deb' || fail "apt-get install"
    step "check the installed program" within root 'install -d -o gpunbd -g gpunbd /run/gpunbd
        RUNTIME_DIRECTORY=/run/gpunbd gpunbd check /etc/gpunbd/gpunbd.yaml
        gpunbd serve --size 1M --device host --run true' || fail "something is missing"
}

# -------------------------------------------------------------------------------------------------

[[ $(id -u) == 0 ]] || skip "chroot needs root"
if [[ ! ${GPUNBD_FRESH_MOUNTS:-} ]]; then # a private mount namespace removes the mounts at the end
    unshare --mount true 2>/dev/null || skip "mounting is not permitted"
    GPUNBD_FRESH_MOUNTS=own exec unshare --mount "${BASH_SOURCE[0]}" "$@"
fi
git -C "$checkout" -c safe.directory='*' rev-parse -q --verify HEAD >/dev/null 2>&1 || skip "$checkout is not a git checkout"
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
