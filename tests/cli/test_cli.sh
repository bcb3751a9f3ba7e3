#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the exit statuses and the output of the program, on which users and scripts rely. The test
# needs no servers. Nothing may listen at the addresses in its configurations.
# Usage: tests/cli/test_cli.sh [BUILD_DIR]
LC_ALL=C.UTF-8
export LC_ALL
unset NO_COLOR
build=$(pwd)/${1:-build}
program=$build/latchwork
[ -x "$program" ] || { echo "no program at $program"; exit 1; }
# shellcheck source=tests/support/check.sh
. tests/support/check.sh
running=
# shellcheck disable=SC2086
trap '[ -z "$running" ] || kill -9 $running 2>/dev/null; rm -rf "$dir"' EXIT

# usage: t NAME STATUS STDOUT STDERR ARGUMENT…
# Runs the program, which must end with STATUS. STDOUT and STDERR are patterns (ERE). Some line of
# each stream must match the pattern of that stream. The pattern "" means that the stream must be
# empty.
t() {
    name=$1 want=$2 out=$3 err=$4
    shift 4
    (cd "$dir" && "$program" "$@") >"$dir/out" 2>"$dir/err" </dev/null
    ends_with "$want" "$out" "$err" "$name (latchwork $*)" $?
    ! grep -q "$(printf '\033')" "$dir/out" "$dir/err" ||
        bad "$name (latchwork $*): colour in a pipe"
}

# usage: also PATTERN
# Checks that the last command also printed a line on stderr that matches the pattern (ERE).
also() {
    ok "$name: stderr has /$1/ too" "grep -Eq -- '$1' '$dir/err'"
}

cat >"$dir/good.json" <<'END'
{ "kafka": { "topics": ["orders"], "properties": { "bootstrap.servers": "127.0.0.1:1" } },
  "redis": { "url": "unix:///nonexistent/redis.sock" },
  "handler": { "type": "exec", "command": ["cat"] }, "shutdown": { "grace_ms": 1000 } }
END
cat >"$dir/broken.json" <<'END'
{ "kafka": {
    "topics": ["orders"],, } }
END
cat >"$dir/wrong.json" <<'END'
{ "kafka": { "topics": ["orders"],
    "properties": { "bootstrap.servers": "127.0.0.1:1", "enable.auto.commit": "true" } },
  "lock": { "ttl_sm": 5000 }, "retry": { "max_attempts": 0 },
  "handler": { "type": "exec", "command": ["cat"] } }
END
echo '{ "kafka": { "topics": ["orders"] }, "handler": { "type": "http", "url": "ftp://127.0.0.1/" } }' >"$dir/http.json"
echo '{ "kafka": { "topics": ["orders"] }, "handler": { "type": "exce", "command": ["cat"] } }' \
    >"$dir/type.json"

t "no command"                 2 "" "^usage: latchwork COMMAND"
t "--help"                     0 "^usage: latchwork COMMAND" "" --help
t "-h"                         0 "^  run " "" -h
t "help"                       0 "^  check " "" help
t "version"                    0 "^latchwork [0-9]+\.[0-9]+\.[0-9]+$" "" version
t "version: libraries"         0 "librdkafka +[0-9.]+ +[0-9.]+" "" version --verbose
t "version: abilities"         0 "SASL PLAIN +(yes|no)" "" version -v
t "version: JSON"              0 \
    "\"librdkafka\":{\"compiled\":\"[0-9.]+\",\"loaded\":\"[0-9.]+\"}" "" version --json
t "--version"                  0 "^latchwork [0-9]+\.[0-9]+\.[0-9]+$" "" --version
t "unknown command"            2 "" 'unknown command "rnu"; did you mean "run"' rnu
t "nothing like it"            2 "" 'unknown command "frobnicate"$' frobnicate
t "very long command"          2 "" 'unknown command' "$(head -c 5000 /dev/zero | tr '\0' r)"
t "empty command"              2 "" 'unknown command ""' ""
t "option before command"      2 "" "unknown option --drain; put the command first" --drain run
for c in run dev check queue dead lock handler ledger; do
    t "$c --help"              0 "latchwork $c" "" $c --help
    t "$c -h"                  0 "latchwork $c" "" $c -h
done
t "handler without a verb"     2 "" "handler: expected a verb: new or test" handler
t "handler: unknown verb"      2 "" "unknown verb tset .did you mean test" handler tset
t "handler new without a name" 2 "" "NAME is missing; usage: latchwork handler new NAME --lang" \
    handler new --lang c
