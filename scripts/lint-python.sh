#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the Python scripts with ruff, which is installed once into BUILD_DIR/lint. If ruff cannot be installed, the script uses pyflakes,
# which finds less, and says so. usage: lint-python.sh BUILD_DIR RUFF_VERSION
set -eu
cd "$(dirname "$0")/.."
env=$1/lint/ruff-$2
if [ ! -x "$env/bin/ruff" ]; then
    mkdir -p "$1/lint"
    { python3 -m venv "$env" && "$env/bin/pip" install -q "ruff==$2"; } || rm -rf "$env"
fi
if [ -x "$env/bin/ruff" ]; then exec "$env/bin/ruff" check --quiet --cache-dir "$1/lint/ruff" .; fi
echo "lint-python.sh: ruff $2 cannot be installed; pyflakes checks instead"
git ls-files -z '*.py' | xargs -0 pyflakes3
