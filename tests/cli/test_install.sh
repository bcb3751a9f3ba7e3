#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests that `make install` puts every file in its place, that examples build from the installed
# files alone, and that `make uninstall` leaves nothing.
# Usage: tests/cli/test_install.sh [BUILD_DIR]
build=${1:-build}
# shellcheck source=tests/support/check.sh
. tests/support/check.sh
root=$dir/root
prefix=/opt/lw
at=$root$prefix
check 'make install' make --no-print-directory B="$build" DESTDIR="$root" PREFIX=$prefix install
for file in bin/latchwork include/latchwork/handler.h include/latchwork/lock.h lib/liblatchwork.a \
    lib/liblatchwork.so lib/pkgconfig/latchwork.pc \
    lib/systemd/system/latchwork@.service lib/sysusers.d/latchwork.conf \
    lib/tmpfiles.d/latchwork.conf share/man/man1/latchwork.1 share/man/man1/latchwork-queue.1 \
    share/man/man3/latchwork-lock.3 share/man/man5/latchwork.json.5 \
    share/bash-completion/completions/latchwork share/zsh/site-functions/_latchwork \
    share/latchwork/grafana-dashboard.json share/latchwork/prometheus-alerts.yml \
    share/doc/latchwork/tutorial.md share/doc/latchwork/LICENSE \
    share/doc/latchwork/examples/config/exec.json \
    share/doc/latchwork/examples/handlers/count/count.c \
    share/doc/latchwork/examples/lock/inventory/inventory.c \
    share/latchwork/sdk/python/latchwork/__init__.py share/latchwork/sdk/node/latchwork.js \
    share/latchwork/sdk/go/latchwork.go share/doc/latchwork/examples/python-asyncio/handler.py; do
    check "$file is installed" test -s "$at/$file"
done
mkdir "$dir/man"
check 'every man page is installed' \
    sh -c "cp '$at'/share/man/man?/* '$dir/man' && diff -r '$build/man' '$dir/man'"
check 'no placeholder is left' sh -c "! grep -rn '@PREFIX@\|@VERSION@' '$at/lib'"
check 'nothing is named by where it was staged' sh -c "! grep -rlF '$root' '$root'"
check 'the program runs' "$at/bin/latchwork" --version
check 'the addresses of functions are fixed before the program starts' \
    sh -c "readelf -d '$at/bin/latchwork' | grep -q BIND_NOW"
[ "$(uname -m)" != x86_64 ] || check 'calls and jumps to other places than functions are caught' \
    sh -c "objdump -d '$at/bin/latchwork' | grep -q endbr64"
# gcc touches each page of a large frame by an `or` with 0, clang by other instructions
[ "$(uname -m)" != x86_64 ] || check 'no large frame jumps over the page that guards the stack' \
    sh -c "readelf -p .comment '$at/bin/latchwork' | grep -q clang ||
        objdump -d '$at/bin/latchwork' | grep -q 'orq *[$]0x0,(%rsp)'"
check 'the unit starts what is installed' grep \
    -qx "ExecStart=$prefix/bin/latchwork run -c /etc/latchwork/%i.json" \
    "$at/lib/systemd/system/latchwork@.service"
check 'the unit starts no refused worker again' grep -q '^RestartPreventExitStatus=.*78' \
    "$at/lib/systemd/system/latchwork@.service"

# Each relative link of an installed page must lead to an installed file.
find "$root" -name '*.md' | while read -r page; do
    awk '/^```/ { code = !code } !code' "$page" | grep -oE '\]\([^)#: ]+[)#]' |
        sed 's/^..//; s/.$//' | while read -r link; do
        [ -e "$(dirname "$page")/$link" ] || echo "${page#"$at"/}: $link"
    done
done >"$dir/dead-links"
check 'no link of an installed page is dead' diff /dev/null "$dir/dead-links"
check 'pages are linked to the SDKs' grep -q '](../../latchwork/sdk/python/README.md)' \
    "$at/share/doc/latchwork/tutorial-python.md"
check 'README.md is linked to the pages' grep -q '](how-to/install.md)' \
    "$at/share/doc/latchwork/README.md"

# A plugin, and a program with the lock library, must build from the installed files alone.
export PKG_CONFIG_PATH="$at/lib/pkgconfig"
flags=$(pkg-config --define-variable=prefix="$at" --cflags latchwork)
libs=$(pkg-config --define-variable=prefix="$at" --libs latchwork)
check 'a plugin builds' make -s -C "$at/share/doc/latchwork/examples/handlers/count" \
    OUT="$dir/count" CPPFLAGS="$flags"
check 'a program builds' make -s -C "$at/share/doc/latchwork/examples/lock/inventory" \
    OUT="$dir/inventory" CPPFLAGS="$flags" LDLIBS="$libs"
check 'and finds the library by its soname' env LD_LIBRARY_PATH="$at/lib" ldd \
    "$dir/inventory/inventory"
check 'the library is there' sh -c "LD_LIBRARY_PATH='$at/lib' ldd '$dir/inventory/inventory' | grep -q '$at/lib/liblatchwork.so.0'"

# A new handler project must also build from the installed files, and then pass its test.
check 'a project is made' sh -c "cd '$dir' && '$at/bin/latchwork' handler new orders --lang c"
check 'it builds' env PKG_CONFIG_SYSROOT_DIR="$root" make -s -C "$dir/orders"
check 'and passes its test' sh -c "cd '$dir/orders' && '$at/bin/latchwork' handler test -c orders.json"
check 'the Python SDK can be imported' env PYTHONPATH="$at/share/latchwork/sdk/python" \
    PYTHONDONTWRITEBYTECODE=1 python3 -c 'import latchwork'
check 'the Node SDK can be required' node -e "require('$at/share/latchwork/sdk/node')"

# Each function of lock.h must be in both the static and the shared library, and the shared library
# must export nothing else.
sed -n '/^LATCHWORK_API/,/;/p' "$at/include/latchwork/lock.h" | tr '\n' ' ' |
    sed 's/LATCHWORK_API/\n/g' |
    grep -oE 'latchwork_[a-z_]+ *\(' | tr -d ' (' | sort -u >"$dir/declared"
nm -D --defined-only "$at/lib/liblatchwork.so" | awk '{ print $3 }' | sort -u >"$dir/shared"
nm --defined-only "$at/lib/liblatchwork.a" | awk 'NF == 3 { print $3 }' | grep -x 'latchwork_.*' |
    sort -u >"$dir/static"
check 'the shared library exports what lock.h declares' diff "$dir/declared" "$dir/shared"
check 'so does the static one' diff "$dir/declared" "$dir/static"

check 'make uninstall' make --no-print-directory B="$build" DESTDIR="$root" PREFIX=$prefix uninstall
check 'leaves no file' sh -c "[ -z \"\$(find '$root' ! -type d)\" ]"

summary
