#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the tarball for other distributions from the tree that contains this script. Run this
# script only on a Debian 12 that may be changed. packaging/tarball.sh runs it in a clean chroot.
# usage: build-tarball.sh OUT
#
# At run time the program needs only the C library of the system. librdkafka is linked into the
# program, as are the libraries that Debian has in static form and that need no other library. The
# other libraries lie beside the program in lib/latchwork, where no other program looks for them.
# The environment must have SOURCE_DATE_EPOCH, and RDKAFKA, the folder of librdkafka's source.
set -eu
out=$1 work=/build/latchwork prefix=/opt/latchwork
cd "$(dirname "$0")/.."
version=$(sed -n 's/^#define LATCHWORK_VERSION "\(.*\)"/\1/p' include/latchwork/lock.h)
name=latchwork-$version-linux-$(uname -m)
root=/build/root
export DEBIAN_FRONTEND=noninteractive TZ=UTC LC_ALL=C.UTF-8
static="libjansson-dev libsqlite3-dev libxxhash-dev"

quiet() { # COMMAND…: runs a command, and prints the end of its output only if it fails
    "$@" >/tmp/quiet.log 2>&1 || {
        tail -n 40 /tmp/quiet.log >&2
        echo "build-tarball.sh: failed: $*" >&2
        exit 1
    }
}

from_system() { # LIBRARY: succeeds if the library is a part of the C library
    case $1 in
    linux-vdso.so* | ld-linux* | libc.so* | libm.so* | libpthread.so* | libdl.so*) true ;;
    librt.so* | libresolv.so* | libutil.so*) true ;;
    *) false ;;
    esac
}

compile() {
    rm -rf "$work" "$root"
    mkdir -p "$work" "$root"
    tar -cf - --exclude=./build . | tar -xf - -C "$work"
    cp -r "$RDKAFKA" "$work/rdkafka"
    cd "$work"
    # Kerberos (GSSAPI) is left out, because SASL would need plugins for it that the system may not
    # have.
    CFLAGS="-O2 -g -ffile-prefix-map=$work=." quiet packaging/rdkafka-static.sh rdkafka \
        "$work/rdkafka/prefix" --disable-gssapi --disable-lz4-ext
    export PKG_CONFIG_PATH=$work/rdkafka/prefix/lib/pkgconfig
    libs="-lhiredis -lssl -lcrypto -lpq -lcurl -lmicrohttpd"
    libs="$libs -l:libjansson.a -l:libsqlite3.a"
    # shellcheck disable=SC2016 # $ORIGIN is for the loader
    quiet make -j"$(nproc)" PREFIX=$prefix DESTDIR=$root CFLAGS="-O2 -g -ffile-prefix-map=$work=." \
        LDFLAGS='-Wl,--disable-new-dtags -Wl,-rpath,\$$ORIGIN/../lib/latchwork:\$$ORIGIN/latchwork' \
        LW_LIBS="-l:libxxhash.a $(pkg-config --libs rdkafka) $libs" \
        install
    cd "$root$prefix"
    strip --strip-unneeded bin/latchwork lib/liblatchwork.so.*
}

bundle() { # copies the shared libraries and all licences, and prints the list of parts for sbom.py
    mkdir -p lib/latchwork share/doc/latchwork/licenses
    ldd bin/latchwork | awk '$2 == "=>" {print $1, $3}' | sort >/tmp/libraries
    while read -r library path; do
        if from_system "$library"; then continue; fi
        cp -L "$path" "lib/latchwork/$library"
        package=$(dpkg -S "$(realpath "$path")" 2>/dev/null \
            || dpkg -S "*/$(basename "$(realpath "$path")")")
        echo "shared:${package%%:*}:lib/latchwork/$library"
    done </tmp/libraries
    for package in $static; do echo "static:$package"; done
    echo "source:librdkafka:2.15.1:BSD-2-Clause:https://github.com/confluentinc/librdkafka"
}

licences() { # copies the licence of each package in the list of parts
    sed -n 's/^\(shared\|static\):\([^:]*\).*/\2/p' /tmp/parts | sort -u | while read -r package; do
        cp -L "/usr/share/doc/$package/copyright" "share/doc/latchwork/licenses/$package"
    done
    cp "$RDKAFKA/LICENSES.txt" share/doc/latchwork/licenses/librdkafka
}

pack() {
    least=$(objdump -T bin/latchwork lib/liblatchwork.so.* lib/latchwork/* | grep \
        -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1)
    echo "Needs Linux on $(uname -m) and glibc ${least#GLIBC_} or later. How to install: share/doc/latchwork/how-to/install.md" >README
    # shellcheck disable=SC2046 # one part a word
    "$work/packaging/sbom.py" . "$name" "$version" $(cat /tmp/parts) >"$out/$name.spdx.json"
    mv "$root$prefix" "$root/$name"
    tar -C "$root" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --mode=u+rwX,go+rX,go-w -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
    cat "$root/$name/README"
}

quiet apt-get update -qq
quiet apt-get install -y -qq --no-install-recommends dpkg-dev build-essential python3
cp -r packaging/debian /tmp/debian
sed -i 's/@MAINTAINER@/Nobody <nobody@example.org>/' /tmp/debian/control
quiet apt-get build-dep -y -qq --no-install-recommends -P pkg.latchwork.rdkafka /tmp/
mkdir -p "$out"
compile
bundle >/tmp/parts
licences
pack
