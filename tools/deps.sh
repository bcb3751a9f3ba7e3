#!/bin/sh
# Installs what tools/packages.txt lists and this machine lacks. usage: deps.sh build|test
# Uses apt-get, with sudo only when not root. Does nothing, and asks for nothing, when all is there.
set -eu
group=${1:-build}
list=$(dirname "$0")/packages.txt
want=$(awk -v g="$group" '/^[a-z]/ && ($1 == "build" || $1 == g) {print $2}' "$list")
missing=
for p in $want; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "deps: these Debian packages are missing and there is no apt-get here; install their equivalents:$missing" >&2
    exit 1
fi
run=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "deps: run as root, or install:$missing" >&2; exit 1; }
    run=sudo
fi
# A package's own redis-server must not start on this machine: only private ones are used.
guard=
if [ ! -e /usr/sbin/policy-rc.d ] && [ -z "$run" ]; then
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d && guard=1
fi
trap '[ -z "$guard" ] || rm -f /usr/sbin/policy-rc.d' EXIT
echo "deps: installing$missing"
$run env DEBIAN_FRONTEND=noninteractive apt-get update -qq
# shellcheck disable=SC2086
$run env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
