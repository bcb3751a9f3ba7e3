#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the path of axe.min.js, Deque's library that checks the accessibility of web pages
# (axe-core, MPL-2.0). The script downloads the library from npm if the folder does not have it yet.
# usage: axe.sh BUILD_DIR
set -eu
version=4.10.3
folder=$1/axe-$version
file=$folder/node_modules/axe-core/axe.min.js
if [ ! -s "$file" ]; then
    mkdir -p "$folder"
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" \
        "axe-core@$version" >&2
fi
echo "$file"
