#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests `latchwork dev` end to end, on servers that the command starts itself. The demo must exit
# with status 0, and the figures in its table must agree with its database and its journal. With
# --faults there must be ten dead letters and a stuck key. With --tenants the small tenants' orders
# must go through while the flood waits, and a paused tenant must not run. `dev` must print rows of
# figures, must survive a kill -9 of a worker, and after SIGINT must leave no process and no folder.
# Usage: tests/cli/test_dev.sh [BUILD_DIR]
# No test asserts how long something takes. Time limits only turn a hang into a failure.
LC_ALL=C.UTF-8
export LC_ALL
unset NO_COLOR LATCHWORK_JOURNAL
program=$(pwd)/${1:-build}/latchwork
[ -x "$program" ] || { echo "no program at $program"; exit 1; }
# shellcheck source=tests/support/check.sh
. tests/support/check.sh
# `latchwork dev` makes its folders in TMPDIR. The test checks that none is left behind.
TMPDIR=$dir
export TMPDIR
running=
trap '[ -z "$running" ] || kill "$running" 2>/dev/null; [ -z "$running" ] || wait "$running"; rm -rf "$dir"' EXIT

figure() { sed -n "s/^  $1  *\([0-9,]*\) .*/\1/p" "$dir/out" | tr -d ,; }
folders() { find "$dir" -mindepth 1 -maxdepth 1 -name 'latchwork-dev-*'; }
left_behind() { # usage: left_behind PID…. Prints the ids of the given processes that still run.
    for pid in "$@"; do
        if [ -e "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; then
            echo "$pid"
        fi
    done
}
# usage: await COMMAND…. Waits until the command succeeds, and fails if it does not within 120 s.
await() {
    i=0
    until "$@"; do
        [ $i -lt 1200 ] || return 1
        sleep 0.1
        i=$((i + 1))
    done
}
gone() { [ -z "$(left_behind "$@")" ]; }
says() { # usage: says PATTERN. A line of the output matches PATTERN, or the command has ended.
    grep -Eq "$1" "$dir/out" || ! kill -0 "$running" 2>/dev/null
}
wait_for() { await says "$1" && grep -Eq "$1" "$dir/out"; } # usage: wait_for PATTERN
# usage: start OPTION…. Empties the file for the output, and starts `latchwork dev` in the
# background.
start() {
    : >"$dir/out"
    "$program" dev "$@" >>"$dir/out" 2>"$dir/err" &
    running=$!
}
has() { [ "$(descendants "$1" | wc -l)" -eq "$2" ]; } # usage: has PID NUMBER-OF-DESCENDANTS
has_a_new_one() { descendants "$running" | grep -qvxF "$everyone"; }
# usage: descendants PID. Prints the ids of all descendants of the process.
descendants() {
    # shellcheck disable=SC2013 # the list is words on one line
    for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
        echo "$child"
        descendants "$child"
    done
}
# usage: end_dev NAME [PID…]. Ends the dev that runs, which must leave none of its processes behind,
# nor those named.
end_dev() {
    name=$1
    shift
    everyone="$* $(descendants $running)"
    kill -INT $running
    wait $running
    equal "$name after SIGINT" $? 0
    running=
    # shellcheck disable=SC2086
    check "no process is left behind by $name" await gone $everyone
}

# --- usage ----------------------------------------------------------------------------------------
"$program" dev --help >"$dir/out" 2>"$dir/err"
equal "dev --help" $? 0
for wrong in "--workers 0" "--workers x" "--rate 0" "--demo --workers 2" "--demo --faults" \
    "--faults --tenants" "--nonsense" "word" "--rate"; do
    # shellcheck disable=SC2086
    "$program" dev $wrong >"$dir/out" 2>"$dir/err"
    equal "dev $wrong" $? 2
    grep -q '^latchwork dev: ' "$dir/err"
    ok "dev $wrong says why" "[ $? -eq 0 ]"
done
PATH=/nonexistent "$program" dev >"$dir/out" 2>"$dir/err"
equal "dev without redis-server" $? 1
grep -q 'apt-get install redis-server' "$dir/err"
ok "dev without redis-server names the package" "[ $? -eq 0 ]"
equal "folders left behind by a start that failed" "$(folders)" ""

# --- the demo -------------------------------------------------------------------------------------
"$program" dev --demo --keep >"$dir/out" 2>"$dir/err"
equal "the demo" $? 0
grep -q '^  page  *http' "$dir/out"
ok "the demo names its page" "[ $? -eq 0 ]"
home=$(folders)
equal "messages produced" "$(figure 'messages produced')" 20000
equal "rows inserted" "$(figure 'rows inserted')" 2000
equal "duplicates ignored" "$(figure 'duplicates ignored')" 18000
for name in overlaps lost misordered; do equal "$name" "$(figure $name)" 0; done
[ "$(figure parked)" -gt 0 ]
ok "workers met at keys" "[ $? -eq 0 ]"
# A worker that is killed counts what it drained, but not what it had not told yet.
[ "$(figure drained)" -gt 0 ]
ok "what was parked was drained" "[ $? -eq 0 ]"
grep -q 'was killed with -9' "$dir/out" && grep -q 'was replaced by process' "$dir/out"
ok "a worker was killed and replaced" "[ $? -eq 0 ]"
equal "rows, by SQLite" \
    "$(sqlite3 "$home/orders.db" 'select count(*), count(distinct id) from orders')" "2000|2000"
equal "messages done, by the journal" \
    "$(awk '$1 == "end" && $8 == "done" {print $4}' "$home/journal" | sort -u | wc -l)" 20000
# How many of the five workers were fast enough to get messages depends on the machine.
ok "several processes ran handlers, by the journal" \
    "[ $(awk '{print $3}' "$home/journal" | sort -u | wc -l) -gt 1 ]"
# shellcheck disable=SC2046
check "no process is left behind" await gone $(awk '{print $3}' "$home/journal" | sort -u)
rm -rf "$home"

# --- dev, and Ctrl-C ------------------------------------------------------------------------------
start --workers 2 --rate 300
wait_for 'rows [1-9]'
ok "dev shows rows" "[ $? -eq 0 ]"
home=$(folders)
[ -S "$home/redis.sock" ] && [ -f "$home/latchwork.json" ]
ok "dev shows what is where" "[ $? -eq 0 ]"
"$program" check -c "$home/latchwork.json" >"$dir/check" 2>&1
equal "check of the configuration that is shown" $? 0
check "redis, broker, traffic, supervisor, metrics, two workers" await has $running 7
everyone=$(descendants $running)
worker=$(sed -n 's/^  workers   *\([0-9]*\) .*/\1/p' "$dir/out")
echo "$everyone" | grep -qx "$worker"
ok "the pids that are shown are ours" "[ $? -eq 0 ]"
kill -9 "$worker"
check "a killed worker is replaced" await has_a_new_one
check "by one" await has $running 7
# shellcheck disable=SC2086
end_dev dev $everyone
equal "folders left behind by dev" "$(folders)" ""
[ ! -s "$dir/err" ]
ok "dev has nothing to complain about" "[ $? -eq 0 ]"

# --- if the coordinator is killed, its children must end, too -------------------------------------
start --workers 2 --rate 2
wait_for 'rows [1-9]'
ok "dev produces less than an order per burst" "[ $? -eq 0 ]"
check "redis, broker, traffic, supervisor, metrics, two workers, once more" await has $running 7
everyone=$(descendants $running)
kill -9 $running
wait $running 2>/dev/null
running=
# shellcheck disable=SC2086
check "no process outlives its coordinator" await gone $everyone

# --- dev with faults ------------------------------------------------------------------------------
start --faults
wait_for 'waiting [1-9].* dead 10$'
ok "ten dead letters, and messages that wait" "[ $? -eq 0 ]"
page=$(sed -n 's,^  page  *\(http.*\)/#/?token=.*,\1,p' "$dir/out")
key=$(curl -sS "$page/api/v1/lanes/customer-7")
echo "$key" | grep -q '"key":"customer-7".*"holder":"'
ok "the stuck key has a holder: $key" "[ $? -eq 0 ]"
end_dev "dev --faults"

# --- dev with tenants -----------------------------------------------------------------------------
# usage: tenant NAME FIELD. Prints the number of orders of a tenant that are done (FIELD 2), or that
# were produced (FIELD 4), by the last line.
tenant() {
    tail -n 1 "$dir/out" | tr -d , | sed -n "s/.*  \\($1 [0-9]* of [0-9]*\\).*/\\1/p" |
        cut -d ' ' -f "$2"
}
# usage: at_least LEAST NUMBER. False if there is no number.
at_least() { [ "${2:-0}" -ge "$1" ]; }
floods() {
    at_least $(($(tenant acme 2) + 300)) "$(tenant acme 4)" && at_least 30 "$(tenant birch 2)" &&
        at_least $(($(tenant birch 4) - 15)) "$(tenant birch 2)"
}
has_done() { at_least "$2" "$(tenant "$1" 2)"; } # usage: has_done TENANT LEAST
start --tenants
check "the flood waits, and the orders of a small tenant are done" await floods
config=$(sed -n 's/^  config  *//p' "$dir/out")
"$program" group ls -c "$config" >"$dir/ls" 2>&1
equal "group ls" $? 0
ok "group ls shows that its keys wait: $(grep '^acme ' "$dir/ls")" \
    "at_least 1 $(awk '$1 == "acme" {print $3}' "$dir/ls")"
"$program" group pause acme -c "$config" >"$dir/ls" 2>&1
equal "group pause" $? 0
check "a small tenant goes on" await has_done birch $(($(tenant birch 2) + 10))
paused_at=$(tenant acme 2)
check "and on" await has_done birch $(($(tenant birch 2) + 10))
equal "orders of a paused tenant" "$(tenant acme 2)" "$paused_at"
"$program" group resume acme -c "$config" >"$dir/ls" 2>&1
equal "group resume" $? 0
check "it goes on after resume" await has_done acme $((paused_at + 1))
end_dev "dev --tenants"

summary
