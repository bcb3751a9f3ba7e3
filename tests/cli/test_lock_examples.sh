#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the examples inventory, rowlock and redlock. Each example must build from the installed
# header and library, and must keep its promise while many processes run at once.
# Usage: tests/cli/test_lock_examples.sh [BUILD_DIR]
LC_ALL=C
export LC_ALL
build=${1:-build}
# shellcheck source=tests/support/check.sh
. tests/support/check.sh
servers=
trap 'for p in $servers; do kill "$p" 2>/dev/null; done; rm -rf "$dir"' EXIT

make --no-print-directory -s B="$build" DESTDIR="$dir/root" PREFIX=/usr install >"$dir/log" 2>&1 ||
    bad "make install: $(tail -n 3 "$dir/log")"
sed -i "s|^prefix=.*|prefix=$dir/root/usr|" "$dir/root/usr/lib/pkgconfig/latchwork.pc"
for name in inventory rowlock redlock; do
    PKG_CONFIG_PATH="$dir/root/usr/lib/pkgconfig" make --no-print-directory -s -C "examples/$name" \
        OUT="$dir" >"$dir/log" 2>&1 ||
        bad "examples/$name: $(tail -n 3 "$dir/log")"
done
LD_LIBRARY_PATH=$dir/root/usr/lib
export LD_LIBRARY_PATH

urls=
for i in 1 2 3 4 5; do
    "${LW_REDIS_SERVER:-redis-server}" --port 0 --unixsocket "$dir/$i.sock" --save "" --dir "$dir" \
        >"$dir/$i.log" 2>&1 &
    servers="$servers $!"
    urls="$urls unix://$dir/$i.sock"
done
for i in 1 2 3 4 5; do
    n=0
    until [ "$(redis-cli -s "$dir/$i.sock" ping 2>/dev/null)" = PONG ] || [ $n -ge 500 ]; do
        n=$((n + 1))
        sleep 0.02
    done
done

together() { # usage: together COMMAND…. Runs the command four times in parallel.
    pids=
    for _ in 1 2 3 4; do
        "$@" &
        pids="$pids $!"
    done
    for p in $pids; do
        wait "$p"
        equal "$1: exit status" $? 0
    done
}
numbers() { od -An -v -tu8 "$1" | tr -s ' \n' ' '; }

# In the example inventory, 1,000 clients buy from a stock of 100.
said=$("$dir/inventory" "unix://$dir/1.sock" 2>&1)
equal inventory "$said" "1000 clients: sold 100 of 100, 900 went away; 0 left, at the lowest 0"
"$dir/inventory" --no-lock "unix://$dir/1.sock" >"$dir/log" 2>&1 &&
    bad "inventory --no-lock does not oversell"
check "inventory --no-lock oversells" grep -q '^oversold by [1-9]' "$dir/log"

# In the example rowlock, transfers between eight accounts must leave the sum unchanged.
: >"$dir/accounts"
for _ in 1 2 3 4 5 6 7 8; do printf 'd\000\000\000\000\000\000\000' >>"$dir/accounts"; done
together "$dir/rowlock" "unix://$dir/1.sock" 200 "$dir/accounts"
sum=$(od -An -v -td8 "$dir/accounts" | tr -s ' ' '\n' | awk '{ n += $1 } END { print n }')
equal "rowlock: what the accounts hold" "$sum" 800
ok "rowlock: something was transferred" \
    '[ "$(numbers "$dir/accounts")" != " 100 100 100 100 100 100 100 100 " ]'
"$dir/rowlock" 2>/dev/null && bad "rowlock: usage is an error"

# While the example redlock runs, two of the five servers are stopped.
: >"$dir/counter"
(
    sleep 4
    # shellcheck disable=SC2086
    set -- $servers
    kill "$1" "$2"
) &
killer=$!
# shellcheck disable=SC2086
together "$dir/redlock" 20 "$dir/counter" $urls
wait "$killer"
count=$(numbers "$dir/counter" | cut -d ' ' -f 2)
equal "redlock: the counter" "$count" 80

summary
