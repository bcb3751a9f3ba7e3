#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the container images of deploy/container/Dockerfile with buildah, and runs each image.
# usage: tests/container/build.sh BUILD_DIR [TARGET…]    (TARGET: plain, python, node; default: all)
#
# No daemon and no registry is needed: buildah runs without a daemon, and debootstrap makes the base
# image from the packages that this machine's apt uses for Debian. Images and layers stay in
# BUILD_DIR/container. The script needs root.
# exit: 0 all images work, 1 an image does not work, 2 wrong usage, or a tool is missing
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
mkdir -p "$1"
store=$(realpath "$1")/container
shift
[ $# -gt 0 ] || set -- plain python node
version=$(sed -n 's/^#define LATCHWORK_VERSION "\(.*\)"/\1/p' include/latchwork/lock.h)
base=localhost/latchwork-base

tool() { buildah --root "$store/images" --runroot "$store/run" "$@"; }

make_base() {
    tool inspect --type image "$base" >/dev/null 2>&1 && return
    rm -rf "$store/base"
    mkdir -p "$store"
    # shellcheck disable=SC2046 # no argument if no mirror is known
    debootstrap --variant=minbase trixie "$store/base" $(tests/matrix/mirror.sh) \
        >"$store/base.log" 2>&1 || {
            tail "$store/base.log" >&2
            exit 2
        }
    # Add the certificate authority of this network, if there is one, because npm needs it during
    # the build.
    [ -z "${NODE_EXTRA_CA_CERTS:-}" ] ||
        install -D -m 644 "$NODE_EXTRA_CA_CERTS" \
            "$store/base/usr/local/share/ca-certificates/network.crt"
    local container
    container=$(tool from scratch)
    tool add -q "$container" "$store/base" / >/dev/null
    tool commit -q "$container" "$base" >/dev/null
    tool rm "$container" >/dev/null
    rm -rf "$store/base"
}

build() { # usage: build TARGET. Builds the image of this target and prints the image's tag.
    local tag=localhost/latchwork:$version
    [ "$1" = plain ] || tag=$tag-$1
    tool build --isolation chroot --network host --layers --build-arg BASE="$base" --target "$1" \
        -t "$tag" -f deploy/container/Dockerfile . >"$store/$1.log" 2>&1 ||
        {
            tail -n 40 "$store/$1.log" >&2
            echo "build.sh: the image $1 does not build; the whole log: $store/$1.log" >&2
            exit 1
        }
    echo "$tag"
}

# Runs a command in a new container of the image, as the image's user and with the image's
# environment.
in_image() { # usage: in_image TAG COMMAND…
    local container status=0
    container=$(tool from --pull-never "$1")
    shift
    tool run --isolation chroot "$container" -- "$@" || status=$?
    tool rm "$container" >/dev/null
    return $status
}

# usage: expect TAG TEXT COMMAND…. Runs the command in the image. It must succeed and print TEXT.
expect() {
    local tag=$1 text=$2 out
    shift 2
    out=$(in_image "$tag" "$@" 2>&1) || {
        echo "$out" >&2
        echo "build.sh: $tag: $* failed" >&2
        exit 1
    }
    grep -qF -e "$text" <<<"$out" || {
        echo "$out" >&2
        echo "build.sh: $tag: $* did not print \"$text\"" >&2
        exit 1
    }
}

try() { # usage: try TARGET TAG. Checks that the image of the target works.
    expect "$2" "librdkafka 2.15" latchwork version --verbose
    expect "$2" "uid=65532" id
    case $1 in
    python)
        expect "$2" "Handler" python3 -c 'import latchwork; print(sorted(dir(latchwork)), "Handler")'
        ;;
    node) expect "$2" "function" node -e 'console.log(typeof require("latchwork").run)' ;;
    esac
    if in_image "$2" sh -c 'echo > /usr/bin/x' 2>/dev/null; then
        echo "build.sh: $2: the user may write to /usr" >&2
        exit 1
    fi
}

make_base
for target in "$@"; do
    tag=$(build "$target")
    try "$target" "$tag"
    echo "ok $tag: $(tool inspect --type image --format '{{.OCIv1.Config.User}} {{.OCIv1.Config.Entrypoint}}' "$tag")"
done
