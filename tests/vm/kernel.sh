#!/usr/bin/env bash
# The kernel that the guest boots: a package of the distribution, downloaded and unpacked, never installed.
# What root has unpacked is for everybody; without root it lies in the user's own cache.
# usage: kernel.sh find     prints the folder
#        kernel.sh fetch    makes it
set -euo pipefail

common=/var/cache/gpunbd/kernel
[[ ${HOME:-} ]] || unset HOME # then ~ is what the user database says
home=~
own=${XDG_CACHE_HOME:-$home/.cache}/gpunbd/kernel
places=("$common" "$own")
[[ ${GPUNBD_VM_CACHE:-} ]] && places=("$GPUNBD_VM_CACHE")

fail() {
    echo "kernel for tests/vm: $*" >&2
    exit 1
}

find_kernel() {
    local place image
    for place in "${places[@]}"; do
        for image in "$place"/boot/vmlinuz-*; do
            [[ -r $image ]] || continue
            echo "$place"
            return
        done
    done
    return 1
}

version_of() { # $1: the package that depends on the newest kernel
    apt-cache depends "$1" 2>/dev/null | sed -n 's/.*Depends: linux-image-\([0-9].*\)/\1/p' | head -n 1
}

fetch() {
    local meta=linux-image-cloud-amd64 parts=(linux-image) version target size said package
    # shellcheck disable=SC1091
    if [[ $(. /etc/os-release && echo "${ID:-}") == ubuntu ]]; then
        meta=linux-image-virtual
        parts+=(linux-modules)
    fi
    target=$own
    [[ $(id -u) == 0 ]] && target=$common
    [[ ${GPUNBD_VM_CACHE:-} ]] && target=$GPUNBD_VM_CACHE

    version=$(version_of "$meta")
    if [[ ! $version && $(id -u) == 0 ]]; then
        apt-get update -qq >/dev/null 2>&1 || true
        version=$(version_of "$meta")
    fi
    [[ $version ]] || fail "apt knows no $meta (after 'apt-get update' as root it may)"

    mkdir -p -- "$(dirname -- "$target")" 2>/dev/null || fail "$target cannot be made"
    partial=$(mktemp -d -- "$(realpath -- "$(dirname -- "$target")")/new.XXXXXX" 2>/dev/null) || fail "$target cannot be written"
    trap 'rm -rf -- "$partial"' EXIT
    target=$(realpath -m -- "$target")
    cd -- "$partial"
    parts=("${parts[@]/%/-$version}")
    size=$(apt-get download --print-uris -qq "${parts[@]}" | awk '{ sum += $3 } END { printf "%.0f", sum / 1e6 }')
    echo "setup: Linux $version for tests/vm ($size MB to fetch) into $target"
    said=$(apt-get download -qq "${parts[@]}" 2>&1) || fail "$(tail -n 1 <<<"$said")"
    for package in *.deb; do
        dpkg-deb -x "$package" . || fail "$package cannot be unpacked into $target"
    done
    rm -- *.deb
    chmod -R a+rX . # Ubuntu's kernels are root's alone
    mv -T -- "$partial" "$target" 2>/dev/null || fail "$target is in the way: no kernel is in it, but other files are"
}

case ${1:-} in
find) find_kernel || fail "there is none in $(printf '%s or ' "${places[@]}" | sed 's/ or $//') (./dev setup fetches it)" ;;
fetch) fetch ;;
*) fail "usage: kernel.sh find | fetch" ;;
esac
