#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the librdkafka whose source is in a folder so that pkg-config offers only its static
# library.
# usage: rdkafka-static.sh SOURCE PREFIX [OPTION of its configure…]
set -eu
source=$1 prefix=$2
shift 2
cd "$source"
./configure --prefix="$prefix" --enable-static --disable-debug-symbols "$@"
make -j"$(nproc)" -C src lib
make -C src install
# a program that is linked with -lrdkafka would get the shared library, so that goes away
rm -f "$prefix"/lib/librdkafka.so*
# the description of the static library leaves out the libraries that were found by pkg-config
requires=$(sed -n 's/^Requires.private: *//p' "$prefix/lib/pkgconfig/rdkafka.pc")
sed "/^Libs:/i Requires: $requires" "$prefix/lib/pkgconfig/rdkafka-static.pc" >"$prefix/lib/pkgconfig/rdkafka.pc"
rm "$prefix/lib/pkgconfig/rdkafka-static.pc"
cat "$prefix/lib/pkgconfig/rdkafka.pc"
