#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Downloads the tools that the test of OTLP needs into a folder: a collector, and OpenTelemetry's
# protocol definitions for Python. A folder that is already complete is not changed.
# usage: tests/otlp/tools.sh FOLDER
#
# The collector is built from Go modules, which takes some minutes. The definitions come from PyPI.
# exit: 0 everything is there, 1 something could not be downloaded or built, 2 wrong usage
set -eu
[ $# -eq 1 ] || { sed -n '5s/^# //p' "$0" >&2; exit 2; }
command -v go >/dev/null || { echo "tools.sh: Go is needed (package golang-go)" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
[ ! -e "$folder/.complete" ] || exit 0
(cd "$here/collector" && go build -o "$folder/collector" .)
python3 -m pip install --quiet --target "$folder/python" opentelemetry-proto==1.45.2 \
    protobuf==7.36.2
touch "$folder/.complete"
