#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a server of tests/matrix/servers.txt runnable without installing it, and prints its path.
# usage: tests/matrix/servers.sh NAME      prints the path of the server's program
#        tests/matrix/servers.sh --list    prints the names of the servers
#
# example: LW_REDIS_SERVER=$(tests/matrix/servers.sh valkey-8.1) tests/run.sh server build
#
# The program is build/servers/NAME/bin/redis-server ($LW_SERVERS: another folder than
# build/servers). The folder contains all libraries of the program, so the program runs on every
# Linux with the same type of processor, also in a chroot. The script installs nothing and does not
# need root. A folder that is already complete is used again. Debian's packages come from
# $LW_DEBIAN_MIRROR, or else from the mirror that apt uses on this machine. No release of Debian has
# Redis 7.2, so it is built from the source in $LW_REDIS_SOURCE, a clone of Redis's git repository
# with its tags.
# exit: 0 the path was printed, 1 the server cannot be made (the reason is on stderr), 2 wrong usage
set -euo pipefail
cd "$(dirname "$0")/../.."
table=tests/matrix/servers.txt
servers=${LW_SERVERS:-$PWD/build/servers}

die() {
    echo "servers.sh: $*" >&2
    exit 1
}

# Runs a program of apt for one suite, with separate package lists and a separate cache. apt sees an
# empty list of installed packages, so it names every library that the server needs.
suite_apt() { # usage: suite_apt SUITE PROGRAM ARGUMENT…
    local suite=$1 program=$2
    shift 2
    "$program" -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::Etc::preferencesparts=/dev/null -o Dir::State="$apt" \
        -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User= \
        -o APT::Default-Release="$suite" \
        -o Acquire::Languages=none -qq "$@"
}

# Prints the suite that the suite $1 extends. For example, trixie-backports extends trixie. Prints
# nothing if $1 is complete without another suite.
base_suite() {
    case $1 in
    *-backports) echo "${1%-backports}" ;;
    experimental) echo sid ;;
    esac
}

# usage: fetch_debian SUITE PACKAGE. Fetches a server and its libraries from Debian.
fetch_debian() {
    local suite=$1 package=$2 url name
    url=$(tests/matrix/mirror.sh)
    [ -n "$url" ] || die "no mirror of Debian is known; set LW_DEBIAN_MIRROR"
    command -v dpkg-deb >/dev/null || die "this needs dpkg-deb and apt-get"
    apt=$work/apt
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$work/packages" "$work/root"
    : >"$apt/status"
    for name in $suite $(base_suite "$suite"); do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $url $name main"
    done >"$apt/sources.list"
    suite_apt "$suite" apt-get update >&2 || die "apt can't read $suite"
    # Select the server, the package that contains its program, and every library that they need.
    local wanted
    wanted=$(suite_apt "$suite" apt-get -s --no-install-recommends install "$package" |
        awk -v p="$package" -v t="${package%-server}-tools" \
            '$1 == "Inst" && ($2 == p || $2 == t || $2 ~ /^lib/) {gsub(/[()]/, "", $3); print $2 "=" $3}')
    # shellcheck disable=SC2086 # a list of packages
    (cd "$work/packages" && suite_apt "$suite" apt-get download $wanted >&2) ||
        die "apt can't fetch $package of $suite"
    for name in "$work"/packages/*.deb; do dpkg-deb -x "$name" "$work/root"; done
    gather "$package"
}

# Collects a program, its libraries and its dynamic loader in one folder.
gather() { # usage: gather PROGRAM, the name of a file in usr/bin
    local file
    mkdir -p "$work/lib" "$work/bin"
    while read -r file; do
        # Ignore errors of cp: it fails only for a link whose target is in none of the fetched
        # packages, and the server does not need such a link.
        cp -L "$file" "$work/lib/" 2>/dev/null || true
    done < <(find "$work/root" -name '*.so*' -path '*/lib*' \( -type f -o -type l \))
    cp -L "$work/root/usr/bin/$1" "$work/program"
    cp "$(find "$work/root" -name 'ld-linux*.so.*' -type f | head -n 1)" "$work/loader"
    cat >"$work/bin/redis-server" <<'EOF'
#!/bin/sh
# made by tests/matrix/servers.sh
here=${0%/bin/*}
exec "$here/loader" --argv0 redis-server --library-path "$here/lib" "$here/program" "$@"
EOF
}

build_source() { # usage: build_source TAG. Builds the server from the git tag TAG.
    local tag=$1
    [ -n "${LW_REDIS_SOURCE:-}" ] ||
        die "$name is in no release of Debian; set LW_REDIS_SOURCE to a clone of Redis's git repository"
    mkdir -p "$work/source" "$work/bin"
    git -C "$LW_REDIS_SOURCE" archive "$tag" | tar -xf - -C "$work/source" ||
        die "$LW_REDIS_SOURCE has no tag $tag"
    echo "servers.sh: building Redis $tag" >&2
    MAKEFLAGS='' make -C "$work/source" -j"$(nproc)" BUILD_TLS=yes USE_SYSTEMD=no redis-server \
        >"$work/build.log" 2>&1 ||
        MAKEFLAGS='' make -C "$work/source/src" -j"$(nproc)" BUILD_TLS=yes USE_SYSTEMD=no \
            redis-server >"$work/build.log" 2>&1 ||
        {
            cp "$work/build.log" "$servers/$name.log"
            die "the build failed; its log: $servers/$name.log"
        }
    cp "$work/source/src/redis-server" "$work/bin/redis-server"
}

[ $# -eq 1 ] || { sed -n '4,5s/^# //p' "$0" >&2; exit 2; }
if [ "$1" = --list ]; then
    awk '!/^#/ && NF {print $1}' $table
    exit
fi
name=$1
read -r how where package < <(awk -v n="$name" '$1 == n {print $2, $3, $4}' $table) || {
    echo "servers.sh: no server \"$name\" in $table" >&2
    exit 2
}
mkdir -p "$servers"
exec 9>"$servers/$name.lock"
flock 9
if [ ! -x "$servers/$name/bin/redis-server" ]; then
    work=$servers/$name.tmp
    rm -rf "$work"
    mkdir -p "$work"
    case $how in
    debian) fetch_debian "$where" "$package" ;;
    source) build_source "$where" ;;
    esac
    chmod 755 "$work/bin/redis-server"
    "$work/bin/redis-server" --version >&2 || die "$name does not run here"
    rm -rf "$work/apt" "$work/packages" "$work/root" "$work/source" "${servers:?}/$name"
    mv "$work" "$servers/$name"
fi
echo "$servers/$name/bin/redis-server"
