#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the Python scripts with ruff, which is installed once into BUILD_DIR/lint. If ruff cannot
# be installed, the script prints a message and uses pyflakes, which finds fewer problems.
#   usage: lint-python.sh BUILD_DIR RUFF_VERSION [--format]
#   --format   change the layout of the scripts instead of checking them
set -eu
cd "$(dirname "$0")/.."
env=$1/lint/ruff-$2
if [ ! -x "$env/bin/ruff" ]; then
    mkdir -p "$1/lint"
    { python3 -m venv "$env" && "$env/bin/pip" install -q "ruff==$2"; } || rm -rf "$env"
fi
ruff() { "$env/bin/ruff" "$@" --quiet --cache-dir "$build/lint/ruff" .; }
build=$1
if [ ! -x "$env/bin/ruff" ]; then
    echo "lint-python.sh: ruff $2 cannot be installed; pyflakes checks instead"
    git ls-files -z '*.py' | xargs -0 pyflakes3
elif [ "${3-}" = --format ]; then
    ruff format
else
    ruff check
    ruff format --check || { echo "lint-python.sh: run make format" >&2; exit 1; }
fi
