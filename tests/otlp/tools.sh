#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts once, into a folder, what the test of OTLP needs: a collector, and OpenTelemetry's protocol
# definitions for Python.
# usage: tests/otlp/tools.sh FOLDER
#
# The collector is built from Go modules, which takes some minutes; the definitions come from PyPI.
# exit: 0 all is there, 1 a part cannot be had, 2 usage
set -eu
[ $# -eq 1 ] || { sed -n '5s/^# //p' "$0" >&2; exit 2; }
command -v go >/dev/null || { echo "tools.sh: Go is needed (package golang-go)" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
[ ! -e "$folder/.complete" ] || exit 0
(cd "$here/collector" && go build -o "$folder/collector" .)
python3 -m pip install --quiet --target "$folder/python" opentelemetry-proto==1.45.2 protobuf==7.36.2
touch "$folder/.complete"
