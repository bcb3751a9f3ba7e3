#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fetches the source of the librdkafka that is built into packages, unless FOLDER has it already.
# usage: rdkafka-source.sh FOLDER
set -eu
cd "$(dirname "$0")/.."
[ ! -e "$1/.complete" ] || exit 0
rm -rf "$1"
tests/matrix/librdkafka.sh 2.15.1 --source "$1"
touch "$1/.complete"
