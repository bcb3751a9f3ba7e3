#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a real Apache Kafka (KRaft, broker and controller in one process) for tests. The broker
# listens on the loopback only.
#
# kafka.sh fetch            downloads the jars once, and prints their folder: $LW_KAFKA_LIBS
#                           (default build/kafka/libs)
# kafka.sh archive          fetches, and once keeps Kafka's classes as the JVM has loaded them, next
#                           to the jars, so that each later start takes half the CPU
# kafka.sh start DIR PORT   formats DIR the first time, starts Kafka, waits until it answers, and
#                           prints the bootstrap address. Clients use PORT, and the controller
#                           PORT+1. If PORT is 0, chooses free ports, and keeps them in DIR.
# kafka.sh stop DIR         sends SIGTERM, and SIGKILL if Kafka still runs after 15 s
# kafka.sh kill DIR         sends SIGKILL
# kafka.sh restart DIR      stops Kafka, then starts it with the same files and ports
#
# DIR contains all files of the broker: data, server.properties, pid, server.log. Three variables
# are optional. KAFKA_OPTS_EXTRA contains more "name=value" lines for server.properties.
# KAFKA_FORMAT_EXTRA contains more arguments for the formatting, one per line. LW_KAFKA_VERSION
# chooses another version than 3.9.1. The jars of that version are in $LW_KAFKA_LIBS-VERSION.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
version=${LW_KAFKA_VERSION:-3.9.1}
libs=${LW_KAFKA_LIBS:-$root/build/kafka/libs}
if [ "$version" != 3.9.1 ]; then libs=$libs-$version; fi
ready_s=60
end_s=15 # kafka.sh stop waits so long for the end

die() {
    echo "kafka.sh: $*" >&2
    exit 1
}

fetch() {
    if [ -e "$libs/.complete" ]; then return; fi
    mkdir -p "$libs"
    echo "kafka.sh: fetching Apache Kafka $version with Maven (once)" >&2
    mvn -q -B -f "$here/pom.xml" -Dkafka.version="$version" dependency:copy-dependencies \
        -DoutputDirectory="$libs" >&2 || die "Maven could not fetch the jars"
    touch "$libs/.complete"
}

# Prints a port that is free now. The port after it is also free.
free_port() {
    python3 - <<'EOF'
import random, socket
for _ in range(200):
    port = random.randrange(20000, 32000, 2)
    try:
        for p in (port, port + 1):
            s = socket.socket()
            s.bind(("127.0.0.1", p))
            s.close()
    except OSError:
        continue
    print(port)
    break
EOF
}

# The JVM ignores an archive that another version of it has made.
archive=$libs/kafka.jsa
classes=
if [ -e "$archive" ]; then classes=-XX:SharedArchiveFile=$archive; fi
archive() {
    fetch
    if [ -e "$archive" ]; then return; fi
    dir=$(mktemp -d) port=$(free_port)
    [ -n "$port" ] || die "no free port"
    session_ms=60000
    write_properties
    classes=-XX:ArchiveClassesAtExit=$archive.$$ end_s=120 # it is written at the end
    launch >/dev/null
    end TERM
    mv "$archive.$$" "$archive" || die "the JVM has made no archive: $(tail -n 5 "$dir/server.log")"
    rm -rf "$dir"
}

java_run() {
    # shellcheck disable=SC2086 # no argument where there is no archive
    exec java $classes -Xmx512m -Xms256m -XX:+UseSerialGC -Xshare:auto -Djava.awt.headless=true \
        -cp "$libs/*" "$@"
}

write_properties() {
    cat > "$dir/server.properties" <<EOF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=$dir/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
group.initial.rebalance.delay.ms=200
group.min.session.timeout.ms=1000
log.retention.ms=-1
log.retention.bytes=-1
log.cleaner.enable=false
num.network.threads=2
num.io.threads=4
controlled.shutdown.max.retries=1
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=$session_ms
EOF
    if [ -n "${KAFKA_OPTS_EXTRA:-}" ]; then
        printf '%s\n' "$KAFKA_OPTS_EXTRA" >> "$dir/server.properties"
    fi
}

