#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the packages of the SDKs for Python (a wheel) and Node (a tarball of npm) into a folder,
# and checks them: each is installed into an empty environment and handles a message.
# usage: packaging/sdk.sh FOLDER
#
# Needs python3 with venv, node and npm. pip fetches setuptools, if it is not installed, and npm the
# newest TypeScript, with which handlers must compile as `tsc --init` sets it up, among them that of
# sdk/node/README.md.
# exit: 0 both packages are built and work
set -eu
[ $# -eq 1 ] || {
    sed -n 's/^# usage: /usage: /p' "$0" >&2
    exit 2
}
cd "$(dirname "$0")/.."
mkdir -p "$1"
out=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
version=$(sed -n 's/^#define LATCHWORK_VERSION "\(.*\)"/\1/p' include/latchwork/lock.h)
request='{"id":"t/0/1","key":"k","fence":1,"attempt":1,"topic":"t","partition":0,"offset":1,"timestamp_ms":1,"headers":[],"payload":"{}"}'

quiet() { # COMMAND…: runs a command, and prints its output only if it fails
    "$@" >"$scratch/log" 2>&1 || {
        cat "$scratch/log" >&2
        echo "sdk.sh: failed: $*" >&2
        exit 1
    }
}

# COMMAND…: gives the handler a message, and fails if it is not done
handles() {
    [ "$(echo "$request" | "$@")" = '{"id":"t/0/1","attempt":1,"outcome":"done"}' ] || {
        echo "sdk.sh: the installed SDK does not handle a message: $*" >&2
        exit 1
    }
}

# Both are built from a copy, because a build leaves files beside the sources.
cp -r sdk/python sdk/node "$scratch"
wheel=latchwork-$version-py3-none-any.whl
quiet python3 -m venv "$scratch/venv"
quiet "$scratch/venv/bin/pip" wheel --no-deps --wheel-dir "$out" "$scratch/python"
quiet python3 -m venv --clear "$scratch/venv"
quiet "$scratch/venv/bin/pip" install --no-index "$out/$wheel"
cd "$scratch"
handles venv/bin/python -c 'import latchwork, latchwork.testing; latchwork.run(lambda m: None)'

(cd node && quiet npm pack --pack-destination "$out")
mkdir project
cd project
quiet npm install --offline --no-audit --no-fund "$out/latchwork-$version.tgz"
handles node -e 'require("latchwork").run(async () => {})'
# the handler of the page about the SDK, and a use of what it leaves out
sed -n '/^```ts$/,/^```$/{/^```/!p}' "$scratch/node/README.md" >page.ts
[ -s page.ts ]
cat >handler.ts <<'END'
import { run, Retry, type Message } from "latchwork";

await run(async (m: Message, { signal }) => {
  if (Buffer.isBuffer(m.key)) throw new Retry("later", { afterMs: 60000, cause: signal.reason });
});
END
quiet npm install --no-audit --no-fund typescript @types/node
quiet npm pkg set type=module
quiet npx tsc --init
quiet npx tsc -p .
handles node handler.js
echo "$wheel and latchwork-$version.tgz are built and work"
