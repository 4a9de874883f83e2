#!/usr/bin/env bash
# The Debian that diskless nodes boot: made by debootstrap, without a kernel, and kept as an archive. Debian 12
# alone, whose libraries the program under test is linked to.
# usage: node.sh find     prints the archive
#        node.sh make     makes it: as root
set -euo pipefail

place=${GPUNBD_NODE_CACHE:-/var/cache/gpunbd}
mirror=${GPUNBD_FRESH_MIRROR:-http://deb.debian.org/debian}
# As the chapter on diskless nodes has them, in OPERATION.md; then what the package of gpunbd depends on.
packages=systemd-sysv,udev,initramfs-tools,zstd,e2fsprogs,kmod
packages+=,libyaml-cpp0.7,libfmt9,libspdlog1.10,libssl3
archive=$place/node-$(cksum <<<"$packages" | cut -d ' ' -f 1).tar.zst # other packages, another name

fail() {
    echo "system for tests/vm: $*" >&2
    exit 1
}

make() {
    # shellcheck disable=SC1091
    [[ $(. /etc/os-release && echo "${ID:-}-${VERSION_ID:-}") == debian-12 ]] || fail "nodes are made on Debian 12 alone"
    [[ $(id -u) == 0 ]] || fail "debootstrap needs root"
    mkdir -p -- "$place"
    folder=$(mktemp -d -- "$place/new.XXXXXX")
    trap 'rm -rf --one-file-system -- "$folder"' EXIT
    echo "setup: Debian 12 for diskless nodes in tests/vm (60 MB to fetch) into $archive"
    nice debootstrap --variant=minbase --include="$packages" bookworm "$folder/node" "$mirror" >"$folder/log" 2>&1 ||
        fail "debootstrap fails: $(tail -n 1 "$folder/log")"
    tar -C "$folder/node" --one-file-system --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' \
        --exclude='./usr/share/locale/*' --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' \
        --zstd -cf "$folder/archive" .
    rm -f -- "$place"/node-*.tar.zst
    mv -- "$folder/archive" "$archive"
    chmod a+r -- "$archive"
}

case ${1:-} in
find) if [[ -r $archive ]]; then echo "$archive"; else fail "there is no $archive (./dev setup makes it, as root)"; fi ;;
make) make ;;
*) fail "usage: node.sh find | make" ;;
esac
