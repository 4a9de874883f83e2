#!/usr/bin/env bash
# Debian systems that guests boot: debootstrap makes them without a kernel, and archives store them. Only Debian 12 is
# supported, because the program under test needs its libraries. "node" is for diskless nodes, "disks" for LVM, md and dm-crypt.
# usage: node.sh find [node|disks]   prints the path of the archive; without an argument both must exist
#        node.sh make                makes the missing archives; needs root
set -euo pipefail

cache=${GPUNBD_NODE_CACHE:-/var/cache/gpunbd}
mirror=${GPUNBD_FRESH_MIRROR:-http://deb.debian.org/debian}
# The packages of server/manual/diskless-nodes.md.
packages=systemd-sysv,udev,initramfs-tools,zstd,e2fsprogs,kmod
for_disks=systemd-sysv,dbus,libpam-systemd,udev,e2fsprogs,kmod,procps,lvm2,mdadm,cryptsetup-bin,dmsetup,libnbd-bin
libraries=libyaml-cpp0.7,libfmt9,libspdlog1.10,libssl3 # dependencies of the gpunbd package

fail() {
    echo "system for tests/vm: $*" >&2
    exit 1
}

packages_of() { # $1: node or disks
    case $1 in
    node) echo "$packages,$libraries" ;;
    disks) echo "$for_disks,$libraries" ;;
    *) fail "there is no system '$1'" ;;
    esac
}

archive_of() { # the name depends on the list of packages
    echo "$cache/$1-$(packages_of "$1" | cksum | cut -d ' ' -f 1).tar.zst"
}

make() { # $1: node or disks
    local archive
    archive=$(archive_of "$1")
    [[ ! -r $archive ]] || return 0
    # shellcheck disable=SC1091
    [[ $(. /etc/os-release && echo "${ID:-}-${VERSION_ID:-}") == debian-12 ]] || fail "the systems can be made on Debian 12 only"
    [[ $(id -u) == 0 ]] || fail "debootstrap needs root"
    mkdir -p -- "$cache"
    folder=$(mktemp -d -- "$cache/new.XXXXXX")
    trap 'rm -rf --one-file-system -- "$folder"' EXIT
    echo "setup: Debian 12 for tests/vm, $1 (60 MB to download), into $archive"
    nice debootstrap --variant=minbase --include="$(packages_of "$1")" bookworm "$folder/node" "$mirror" >"$folder/log" 2>&1 ||
        fail "debootstrap fails: $(tail -n 1 "$folder/log")"
    tar -C "$folder/node" --one-file-system --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' \
        --exclude='./usr/share/locale/*' --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' \
        --zstd -cf "$folder/archive" .
    rm -f -- "$cache/$1"-*.tar.zst
    mv -- "$folder/archive" "$archive"
    chmod a+r -- "$archive"
    rm -rf --one-file-system -- "$folder"
}

find_archive() { # $1: node or disks
    local archive
    archive=$(archive_of "$1")
    [[ -r $archive ]] || fail "there is no $archive (./dev setup makes it, as root)"
    echo "$archive"
}

case ${1:-} in
find)
    if [[ ${2:-} ]]; then
        find_archive "$2"
    else
        find_archive disks >/dev/null
        find_archive node
    fi
    ;;
make)
    make node
    make disks
    ;;
*) fail "usage: node.sh find [node|disks] | make" ;;
esac
