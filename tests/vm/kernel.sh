#!/usr/bin/env bash
# The kernel that the guests boot: a package of the distribution, which is downloaded and unpacked, but not installed.
# A kernel that root unpacks is for all users; other users have their own cache.
# usage: kernel.sh find     prints the folder
#        kernel.sh fetch    downloads the kernel
# With GPUNBD_VM_KERNEL=ublk, the kernel is one that has ublk with user copy.
set -euo pipefail

variant=${GPUNBD_VM_KERNEL:+-$GPUNBD_VM_KERNEL}
common=/var/cache/gpunbd/kernel$variant
[[ ${HOME:-} ]] || unset HOME # then ~ is the home directory in the user database
home=~
own=${XDG_CACHE_HOME:-$home/.cache}/gpunbd/kernel$variant
folders=("$common" "$own")
[[ ${GPUNBD_VM_CACHE:-} ]] && folders=("$GPUNBD_VM_CACHE$variant")

fail() {
    echo "kernel for tests/vm: $*" >&2
    exit 1
}

find_kernel() {
    local folder image
    for folder in "${folders[@]}"; do
        for image in "$folder"/boot/vmlinuz-*; do
            [[ -r $image ]] || continue
            echo "$folder"
            return
        done
    done
    return 1
}

version_of() { # $1: the metapackage of the newest kernel
    apt-cache depends "$1" 2>/dev/null | sed -n 's/.*Depends: linux-image-\([0-9].*\)/\1/p' | head -n 1
}

fetch() {
    local meta=linux-image-cloud-amd64 parts=(linux-image) version target size output package
    # Debian 12 has ublk in a kernel beside its own one.
    [[ $variant ]] && meta=linux-image-6.12-cloud-amd64
    # shellcheck disable=SC1091
    if [[ $(. /etc/os-release && echo "${ID:-}") == ubuntu ]]; then
        meta=linux-image-virtual
        parts+=(linux-modules)
        [[ $variant ]] && parts+=(linux-modules-extra)
    fi
    target=$own
    [[ $(id -u) == 0 ]] && target=$common
    [[ ${GPUNBD_VM_CACHE:-} ]] && target=$GPUNBD_VM_CACHE$variant

    version=$(version_of "$meta")
    if [[ ! $version && $(id -u) == 0 ]]; then
        apt-get update -qq >/dev/null 2>&1 || true
        version=$(version_of "$meta")
    fi
    [[ $version ]] || fail "apt does not know $meta; try again after 'apt-get update' as root"

    mkdir -p -- "$(dirname -- "$target")" 2>/dev/null || fail "cannot create the folder of $target"
    partial=$(mktemp -d -- "$(realpath -- "$(dirname -- "$target")")/new.XXXXXX" 2>/dev/null) || fail "cannot write to the folder of $target"
    trap 'rm -rf -- "$partial"' EXIT
    target=$(realpath -m -- "$target")
    cd -- "$partial"
    parts=("${parts[@]/%/-$version}")
    size=$(apt-get download --print-uris -qq "${parts[@]}" | awk '{ sum += $3 } END { printf "%.0f", sum / 1e6 }')
    echo "setup: Linux $version for tests/vm ($size MB to download) into $target"
    output=$(apt-get download -qq "${parts[@]}" 2>&1) || fail "$(tail -n 1 <<<"$output")"
    for package in *.deb; do
        dpkg-deb -x "$package" . || fail "cannot unpack $package into $target"
    done
    rm -- *.deb
    chmod -R a+rX . # only root can read Ubuntu's kernels
    mv -T -- "$partial" "$target" 2>/dev/null || fail "$target exists and is not empty, but contains no kernel"
}

case ${1:-} in
find) find_kernel || fail "there is none in $(printf '%s or ' "${folders[@]}" | sed 's/ or $//') (./dev setup downloads it)" ;;
fetch) fetch ;;
*) fail "usage: kernel.sh find | fetch" ;;
esac