# What kafka.tools.StorageTool would write. The tool itself runs only where it has more to write,
# because it costs the start of one more JVM.
format() {
    if [ -e "$dir/data/meta.properties" ]; then return; fi
    cluster=MkU3OEVBNTcwNTJENDM2Qg
    if [ -z "${KAFKA_FORMAT_EXTRA:-}" ]; then
        mkdir -p "$dir/data"
        printf '%s\n' version=1 "cluster.id=$cluster" node.id=1 > "$dir/data/meta.properties"
        return
    fi
    set --
    while IFS= read -r argument; do
        if [ -n "$argument" ]; then set -- "$@" "$argument"; fi
    done <<EOF
$KAFKA_FORMAT_EXTRA
EOF
    (java_run kafka.tools.StorageTool format -t $cluster -c "$dir/server.properties" \
        --ignore-formatted "$@") > "$dir/format.log" 2>&1 ||
        die "can't format: $(tail -n 5 "$dir/format.log")"
}

# A zombie is a process that has ended but whose parent has not waited for it yet. A zombie counts
# as ended.
alive() {
    [ -e "$dir/pid" ] || return 1
    state=$(sed 's/.*) //; s/ .*//' "/proc/$(cat "$dir/pid")/stat" 2>/dev/null) || return 1
    [ -n "$state" ] && [ "$state" != Z ]
}

# Waits until Kafka answers a metadata request, and the answer names a broker. One process asks
# again and again, because the start of a process costs more than a question.
wait_ready() {
    status=0
    python3 - "$here/.." "$port" "$(cat "$dir/pid")" "$ready_s" <<'EOF' || status=$?
import socket, struct, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from lib.process import Limit, alive
port, pid, ready_s = (int(a) for a in sys.argv[2:])
client = b"rig"
# The request is Metadata v1 without topics. The answer begins with the list of brokers.
body = struct.pack(">hhih", 3, 1, 7, len(client)) + client + struct.pack(">i", 0)

def answers():
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as s:
            s.settimeout(2)
            s.sendall(struct.pack(">i", len(body)) + body)
            head = s.recv(4096)
            return len(head) >= 12 and struct.unpack(">i", head[8:12])[0] >= 1
    except OSError:
        return False

limit = Limit(ready_s)
while not answers():
    if not alive(pid):
        sys.exit(1)
    if limit.over():
        sys.exit(2)
    time.sleep(0.1)
EOF
    case $status in
    0) ;;
    1) die "the broker ended: $(tail -n 5 "$dir/server.log")" ;;
    *) die "the broker is not ready after $ready_s s, see $dir/server.log" ;;
    esac
}

launch() {
    if alive; then die "already running in $dir"; fi
    format
    (java_run kafka.Kafka "$dir/server.properties") >> "$dir/server.log" 2>&1 < /dev/null &
    echo $! > "$dir/pid"
    wait_ready
    echo "127.0.0.1:$port"
}

start() {
    fetch
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    if [ -e "$dir/port" ]; then
        port=$(cat "$dir/port")
    else
        if [ "$port" = 0 ]; then port=$(free_port); fi
        [ -n "$port" ] || die "no free port"
        echo "$port" > "$dir/port"
    fi
    # The controller fences a broker that sends no heartbeat for session_ms. On a busy machine,
    # session_ms must be long. However, after a kill, the controller refuses a new process of the
    # broker until session_ms has passed. So session_ms is short if the broker was killed before.
    session_ms=3000
    if [ ! -e "$dir/data/meta.properties" ] || [ -e "$dir/stopped" ]; then session_ms=60000; fi
    rm -f "$dir/stopped"
    write_properties
    launch
}

end() {
    alive || return 0
    kill "-$1" "$(cat "$dir/pid")" 2>/dev/null || true
    i=0
    while alive; do
        i=$((i + 1))
        if [ $i -eq $((10 * end_s)) ]; then kill -KILL "$(cat "$dir/pid")" 2>/dev/null || true; fi
        [ $i -lt $((10 * end_s + 50)) ] || die "the broker does not end"
        sleep 0.1
    done
    if [ "$1" = TERM ] && [ $i -lt $((10 * end_s)) ]; then touch "$dir/stopped"; fi
    rm -f "$dir/pid"
}

usage() {
    sed -n '3,16s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

[ $# -ge 1 ] || usage
command=$1
dir=${2:-}
port=${3:-0}
case $command in
fetch) fetch && echo "$libs" ;;
archive) archive ;;
start | stop | kill | restart)
    [ -n "$dir" ] || usage
    case $command in
    start) start ;;
    stop) end TERM ;;
    kill) end KILL ;;
    restart) end TERM && start ;;
    esac
    ;;
*) usage ;;
esac
