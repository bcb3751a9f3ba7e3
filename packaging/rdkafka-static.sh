#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds librdkafka from its source and installs it in PREFIX, so that pkg-config offers only the
# static library.
# usage: rdkafka-static.sh SOURCE PREFIX [OPTION of its configure…]
set -eu
source=$1 prefix=$2
shift 2
cd "$source"
./configure --prefix="$prefix" --enable-static --disable-debug-symbols "$@"
make -j"$(nproc)" -C src lib
make -C src install
# Remove the shared library, because -lrdkafka would prefer it to the static library.
rm -f "$prefix"/lib/librdkafka.so*
# librdkafka's pkg-config file for static linking omits libraries that configure found by
# pkg-config, so add them to it.
requires=$(sed -n 's/^Requires.private: *//p' "$prefix/lib/pkgconfig/rdkafka.pc")
sed "/^Libs:/i Requires: $requires" "$prefix/lib/pkgconfig/rdkafka-static.pc" \
    >"$prefix/lib/pkgconfig/rdkafka.pc"
rm "$prefix/lib/pkgconfig/rdkafka-static.pc"
cat "$prefix/lib/pkgconfig/rdkafka.pc"
