#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the packages that scripts/packages.txt lists and this machine lacks.
#   usage: deps.sh build|test|plain|check|browser|lint|bench|matrix|chart|image
#
# On Debian and its relatives the script uses apt-get, with sudo only if the user is not root. If
# nothing is missing, the script does nothing and needs no password. On other systems the script
# looks for the programs, headers and libraries themselves, names what is missing, and stops. The
# group matrix builds in chroots, so it does not include the group build; all others do.
# exit: 0 everything is installed, 1 something is missing, 2 usage error
set -eu
group=${1:-build}
case $group in
build | test | plain | check | browser | lint | bench | matrix | chart | image) ;;
*)
    echo "deps: unknown group \"$group\"; use build, test, plain, check, browser, lint, bench, matrix, chart or image" >&2
    exit 2
    ;;
esac
list=$(dirname "$0")/packages.txt

# Prints the packages of the requested groups, one package per line as "PACKAGE HOW".
# The group check includes the group plain, which includes the group test.
wanted() {
    awk -v g="$group" '/^[a-z]/ && ($1 == g || ($1 == "build" && g != "matrix") ||
        ($1 == "plain" && g == "check") || ($1 == "test" && g ~ /^(plain|check)$/)) \
        {print $2, $3}' \
        "$list"
}

# Succeeds if the package is on this machine, no matter how it was installed.
found() { # usage: found HOW; packages.txt lists the values of HOW
    case $1 in
    cmd:* | any:*) command -v "${1#*:}" >/dev/null 2>&1 ;;
    pc:*) pkg-config --exists "${1#pc:}" 2>/dev/null ;;
    h:*) printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <%s>\n' "${1#h:}" |
        ${CC:-cc} -E -x c - >/dev/null 2>&1 ;;
    py:*) python3 -c "import ${1#py:}" >/dev/null 2>&1 ;;
    *) false ;;
    esac
}

missing_here() { # prints the missing packages on a system without dpkg and apt-get
    wanted | while read -r package how; do
        found "$how" || printf ' %s (%s)' "$package" "$how"
    done
}

missing_packages() {
    wanted | while read -r package how; do
        case $how in any:*) if found "$how"; then continue; fi ;; esac
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            printf ' %s' "$package"
    done
}

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    missing=$(missing_here)
    [ -n "$missing" ] || exit 0
    echo "deps: missing (Debian package names; install their equivalents):$missing" >&2
    exit 1
fi
missing=$(missing_packages)
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || {
        echo "deps: run as root, or install:$missing" >&2
        exit 1
    }
    as_root=sudo
fi

# The package redis-server would start a server on port 6379. Latchwork uses only private servers,
# so the file $guard prevents apt from starting one.
# tests/cli/test_deps.sh sets LW_POLICY_RC to another path
guard=${LW_POLICY_RC:-/usr/sbin/policy-rc.d}
guarded=
if [ ! -e "$guard" ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$guard" >/dev/null
    $as_root chmod 755 "$guard"
    guarded=1
fi
trap '[ -z "$guarded" ] || $as_root rm -f "$guard"' EXIT
trap 'exit 130' INT TERM

echo "deps: installing$missing"
$as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
# shellcheck disable=SC2086 # a list of names
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install \
    -y -qq --no-install-recommends $missing >/dev/null