t "handler new without --lang" 2 "" \
    "lang c.c\+\+.python.node.go is required: the handler.s language" handler new x
t "handler new: a path"        2 "" 'NAME "../x": must be at most 64 letters' \
    handler new ../x --lang c
t "handler new: language"      2 "" "--lang perl: expected c, c\+\+, python, node or go" \
    handler new x --lang perl
t "handler new: cpp is c++"    0 "cpp1/Makefile" "" handler new cpp1 --lang cpp
t "handler new: javascript is node" 0 "js1/handler.js" "" handler new js1 --lang javascript
t "handler new: options of test" 2 "" "unknown option --chaos: it belongs to test" \
    handler new x --lang c --chaos
t "handler test without -c"    2 "" "-c FILE is required: configuration file" handler test
t "handler test: no messages"  2 "" "none.jsonl: No such file" handler test -c good.json none.jsonl

t "run without -c"             2 "" "-c FILE is required: configuration file" run
t "run -c without a value"     2 "" "-c needs a value" run -c
t "run --set without a value"  2 "" "--set needs a value" run -c good.json --set
t "run --set without ="        2 "" "expected PATH=VALUE, as in lock.ttl_ms=5000" \
    run -c good.json --set lock.ttl_ms
t "run --set =5"               2 "" "expected PATH=VALUE, as in lock.ttl_ms=5000" \
    run -c good.json --set =5
t "run: unknown option"        2 "" "unknown option --frob" run -c good.json --frob
t "run: unexpected argument"   2 "" "unexpected argument orders" run -c good.json orders
t "run: argument behind --"    2 "" "unexpected argument --drain" run -c good.json -- --drain
t "run: help wins anywhere"    0 "--drain" "" run -c missing.json --workers 3 --help
t "run: missing file"          2 "" "missing.json.*No such file" run -c missing.json
t "run: options in any order"  2 "" "missing.json.*No such file" \
    run --drain --json --workers 2 -c missing.json
t "run: a folder"              2 "" "\." run -c .
t "run: syntax error"          2 "" "broken.json.*2" run -c broken.json
t "run: --workers 0"           2 "" "^workers: " run -c good.json --workers 0
t "run: --workers many"        2 "" "^workers: " run -c good.json --workers 100000
t "run: --workers=x"           2 "" "^workers: " run -c good.json --workers=x
t "run: --set unknown path"    2 "" "lock\.ttl_sm.*lock\.ttl_ms|lock\.ttl_sm.*ttl_ms" \
    run -c good.json --set lock.ttl_sm=5
t "run: --set bad value"       2 "" "^lock\.ttl_ms: " run -c good.json --set lock.ttl_ms=soon
t "run: http handler"          2 "" "^handler\.url: must begin with http" run -c http.json
t "run: unknown handler"       2 "" "exce.*exec" run -c type.json
t "run: all problems at once"  2 "" "lock\.ttl_sm.*ttl_ms" run -c wrong.json
also "^retry\.max_attempts: "
also "enable\.auto\.commit"

# If a restart cannot repair an error, `latchwork run` must end with the status EX_CONFIG, because
# the systemd unit does not restart the program after this status.
cat >"$dir/contradiction.json" <<'END'
{"kafka": {"topics": ["orders"], "properties": {"bootstrap.servers": "127.0.0.1:1",
    "max.poll.interval.ms": 1000, "session.timeout.ms": 6000}},
 "redis": {"url": "redis://127.0.0.1:1"}, "http": {"listen": "off"},
 "handler": {"type": "exec", "command": ["cat"]}}
END
echo "no shared object" >"$dir/odd.so"
cat >"$dir/plugin.json" <<'END'
{"kafka": {"topics": ["orders"], "properties": {"bootstrap.servers": "127.0.0.1:1"}},
 "redis": {"url": "redis://127.0.0.1:1"},
 "http": {"listen": "off"}, "handler": {"type": "plugin", "path": "odd.so"}}
END
t "run: properties contradict each other" 78 "" "kafka\.properties: .*max\.poll\.interval\.ms" \
    run -c contradiction.json --workers 1
also "refused to run"
sed 's|"max.poll.interval.ms": 1000|"security.protocol": "ssl", "ssl.ca.location": "/nowhere/ca.pem"|' "$dir/contradiction.json" >"$dir/ca.json"
t "run: --drain, a file is missing" 78 "" "kafka\.properties\.ssl\.ca\.location: " \
    run -c ca.json --workers 1 --drain
