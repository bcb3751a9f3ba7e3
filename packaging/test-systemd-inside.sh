#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The part of packaging/test-systemd.sh that runs under systemd. It starts, reloads and stops
# services of latchwork@.service with handlers in Python, Node and Java. They use a Redis with a
# password and the broker of `latchwork dev`.
set -u
fail() {
    echo "FAILED: $*"
    systemctl status --no-pager --full 'latchwork@*' 2>&1 | tail -n 60
    journalctl --no-pager -n 40 -u 'latchwork@*' 2>&1 | tail -n 40
    exit 1
}
ok() { echo "ok: $*"; }
# WHAT COMMAND…: repeats the command until it succeeds, for at most a minute. Then prints WHAT,
# which describes the test, and ends the script if the command did not succeed.
until_true() {
    what=$1
    shift
    for _ in $(seq 600); do
        if "$@"; then ok "$what"; return; fi
        sleep 0.1
    done
    fail "$what"
}
property() { systemctl show -P "$2" "latchwork@$1"; }
done_some() { property "$1" StatusText | grep -Eq 'done [1-9]'; }

mkdir -p /srv/handlers /etc/latchwork/secrets
printf 'hunter2' >/etc/latchwork/secrets/redis
chmod 600 /etc/latchwork/secrets/redis
redis-server --port 6379 --save '' --requirepass hunter2 --daemonize yes >/dev/null ||
    fail 'redis-server'
latchwork dev --rate 50 </dev/null >/test/dev 2>&1 &
until_true 'the broker is there' grep -q 'bootstrap.servers' /test/dev
broker=$(sed -n 's/.*"bootstrap.servers": "\([^"]*\)".*/\1/p' /test/dev)

cat >/srv/handlers/handler.py <<'END'
import json, os, sys
with open("seen", "w") as f: f.write(os.environ.get("NOTIFY_SOCKET", "none"))
for line in sys.stdin:
    m = json.loads(line)
    if "cancel" not in m: print(json.dumps({"id": m["id"], "outcome": "done"}), flush=True)
END
cat >/srv/handlers/handler.js <<'END'
const hot = new Function("s", "return JSON.parse(s)"); // compiled while it runs
require("os").networkInterfaces();
require("readline").createInterface({input: process.stdin}).on("line", (line) => {
  const m = hot(line);
  if (!("cancel" in m)) console.log(JSON.stringify({id: m.id, outcome: "done"}));
});
END
cat >/srv/handlers/Handler.java <<'END'
import java.io.*;
import java.util.regex.*;
public class Handler {
    public static void main(String[] a) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        Pattern id = Pattern.compile("\"id\":\\s*(\"[^\"]*\")");
        for (String line; (line = in.readLine()) != null;) {
            Matcher m = id.matcher(line);
            if (line.contains("\"cancel\"") || !m.find()) continue;
            System.out.println("{\"id\":" + m.group(1) + ",\"outcome\":\"done\"}");
            System.out.flush();
        }
    }
}
END
# NAME COMMAND: configures the service latchwork@NAME; COMMAND is the command of its handler, as
# JSON strings separated by commas
configure() {
    cat >"/etc/latchwork/$1.json" <<END
{ "name": "$1", "workers": 2,
  "kafka": { "topics": ["orders-web"],
    "properties": { "bootstrap.servers": "$broker", "session.timeout.ms": "6000" } },
  "redis": { "url": "redis://127.0.0.1:6379/0",
    "password": "\${file:\${CREDENTIALS_DIRECTORY}/redis}" },
  "key": { "from": "json:/id" }, "http": { "listen": "off" }, "lock": { "ttl_ms": 3000 },
  "handler": { "type": "exec", "command": [$2], "processes": 1, "timeout_ms": 60000 } }
END
    chown root:latchwork "/etc/latchwork/$1.json"
    chmod 640 "/etc/latchwork/$1.json"
    mkdir -p "/etc/systemd/system/latchwork@$1.service.d"
    printf '[Service]\nLoadCredential=redis:/etc/latchwork/secrets/redis\n' \
        >"/etc/systemd/system/latchwork@$1.service.d/secret.conf"
}
configure python '"python3", "/srv/handlers/handler.py"'
configure node '"node", "/srv/handlers/handler.js"'
configure java '"java", "/srv/handlers/Handler.java"'
systemctl daemon-reload

for name in python node java; do
    systemctl start "latchwork@$name" || fail "start of $name"
    property $name StatusText | grep -q '^2 of 2 workers are ready' ||
        fail "$name: active, but not ready: $(property $name StatusText)"
    ok "$name: active once its workers were ready"
    until_true "$name: messages flow" done_some $name
done
[ "$(cat /var/lib/latchwork/python/seen)" = none ] || fail 'a handler sees the socket of systemd'
[ "$(stat -c %U "/proc/$(property python MainPID)")" = latchwork ] ||
    fail 'the service does not run as latchwork'
ok 'handlers run as latchwork, and write only into the state directory'

before=$(pgrep -P "$(property python MainPID)" | sort)
[ -n "$before" ] || fail 'the run has no workers'
systemctl reload latchwork@python || fail 'reload'
[ "$(property python ActiveState)" = active ] || fail "reload: $(property python ActiveState)"
for pid in $(pgrep -P "$(property python MainPID)"); do
    case "
$before
" in *"
$pid
"*) fail "reload: process $pid was there before" ;; esac
done
ok 'systemctl reload returns when each worker was replaced'
echo '{' >/etc/latchwork/python.json
systemctl reload latchwork@python || fail 'reload of a bad configuration'
until_true 'a reload with errors keeps the run, and the status says so' \
    sh -c "systemctl show -P StatusText latchwork@python | grep -q 'ready\|errors'"
journalctl -u latchwork@python | grep -q 'the configuration has errors' ||
    fail 'no error in the journal'

for name in python node java; do
    systemctl stop "latchwork@$name" || fail "stop of $name"
    [ "$(property $name Result)" = success ] || fail "$name: stopped with $(property $name Result)"
done
ok 'stopped in order'
systemctl start latchwork@python && fail 'a bad configuration started'
[ "$(property python ExecMainStatus) $(property python NRestarts)" = '2 0' ] ||
    fail 'a bad configuration is started again'
ok 'a bad configuration is not started again'
echo 'systemd: everything passed'
