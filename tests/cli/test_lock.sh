#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests `latchwork lock` on private redis-servers: exit statuses, output, signals, loss of the lock,
# lanes of an application, plain locks shared with redis-py, and the inventory example.
# Usage: tests/cli/test_lock.sh [BUILD_DIR]
# No test asserts how long something takes. Time limits only turn a hang into a failure.
LC_ALL=C.UTF-8
export LC_ALL
unset NO_COLOR
build=${1:-build}
case $build in /*) ;; *) build=$(pwd)/$build ;; esac
program=$build/latchwork
[ -x "$program" ] || { echo "no program at $program"; exit 1; }
tests=$(pwd)/tests/cli
# shellcheck source=tests/support/check.sh
. tests/support/check.sh
server=
# shellcheck disable=SC2329
end() {
    for pid in $server $(cat "$dir"/*.pid 2>/dev/null); do
        kill -CONT "$pid" 2>/dev/null
        kill -9 "$pid" 2>/dev/null
    done
    rm -rf "$dir"
}
trap end EXIT
trap "exit 130" INT TERM
url=unix://$dir/redis.sock
cli() { redis-cli -s "$dir/redis.sock" "$@"; }
start_redis() {
    "${LW_REDIS_SERVER:-redis-server}" --port 0 --unixsocket "$dir/redis.sock" --save '' \
        --dir "$dir" --logfile "$dir/redis.log" &
    server=$!
    until_true "redis answers" "[ \"\$(cli ping 2>/dev/null)\" = PONG ]"
}
# usage: until_true NAME CONDITION. Waits at most 20 s until the condition is true.
until_true() {
    i=0
    while ! eval "$2"; do
        i=$((i + 1))
        if [ $i -gt 400 ]; then bad "$1: never came true"; return 1; fi
        sleep 0.05
    done
}
lock() { (cd "$dir" && timeout 60 "$program" lock "$@") >"$dir/out" 2>"$dir/err" </dev/null; }
# usage: t NAME STATUS STDOUT STDERR ARGUMENT…
# Runs `latchwork lock`, which must end with STATUS. STDOUT and STDERR are patterns (ERE). The
# pattern "" means that the output must be empty.
t() {
    name=$1 want=$2 out=$3 err=$4
    shift 4
    lock "$@"
    ends_with "$want" "$out" "$err" "$name" $?
}
# usage: background NAME ARGUMENT…
# Starts a command in the background. The variable $held gets its pid, and `wait $held` returns its
# exit status. A shell makes background programs ignore INT and QUIT, so both signals are reset to
# their defaults.
background() {
    name=$1
    shift
    (cd "$dir" && exec env --default-signal=INT,QUIT "$program" lock "$@") >"$dir/$name.out" \
        2>"$dir/$name.err" </dev/null &
    held=$!
    echo $held >"$dir/$name.pid"
}
# usage: ended NAME STATUS. Waits until the last background command, which has this NAME, ends. Its
# exit status must be STATUS.
ended() {
    # shellcheck disable=SC2086 # a list of processes
    wait $held
    status=$?
    rm -f "$dir/$1.pid"
    cp "$dir/$1.out" "$dir/out"
    cp "$dir/$1.err" "$dir/err"
    equal "$1: exit status" $status "$2"
}
json() { python3 -c 'import json, sys
for line in sys.stdin: print(eval(sys.argv[1], {"o": json.loads(line)}))' "$1" <"$dir/out"; }

cat >"$dir/app.json" <<END
{ "name": "app", "kafka": { "topics": ["orders"] }, "redis": { "url": "$url", "shards": 3 },
  "lock": { "ttl_ms": 2000 },
  "handler": { "type": "exec", "command": ["cat"] } }
END
echo '{ "kafka": { "topics": [] } }' >"$dir/wrong.json"

# --- usage ----------------------------------------------------------------------------------------
t "no verb"               2 "" "exec, ls, show or break" -c app.json
t "unknown verb"          2 "" "unknown verb list" list
t "help"                  0 "^usage: latchwork lock exec" "" exec --help
t "no KEY"                2 "" "KEY is missing; usage: latchwork lock exec KEY" \
    exec --redis "$url" -- true
t "no command"            2 "" "the command is missing; put it after --" exec k --redis "$url"
t "nothing behind --"     2 "" "the command is missing; put it after --" exec k --redis "$url" --
t "command without --"    2 "" "put the command after --" exec k true --redis "$url"
t "neither -c nor --redis" 2 "" "either -c FILE or --redis" ls
t "both"                  2 "" "either -c FILE or --redis" ls -c app.json --redis "$url"
t "another verb's option" 2 "" "unknown option --ttl" show k --redis "$url" --ttl 50
t "bad number"            2 "" "soon: expected a number from" \
    exec k --redis "$url" --ttl soon -- true
t "bad url"               2 "" "rediss:// or unix://" ls --redis http://x
t "bad configuration"     2 "" "kafka.topics" ls -c wrong.json
t "--plain with -c"       2 "" "--plain needs --redis" show k -c app.json --plain
t "--plain without --match" 2 "" "--match GLOB" ls --redis "$url" --plain
t "--set"                 2 "" "at most lock.ttl_ms, 1500 ms" \
    exec k -c app.json --set lock.ttl_ms=1500 --ttl 1600 -- true
t "--set before the verb" 2 "" "at most lock.ttl_ms, 1500 ms" \
    --set lock.ttl_ms=1500 exec k -c app.json --ttl 1600 -- true
t "--set, wrong"          2 "" "nosuch" show k -c app.json --set nosuch.key=1
t "--set with --redis"    2 "" "--set needs -c" show k --redis "$url" --set lock.ttl_ms=1500
t "lease above the lanes'" 2 "" "at most lock.ttl_ms, 2000 ms" exec k -c app.json --ttl 2001 -- true
t "no server: exec"       1 "" "Redis at unix" exec k --redis "$url" -- true
t "no server: ls"         1 "" "Redis at unix" ls --redis "$url"
t "no server: show"       1 "" "Redis at /" show k -c app.json

start_redis

# --- exec: exit statuses --------------------------------------------------------------------------
t "status 0"              0 "^hello$" "" exec k --redis "$url" -- echo hello
t "the command's status"  7 "" "" exec k --redis "$url" -- sh -c 'exit 7'
t "ended by a signal"     137 "" "" exec k --redis "$url" -- sh -c 'kill -9 $$'
t "not found"             127 "" "nosuch: No such file" exec k --redis "$url" -- nosuch
t "cannot be run"         126 "" "Permission denied" exec k --redis "$url" -- "$dir/app.json"
t "options anywhere"      0 "^-x$" "" --redis "$url" exec --wait 0 k --ttl 5000 -- echo -x
t "the fence is set"      0 "^[0-9]{16}$" "" exec k --redis "$url" -- sh -c 'echo $LATCHWORK_FENCE'
before=$(cat "$dir/out")
t "the fence is set again" 0 "^[0-9]{16}$" "" exec k --redis "$url" -- sh -c 'echo $LATCHWORK_FENCE'
ok "the fence grows" '[ "$(cat "$dir/out")" -gt "$before" ]'
equal "released at the end" "$(cli exists 'lwl:{k}:lock')" 0
ok "a group of its own" 'lock exec k --redis "$url" -- sh -c "ps -o pgid= -p \$\$; echo \$\$" && [ "$(sed -n 1p "$dir/out" | tr -d " ")" = "$(sed -n 2p "$dir/out")" ]'

# --- exec: another program holds the lock ---------------------------------------------------------
background holder exec k --redis "$url" --ttl 3000 \
    -- sh -c 'echo on >on; while [ ! -e go ]; do sleep 0.05; done'
until_true "the holder runs" '[ -e "$dir/on" ]'
t "busy"                  75 "" "could not be locked within 0 ms" exec k --redis "$url" -- touch ran
ok "busy: who holds it is told" 'grep -q "held by .*\.$held, [0-9]* ms" "$dir/err"'
t "busy, waiting in vain" 75 "" "within 200 ms" exec k --redis "$url" --wait 200 -- touch ran
ok "busy: the command was not run" '[ ! -e "$dir/ran" ]'
t "ls"                    0 "^k +mutex +[^ ]+\.$held " "" ls --redis "$url"
t "ls --match: not this"  0 "" "" ls --redis "$url" --match 'x*'
t "ls --without-ttl: none" 0 "" "" ls --redis "$url" --without-ttl
t "show"                  0 "^until .*in [0-9.]+ s" "" show k --redis "$url"
t "show: free"            0 "^other: nobody holds it" "" show other --redis "$url"
lock show k --redis "$url" --json
equal "show --json" "$(json '(o["key"], o["kind"], o["held"], o["fence"] // 1000 == o["since_ms"],
    0 < o["left_ms"] <= 3000, o["waiting"])')" "('k', 'mutex', True, True, True, 0)"
lock ls --redis "$url" --json
equal "ls --json" "$(json 'o["key"], o["token"].startswith(o["holder"] + "/")')" "('k', True)"
background waiter exec k --redis "$url" --wait 30000 -- echo mine
until_true "it waits" '[ "$(cli zcard "lwl:{k}:wait")" = 1 ]'
lock show k --redis "$url" --json
equal "show tells of waiters" "$(json 'o["waiting"]')" 1
touch "$dir/go"
ended waiter 0
ok "the waiter ran" 'grep -q mine "$dir/out"'
held=$(cat "$dir/holder.pid")
ended holder 0
rm -f "$dir/on" "$dir/go"

# The command lasts for several leases, so the lock must be renewed several times.
t "renewed"               0 "" "" exec k --redis "$url" --ttl 300 -- sleep 1.2

# --- exec: signals --------------------------------------------------------------------------------
for sig in INT TERM HUP QUIT USR1 USR2; do
    background "on $sig" exec k --redis "$url" \
        -- sh -c "trap 'echo got $sig; exit 9' $sig; echo on; while :; do sleep 0.05; done"
    until_true "$sig: it runs" 'grep -qs on "$dir/on $sig.out"'
    kill -$sig $held
    ended "on $sig" 9
    ok "$sig is passed on" "grep -q 'got $sig' '$dir/out'"
done
background "killed" exec k --redis "$url" -- sh -c 'echo $$ >group; sleep 1000'
until_true "it runs" '[ -s "$dir/group" ]'
kill -TERM $held
ended "killed" 143
equal "released after a signal" "$(cli exists 'lwl:{k}:lock')" 0
background "stopped" exec k --redis "$url" \
    -- sh -c 'echo on; i=0; while [ ! -e stop.go ]; do sleep 0.05; done; echo end'
until_true "it runs" 'grep -qs on "$dir/stopped.out"'
kill -TSTP $held
until_true "TSTP stops it too" 'grep -q "^State:.T" /proc/$held/status'
touch "$dir/stop.go"
kill -CONT $held
ended "stopped" 0
ok "CONT goes on" 'grep -q end "$dir/out"'
cli set 'lwl:{k}:lock' someone >/dev/null
background "waits" exec k --redis "$url" --wait -1 -- touch ran
until_true "it waits" '[ "$(cli zcard "lwl:{k}:wait")" = 1 ]'
kill -TERM $held
ended "waits" 143
ok "ended while waiting: the command was not run" '[ ! -e "$dir/ran" ]'
cli del 'lwl:{k}:lock' >/dev/null

# The command must be able to read from the terminal. Ctrl-Z must stop both the command and
# `latchwork lock`. Both must continue when they are put into the foreground. Ctrl-C must end the
# command.
cat >"$dir/terminal.py" <<'END'
import os, pty, signal, sys, time
pid, fd = pty.fork()
# The child acts as a shell with job control: it has its own session and gives each job its own
# process group.
if pid == 0:
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execvp(sys.argv[1], sys.argv[1:])
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    _, status = os.waitpid(job, os.WUNTRACED)
    print('job stopped' if os.WIFSTOPPED(status) else 'job ended', flush=True)
    os.tcsetpgrp(0, job)
    os.kill(-job, signal.SIGCONT)
    _, status = os.waitpid(job, 0)
    os.tcsetpgrp(0, os.getpgrp())
    print('status', os.WEXITSTATUS(status), flush=True)
    os._exit(0)
seen = b''
def expect(text):
    global seen
    while text not in seen:
        try: more = os.read(fd, 1000)
        except OSError: more = b''
        if not more: sys.exit('no %r in %r' % (text, seen))
        seen += more
    seen = seen[seen.index(text) + len(text):]
expect(b'ready')
os.write(fd, b'one\n'); expect(b'got one')
os.write(fd, b'\x1a'); expect(b'job stopped')
os.write(fd, b'two\n'); expect(b'got two')
os.write(fd, b'\x03'); expect(b'status 130')
print('as a shell expects')
END
timeout 60 python3 "$dir/terminal.py" "$program" lock exec k --redis "$url" -- \
    python3 -u -c 'import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); print("ready")
while True: print("got", input())' >"$dir/out" 2>"$dir/err"
ok "on a terminal" 'grep -q "as a shell expects" "$dir/out"'

# If `latchwork lock` is killed, the command that it runs must also end.
rm -f "$dir/group"
background "dies" exec k --redis "$url" -- sh -c 'echo $$ >group; sleep 1000 & wait'
until_true "it runs" '[ -s "$dir/group" ]'
kill -9 $held
wait $held 2>/dev/null
rm -f "$dir/dies.pid"
until_true "kill -9: the whole group ends" '! pgrep -g "$(cat "$dir/group")" >/dev/null' && good
cli del 'lwl:{k}:lock' >/dev/null

# --- exec: the lock is lost -----------------------------------------------------------------------
background "lost" exec k --redis "$url" --ttl 600 -- sh -c 'echo on; exec sleep 1000'
until_true "it runs" 'grep -qs on "$dir/lost.out"'
cli del 'lwl:{k}:lock' >/dev/null
ended "lost" 143
ok "lost is told" 'grep -q "the lock is lost: it was broken, taken or wiped" "$dir/err"'
background "lost, deaf" exec k --redis "$url" --ttl 600 --kill-after 100 \
    -- sh -c 'trap "" TERM; echo on; while :; do sleep 0.05; done'
until_true "it runs" 'grep -qs on "$dir/lost, deaf.out"'
cli set 'lwl:{k}:lock' thief xx px 60000 >/dev/null
ended "lost, deaf" 137
equal "the thief's lock stands" "$(cli getdel 'lwl:{k}:lock')" thief
background "lost, polite" exec k --redis "$url" --ttl 600 \
    -- sh -c 'trap "exit 0" TERM; echo on; while :; do sleep 0.05; done'
until_true "it runs" 'grep -qs on "$dir/lost, polite.out"'
cli flushall >/dev/null
ended "lost, polite" 1
rm -f "$dir/group"
background "frozen" exec k --redis "$url" --ttl 900 -- sh -c 'echo $$ >group; sleep 1000 & wait'
until_true "it runs" '[ -s "$dir/group" ]'
kill -STOP "$server"
until_true "Redis frozen: the whole group ends" '! pgrep -g "$(cat "$dir/group")" >/dev/null' &&
    good
kill -CONT "$server"
ended "frozen" 143
ok "frozen is told" 'grep -q "could not be renewed in time" "$dir/err"'
background "vanishes" exec k --redis "$url" --ttl 60000 \
    -- sh -c 'echo on; while [ ! -e gone ]; do sleep 0.05; done'
until_true "it runs" 'grep -qs on "$dir/vanishes.out"'
cli del 'lwl:{k}:lock' >/dev/null
touch "$dir/gone"
ended "vanishes" 1
ok "lost unnoticed is told at the end" 'grep -q "lost before the command ended" "$dir/err"'
cli flushall >/dev/null

# The command `lock ls` must leave out keys that are not Latchwork's locks.
background "beside" exec k --redis "$url" \
    -- sh -c 'echo on; while [ ! -e beside.go ]; do sleep 0.05; done'
until_true "it runs" 'grep -qs on "$dir/beside.out"'
for what in lock write read permits; do cli lpush "lwl:{a}:$what" x >/dev/null; done
t "ls: foreign keys"      0 "^k " "skipped 4 keys of another Redis type" ls --redis "$url"
cli lpush 'lwl:{k}:wait' x >/dev/null
t "ls: who waits for it"  0 "^k " "skipped 4 keys" ls --redis "$url"
# The background `lock exec` still runs. It notices the loss of the lock at the latest when it
# releases the lock.
cli flushall >/dev/null
touch "$dir/beside.go"
ended "beside" 1

# --- break, and locks without a TTL ---------------------------------------------------------------
t "break: nobody"         0 "nobody holds it" "" break k --redis "$url" --execute
background "broken" exec k --redis "$url" --ttl 600 \
    -- sh -c 'echo $LATCHWORK_FENCE; exec sleep 1000'
until_true "it runs" '[ -s "$dir/broken.out" ]'
t "break: dry run"        0 "would break k \(mutex\), held by .*use --execute to apply" "" \
    break k --redis "$url"
equal "dry run: nothing done" "$(cli exists 'lwl:{k}:lock')" 1
lock break k --redis "$url" --execute --json
fence=$(json 'o["fence"] if o["broken"] else 0')
ended "broken" 143
ok "break raises the fence" '[ "$fence" -gt "$(cat "$dir/out")" ]'
t "the next fence is larger" 0 "^larger$" "" \
    exec k --redis "$url" -- sh -c "[ \$LATCHWORK_FENCE -gt $fence ] && echo larger"
cli set 'lwl:{old}:lock' left-behind >/dev/null
t "ls --without-ttl"      0 "^old +mutex +left-behind .* never" "" ls --redis "$url" --without-ttl
t "exec: without a TTL"   75 "" "without a TTL, which never ends" exec old --redis "$url" -- true
t "show: without a TTL"   0 "^until +never" "" show old --redis "$url"
t "set-ttl: dry run"      0 "never" "would give it a TTL of 50 ms" \
    show old --redis "$url" --set-ttl 50
equal "set-ttl: nothing done" "$(cli pttl 'lwl:{old}:lock')" -1
t "set-ttl"               0 "never" "its TTL is 50 ms now" \
    show old --redis "$url" --set-ttl 50 --execute
until_true "it has ended" '[ "$(cli exists "lwl:{old}:lock")" = 0 ]' && good
cli eval 'for i = 1, 700 do redis.call("SET", "lwl:{n" .. i .. "}:lock", "x/y:1", "PX", 60000) end' 0 >/dev/null
lock ls --redis "$url" --json
ok "ls: all of 700" '[ "$(sort -u "$dir/out" | wc -l)" -eq 700 ]'
lock ls --redis "$url" --json --limit 5 --match 'n1*'
ok "ls --limit --match" '[ "$(grep -c "\"key\":\"n1" "$dir/out")" -eq 5 ] && [ "$(wc -l <"$dir/out")" -eq 5 ]'
ok "ls never calls KEYS" '! cli info commandstats | grep -q "^cmdstat_keys:"'
cli flushall >/dev/null

# --- locks of lanes (-c) --------------------------------------------------------------------------
t "a new Redis is in quarantine" 75 "" "quarantine for another" exec c-17 -c app.json -- true
t "and not for ever"      0 "^[0-9]{16}$" "" \
    exec c-17 -c app.json --wait 30000 -- sh -c 'echo $LATCHWORK_FENCE'
background "lane" exec c-17 -c app.json \
    -- sh -c 'echo $LATCHWORK_FENCE; while [ ! -e lane.go ]; do sleep 0.05; done'
until_true "it runs" '[ -s "$dir/lane.out" ]'
lane=$(cli --scan --pattern 'lw:{app.*}:lock:c-17')
tag=${lane%lock:c-17}
equal "the lane lives where the workers look: low half of XXH3 (d15750ae) mod 3" "$tag" \
    "lw:{app.1}:"
ok "the value is TOKEN:FENCE" '[ "$(cli get "$lane" | sed "s/.*://")" = "$(cat "$dir/lane.out")" ]'
equal "the fence is the shard's" "$(cli get "${tag}fence")" "$(cat "$dir/lane.out")"
ok "with an end" '[ "$(cli pttl "$lane")" -gt 0 ]'
t "a held lane"           75 "" "held by" exec c-17 -c app.json -- true
t "another lane is free"  0 "" "" exec c-18 -c app.json --wait 10000 -- true
cli lpush "${tag}wait:c-17" message >/dev/null
cli zadd "${tag}lanes" 99999999999999 c-17 >/dev/null
lock ls -c app.json --json
equal "ls -c" "$(json 'o["key"], o["kind"], o["waiting"], o["held"]')" "('c-17', 'lane', 1, True)"
t "ls -c, for people"     0 "^c-17 +lane +[^ ]+\.$held .* 1$" "" ls -c app.json
t "show -c"               0 "^waiting +1$" "" show c-17 -c app.json
equal "no hint while it is held" "$(cli llen "${tag}ready")" 0
touch "$dir/lane.go"
ended "lane" 0
equal "released" "$(cli exists "$lane")" 0
equal "the release hints that messages wait" "$(cli lrange "${tag}ready" 0 -1)" c-17
cli del "${tag}ready" >/dev/null
t "it competes with what waits" 0 "" "" exec c-17 -c app.json -- true
cli del "${tag}ready" "${tag}wait:c-17" "${tag}lanes" >/dev/null
t "no waiters, no hint"   0 "" "" exec c-17 -c app.json -- true
equal "no waiters, no hint" "$(cli exists "${tag}ready")" 0
cli sadd "${tag}paused" c-17 >/dev/null
t "a paused lane"         75 "" "paused" exec c-17 -c app.json -- true
t "--paused"              0 "" "" exec c-17 -c app.json --paused -- true
t "show: paused"          0 "nobody holds it; paused" "" show c-17 -c app.json
cli del "${tag}paused" >/dev/null
cli set "$lane" backoff px 60000 >/dev/null
t "a backoff is a lock"   75 "" "held by" exec c-17 -c app.json -- true
t "ls tells of a backoff" 0 "^c-17 +backoff +\(backoff\) " "" ls -c app.json
cli set "$lane" host-12-abcd.7:1763671234567890 px 60000 >/dev/null
cli zadd "${tag}lanes" 99999999999999 c-17 >/dev/null
t "a worker holds it"     0 "^holder +host-12-abcd$" "" show c-17 -c app.json
t "break -c: dry run"     0 "would break c-17 \(lane\), held by host-12-abcd" "" \
    break c-17 -c app.json
equal "dry run: nothing done" "$(cli exists "$lane")" 1
before=$(cli get "${tag}fence")
t "break -c"              0 "broke c-17 .*the fence is [0-9]+ now" "" \
    break c-17 -c app.json --execute
equal "the lock is gone" "$(cli exists "$lane")" 0
ok "the fence is raised" '[ "$(cli get "${tag}fence")" -gt "$before" ]'
equal "the lane is told to go on" "$(cli lrange "${tag}ready" 0 -1)" c-17
ok "the audit knows" 'cli xrange "${tag}audit" - + | grep -q "host-12-abcd.7:1763671234567890"'
cli del "${tag}lanes" "${tag}ready" >/dev/null
background "epoch" exec c-17 -c app.json \
    -- sh -c 'echo on; while [ ! -e epoch.go ]; do sleep 0.05; done'
until_true "it runs" 'grep -qs on "$dir/epoch.out"'
# Start another epoch, as a worker would. The lock stays in Redis, so every client still sees it.
cli hset "${tag}epoch" id another >/dev/null
touch "$dir/epoch.go"
ended "epoch" 0
cli hset "${tag}epoch" group_id theirs >/dev/null
t "another schema"        2 "" 'run with group.id=theirs, this configuration has app' \
    exec c-17 -c app.json -- true
cli hdel "${tag}epoch" group_id >/dev/null
long=$(printf '%0600d' 0)
background "long" exec "$long" -c app.json --wait 10000 \
    -- sh -c 'echo on; while [ ! -e long.go ]; do sleep 0.05; done'
until_true "it runs" 'grep -qs on "$dir/long.out"'
ok "a long key is hashed as the workers do" \
    'cli --scan --pattern "lw:{app.*}:lock:*" | grep -q "long:[0-9a-f]\{32\}"'
touch "$dir/long.go"
ended "long" 0

# --- plain locks: shared with redis-py's Lock, both ways ------------------------------------------
background "plain" exec stock --redis "$url" \
    --plain -- sh -c 'echo on; while [ ! -e plain.go ]; do sleep 0.05; done'
until_true "it runs" 'grep -qs on "$dir/plain.out"'
ok "plain: 32 hex digits at exactly the key" \
    'cli get stock | grep -Eq "^[0-9a-f]{32}$" && [ "$(cli pttl stock)" -gt 0 ]'
t "plain: show"           0 "^kind +plain" "" show stock --redis "$url" --plain
t "plain: ls"             0 "^stock +plain" "" ls --redis "$url" --plain --match 'st*'
cat >"$dir/theirs.py" <<'END'
import sys, time, redis
from redis.lock import Lock
r = redis.Redis(unix_socket_path=sys.argv[1])
lock = Lock(r, 'stock', timeout=60, sleep=0.02)
if sys.argv[2] == 'try':
    print(lock.acquire(blocking=False))
elif sys.argv[2] == 'wait':
    open(sys.argv[3] + '/py.waits', 'w').close()
    print(lock.acquire(blocking_timeout=30))
    lock.release()
else:
    assert lock.acquire(blocking=False)
    open(sys.argv[3] + '/py.on', 'w').close()
    while r.get('py.go') is None:
        time.sleep(0.02)
    lock.release()
    print('released')
END
# Debian's package python3-redis works only with Debian's own python3, but PATH may have another
# python3 first.
py=
for p in python3 /usr/bin/python3; do
    if $p -c 'import redis' 2>/dev/null; then py=$p; break; fi
done
if [ -n "$py" ]; then
    equal "redis-py can't take ours" "$($py "$dir/theirs.py" "$dir/redis.sock" try)" False
    $py "$dir/theirs.py" "$dir/redis.sock" wait "$dir" >"$dir/py.out" 2>&1 &
    python=$!
    until_true "redis-py waits" '[ -e "$dir/py.waits" ]'
    touch "$dir/plain.go"
    ended "plain" 0
    wait $python
    equal "redis-py has it after us" "$(cat "$dir/py.out")" True
    $py "$dir/theirs.py" "$dir/redis.sock" hold "$dir" >"$dir/py.out" 2>&1 &
    python=$!
    until_true "redis-py holds" '[ -e "$dir/py.on" ]'
    t "we can't take redis-py's" 75 "" \
        "held by [0-9a-f]{32}" exec stock --redis "$url" --plain -- touch ran
    background "after" exec stock --redis "$url" --plain --wait 30000 -- echo mine
    cli set py.go 1 >/dev/null
    ended "after" 0
    wait $python
    equal "redis-py released its own" "$(cat "$dir/py.out")" released
    # If `latchwork lock` breaks the lock of a redis-py client and takes it, the redis-py client
    # must notice that it has lost the lock.
    rm -f "$dir/py.on"
    cli del py.go >/dev/null
    $py "$dir/theirs.py" "$dir/redis.sock" hold "$dir" >"$dir/py.out" 2>&1 &
    python=$!
    until_true "redis-py holds" '[ -e "$dir/py.on" ]'
    t "plain: break" 0 "broke stock \(plain\)" "" break stock --redis "$url" --plain --execute
    background "taken" exec stock --redis "$url" \
        --plain -- sh -c 'echo on; while [ ! -e taken.go ]; do sleep 0.05; done'
    until_true "it runs" 'grep -qs on "$dir/taken.out"'
    cli set py.go 1 >/dev/null
    wait $python
    ok "redis-py sees that it lost it" 'grep -q LockNotOwnedError "$dir/py.out"'
    touch "$dir/taken.go"
    ended "taken" 0
else
    bad "python3-redis is not installed: make deps-test"
fi
cli set stock someone >/dev/null
t "plain: without a TTL"  75 "" "without a TTL" exec stock --redis "$url" --plain -- true
cli del stock >/dev/null

# --- TLS, user and password -----------------------------------------------------------------------
mkdir "$dir/certs"
tests/support/certs.sh "$dir/certs"
tls_port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cli config set tls-cert-file "$dir/certs/server.pem" tls-key-file "$dir/certs/server.key" \
    tls-ca-cert-file "$dir/certs/ca.pem" tls-auth-clients optional tls-port "$tls_port" >/dev/null
cli acl setuser locker on '>secret' allkeys allchannels +@all >/dev/null
tls="--redis rediss://localhost:$tls_port"
export LATCHWORK_REDIS_USER=locker LATCHWORK_REDIS_PASSWORD=secret
# shellcheck disable=SC2086 # two words
{
    t "TLS: no CA"        1 "" "redis.tls.ca_file" exec k $tls -- true
    t "TLS: exec"         0 "inside" "" exec k $tls --tls-ca "$dir/certs/ca.pem" -- echo inside
    t "TLS: client's own" 0 "" \
        "" ls $tls --tls-ca "$dir/certs/ca.pem" --tls-cert "$dir/certs/client.pem" \
        --tls-key "$dir/certs/client.key"
    t "TLS: name"         1 "" \
        "is not for other.example" ls $tls --tls-ca "$dir/certs/ca.pem" --tls-name other.example
    LATCHWORK_REDIS_PASSWORD=wrong
    t "TLS: password"     1 "" "refuses the user or password" ls $tls --tls-ca "$dir/certs/ca.pem"
}
unset LATCHWORK_REDIS_USER LATCHWORK_REDIS_PASSWORD
t "TLS: with -c"          2 "" "redis.tls" ls -c app.json --tls-ca "$dir/certs/ca.pem"

# --- the example ----------------------------------------------------------------------------------
inventory=$build/examples/inventory/inventory
"$inventory" "$url" >"$dir/out" 2>"$dir/err"
equal "inventory: exit status" $? 0
equal "inventory" "$(cat "$dir/out")" \
    "1000 clients: sold 100 of 100, 900 went away; 0 left, at the lowest 0"
"$inventory" --no-lock "$url" >"$dir/out" 2>"$dir/err"
equal "inventory --no-lock: exit status" $? 1
ok "inventory --no-lock oversells" 'grep -q "^oversold by [1-9]" "$dir/out"'

summary