t "run: a plugin that is none" 78 "" "plugin odd\.so: cannot be loaded" \
    run -c plugin.json --workers 1
also "refused to run"
if grep -Eq "^RestartPreventExitStatus=2 78$" "deploy/latchwork@.service"; then
    good
else
    bad "deploy/latchwork@.service: restarts what was refused" "RestartPreventExitStatus"
fi

t "check without -c"           2 "" "-c" check
t "check: good"                0 "." "warning: dead.to" check -c good.json
t "check: a program that is not there" 0 "fine" "command: there is no program nosuch in PATH" \
    check -c good.json --set 'handler.command=["nosuch"]'
t "check: missing file"        2 "" "missing.json.*No such file" check -c missing.json
t "check: all problems"        2 "" "lock\.ttl_sm.*ttl_ms" check -c wrong.json
also "^retry\.max_attempts: "
also "enable\.auto\.commit"

t "ledger without -c"          2 "" "-c FILE is required: configuration file" ledger
t "ledger: unknown option"     2 "" "unknown option --frob" ledger -c good.json --frob
t "ledger: unexpected argument" 2 "" "unexpected argument orders" ledger -c good.json orders
t "ledger: missing file"       2 "" "missing.json.*No such file" ledger -c missing.json
t "ledger: all problems"       2 "" "lock\.ttl_sm.*ttl_ms" ledger -c wrong.json
t "check: metrics"             0 "^# Metrics" "" check --reference-metrics
t "check: names of metrics"    0 "^latchwork_messages_total$" "" check --metric-names

# An error about a command line must name what is wrong and suggest what was meant.
t "near option"                2 "" "unknown option --sett; did you mean --set\?" \
    run -c good.json --sett a=b
t "nothing near"               2 "" "unknown option --zzzzzz; see" run -c good.json --zzzzzz
t "unknown letter"             2 "" "unknown option -q; see" run -q
t "value for a flag"           2 "" "--drain takes no value" run -c good.json --drain=yes
t "verb of queue"              2 "" "stats is a verb of another command: latchwork queue stats" \
    dead stats
t "near verb"                  2 "" "unknown verb shwo .did you mean show" queue shwo
t "option of another verb"     2 "" \
    "queue ls: unknown option --again: it belongs to replay and import" queue ls -c good.json \
    --again
t "option of another command"  2 "" "dead ls: unknown option --sort; see" \
    dead ls -c good.json --sort age
t "word of an option"          2 "" "--sort name: expected age or size" \
    queue ls -c good.json --sort name
t "range of a number"          2 "" "--workers 65: expected a number from 1 to 64" dev --workers 65
t "range of a time"            2 "" "--over 5ms: expected a time from 100ms to 1h" \
    queue stats -c good.json --over 5ms
t "rate"                       2 "" "--rate none: expected a number of messages per second" \
    queue drop -c good.json --rate none
t "which word"                 2 "" "queue show: KEY is missing; usage: latchwork queue show KEY" \
    queue show -c good.json
t "too many words"             2 "" "unexpected argument b" queue show a b -c good.json
t "no verb"                    2 "" "queue: expected a verb: ls, show, " queue
t "abbreviated"                2 "" "missing.json.*No such file" run --conf missing.json
t "reference: unknown page"    2 "" "doc/x is not generated" reference doc/x

# Every command that --help lists must be in the man page and in the shell completion.
for c in $("$program" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    : >"$dir/out"
    : >"$dir/err"
    if grep -Eq "^\.(B|BR) ${c}( |$)" "$build/man/latchwork.1" &&
        grep -Eq "commands=.*[\" ]${c}[\" ]" "$build/completion.bash"; then
        good
    else
        bad "$c is missing in man/latchwork.1 or completion.bash" "--help"
    fi
done

# If no server is reachable, the workers cannot begin, and `latchwork run` keeps trying to connect.
# SIGTERM must still end it with status 0.
"$program" run -c "$dir/good.json" --workers 1 >"$dir/out" 2>"$dir/err" &
running=$!
sleep 1
kill -TERM $running
wait $running
status=$?
running=
if [ $status -eq 0 ] && grep -q "SIGTERM" "$dir/err"; then
    good
else
    bad "SIGTERM without servers: exit status $status" "run"
fi

summary
