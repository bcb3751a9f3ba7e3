#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command on a clean copy of this source tree in a chroot with Debian or Ubuntu 24.04.
# usage: tests/matrix/debian.sh SUITE COMMAND [ARGUMENT…]      (SUITE: bookworm, trixie, …; noble)
#        tests/matrix/debian.sh --check     only says whether chroots are possible here
#
# The chroot is made by debootstrap and kept in $LW_CHROOTS/SUITE (default build/debian/SUITE), so a
# later run does not make it again. Each run copies the tree, without files that git ignores, to
# /src/latchwork, and keeps the folder build/ that an earlier run left there. Packages of Debian
# come from $LW_DEBIAN_MIRROR, or else from the mirror that this machine's apt uses. Packages of
# Ubuntu (noble) come from $LW_UBUNTU_MIRROR, or else from debootstrap's default mirror. Ubuntu's
# keys come from Debian 13. The script needs root for chroot and mount. It makes its mounts in a
# separate mount namespace, and all processes of the command end with the script.
#
# LW_CHROOT_TREE      name of the copy below /src instead of latchwork, so that two runs can work at
#                     the same time
# LW_CHROOT_SHARED    folders that appear inside the chroot at the same paths
# LW_CHROOT_CLEAN=1   discard what the command writes outside of the shared folders (it goes to an
#                     overlay in memory). If every run in $LW_CHROOTS sets this variable, each run
#                     starts with the chroot as debootstrap made it.
# exit: the exit status of the command; 2 wrong usage, or no chroot can be made
set -euo pipefail
cd "$(dirname "$0")/../.."

die() {
    echo "debian.sh: $*" >&2
    exit 2
}

[ "$(id -u)" -eq 0 ] || die "needs root, for chroot and mount"
unshare --mount --pid --fork mount -t tmpfs tmpfs /mnt 2>/dev/null ||
    die "no mount is allowed here, and a chroot needs it; start the container with --privileged, or use another machine"
[ "${1-}" != --check ] || exit 0
[ $# -ge 2 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
suite=$1
shift
chroots=${LW_CHROOTS:-$PWD/build/debian}
root=$chroots/$suite

# The Ubuntu keys come from a package of Debian 13, because Debian 12 has no such package.
ubuntu_keys() {
    local keys=usr/share/keyrings/ubuntu-archive-keyring.gpg
    [ -e "/$keys" ] && echo "/$keys" && return
    [ -e "$chroots/trixie/$keys" ] ||
        "$0" trixie sh -c 'apt-get update -qq && apt-get install -y -qq ubuntu-keyring' >&2 ||
            die "Ubuntu's keys can't be had"
    echo "$chroots/trixie/$keys"
}

bootstrap() {
    local keys
    if [ "$suite" = noble ]; then
        keys=$(ubuntu_keys)
        debootstrap --variant=minbase --include=make,git,ca-certificates \
            --components=main,universe --keyring="$keys" noble "$root" "${LW_UBUNTU_MIRROR:-}" gutsy
    else
        # shellcheck disable=SC2046 # no argument where no mirror is known
        debootstrap --variant=minbase --include=make,git,ca-certificates "$suite" "$root" \
            $(tests/matrix/mirror.sh)
    fi
}

make_root() {
    [ ! -e "$root/.complete" ] || return 0
    command -v debootstrap >/dev/null 2>&1 || scripts/deps.sh matrix || die "debootstrap is missing"
    rm -rf "$root"
    mkdir -p "$chroots"
    echo "debian.sh: making a chroot of $suite"
    bootstrap >"$chroots/$suite.log" 2>&1 ||
        {
            tail -n 20 "$chroots/$suite.log" >&2
            rm -rf "$root"
            die "debootstrap failed; the whole log: $chroots/$suite.log"
        }
    touch "$root/.complete"
}

copy_tree() {
    local tree=$root/src/$name
    mkdir -p "$tree"
    find "$tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
    git ls-files -z | tar --null -T - -cf - --ignore-failed-read 2>/dev/null | tar -xf - -C "$tree"
}

name=${LW_CHROOT_TREE:-latchwork}
make_root
copy_tree
cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
# shellcheck disable=SC2016 # expanded inside
exec unshare --mount --pid --fork --kill-child sh -c '
    root=$1 name=$2 shared=$3 clean=$4; shift 4
    if [ -n "$clean" ]; then
        over=$root.overlay
        mkdir -p "$over" && mount -t tmpfs tmpfs "$over" &&
            mkdir "$over/upper" "$over/work" "$over/root" &&
            mount -t overlay -o "lowerdir=$root,upperdir=$over/upper,workdir=$over/work" \
                overlay "$over/root" || exit 2
        root=$over/root
    fi
    mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" &&
        mount -t tmpfs tmpfs "$root/tmp" || exit 2
    for folder in $shared; do
        mkdir -p "$root$folder" && mount --bind "$folder" "$root$folder" || exit 2
    done
    exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
        TERM=dumb CI="${CI:-}" MAKEFLAGS="-j$(nproc)" WERROR="${WERROR:-}" \
        sh -c "cd /src/$name && exec \"\$@\"" sh "$@"
' sh "$root" "$name" "${LW_CHROOT_SHARED:-}" "${LW_CHROOT_CLEAN:-}" "$@"
