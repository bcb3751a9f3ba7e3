#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Does what doc/how-to/install.md, secure-kafka.md and redis-tls.md tell a new user to do. Run this
# script only on a clean Debian system that may be changed. packaging/secured.py runs it in a chroot
# and operates the servers.
# usage: test-secured.sh PACKAGES SHARED
#
# A chroot has no running systemd. So this script runs the program as the unit does: the program
# runs as the user latchwork, and SIGTERM stops it. `make deb-systemd` tests the unit itself. The
# configuration is composed of the examples in the installed pages; only the addresses and the
# source of Kafka's password are changed. The folder SHARED contains what administrators give to
# users: certificates, passwords, addresses. This script and packaging/secured.py create
# further files in SHARED to tell each other how far they have come.
set -eu
packages=$1 shared=$2
# shellcheck source=/dev/null
. "$shared/places"
# the handler reads LW_TEST_JOURNAL and LW_TEST_WORK_MS
export DEBIAN_FRONTEND=noninteractive KAFKA LW_TEST_JOURNAL="$shared/journal" LW_TEST_WORK_MS=0-4
pages=/usr/share/doc/latchwork/how-to
config=/etc/latchwork/orders.json

step() { echo "== $*"; }
die() { echo "test-secured.sh: $*" >&2; exit 1; }
quiet() { "$@" >/tmp/quiet.log 2>&1 || { tail -n 40 /tmp/quiet.log >&2; die "failed: $*"; }; }
until_there() { # FILE: waits at most two minutes for packaging/secured.py to create a file
    for _ in $(seq 1200); do
        if [ -e "$1" ]; then return; fi
        sleep 0.1
    done
    die "no ${1##*/} within two minutes"
}
as_service() { setpriv --reuid latchwork --regid latchwork --init-groups "$@"; }
redis_admin() {
    REDISCLI_AUTH=$(cat "$shared/redis-admin-password") redis-cli -h redis.example.com \
        -p "$REDIS_PORT" --tls --cacert /etc/latchwork/redis-ca.pem --user admin
}

install_package() {
    step 'install.md, step 1: install the package'
    [ ! -e /usr/bin/latchwork ] || die 'this system is not clean: it has a latchwork'
    # This file, policy-rc.d, keeps packages from starting their servers.
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
    cd "$packages"
    sha256sum --quiet --check --ignore-missing SHA256SUMS
    quiet apt-get update -qq
    quiet apt-get install -y -qq ./latchwork_*.deb ./latchwork-doc_*.deb
    # Python is for the handler, and redis-cli for the administrator of Redis.
    quiet apt-get install -y -qq --no-install-recommends python3 redis-tools
    latchwork version --verbose
    latchwork version --verbose | grep -q SCRAM || die 'its librdkafka has no SCRAM'
}

write_configuration() {
    step 'install.md, step 2; secure-kafka.md, steps 2 and 3; redis-tls.md, step 1: write the configuration'
    install -m 644 "$shared/kafka-ca.pem" "$shared/redis-ca.pem" /etc/latchwork/
    install -m 640 -g latchwork "$shared/kafka-password" /etc/latchwork/kafka-password
    echo 'orders-own-9' | install -m 640 -g latchwork /dev/stdin /etc/latchwork/redis-password
    install -D -m 644 "$shared/work.py" /opt/orders/handler.py
    echo '127.0.0.1 localhost redis.example.com' >>/etc/hosts
    python3 - "$pages" "$REDIS_PORT" <<'END' | install -m 640 -g latchwork /dev/stdin $config
import json, sys
def example(page): # returns the first JSON example of a page
    with open("%s/%s.md" % (sys.argv[1], page)) as f:
        return f.read().split("```json\n", 1)[1].split("```", 1)[0]
c = json.loads(example("secure-kafka"))
c["redis"] = json.loads(example("redis-tls"))["redis"]
c["redis"]["url"] = c["redis"]["url"].replace(":6380", ":" + sys.argv[2])
c["kafka"]["properties"]["sasl.password"] = "${file:/etc/latchwork/kafka-password}"
json.dump(c, sys.stdout, indent=2)
END
    cat $config
}

give_rights() {
    step 'secure-kafka.md, step 4; redis-tls.md, step 2: administrators give the user its rights'
    touch "$shared/wants-rights"
    latchwork check --acl orders -c $config | redis_admin
    echo 'ACL SETUSER orders >orders-own-9' | redis_admin
    until_there "$shared/has-rights"
}

# usage: mistake WHAT PATTERN EDIT. Applies the sed script EDIT, which makes the mistake that WHAT
# names, to the configuration. `check` must then fail, and its output must match PATTERN.
mistake() {
    sed "$3" $config | install -m 640 -g latchwork /dev/stdin /etc/latchwork/mistake.json
    if as_service latchwork check -c /etc/latchwork/mistake.json --connect >/tmp/said 2>&1; then
        die "check accepts $1"
    fi
    cat /tmp/said
    grep -Eq "$2" /tmp/said || die "check does not name $1"
}

check_configuration() {
    step 'install.md, step 2: check it as the user that will read it'
    as_service latchwork check -c $config --connect
    step 'the same with mistakes'
    install -m 644 "$shared/strange-ca.pem" /etc/latchwork/
    mistake 'another CA for Kafka' 'certificate is not accepted: its CA is not in ssl.ca.location' \
        's/kafka-ca.pem/strange-ca.pem/'
    mistake 'another CA for Redis' 'redis.tls.ca_file' 's/redis-ca.pem/strange-ca.pem/'
    # shellcheck disable=SC2016 # the configuration expands it
    mistake 'another password for Kafka' '[Aa]uthentication (error|failed)' \
        's/${file:.etc.latchwork.kafka-password}/wrong/'
    # shellcheck disable=SC2016
    mistake 'another password for Redis' \
        'refuses the user or password; correct redis.username and redis.password' \
        's/${file:.etc.latchwork.redis-password}/wrong/'
}

run_until_done() {
    step 'install.md, step 3: run'
    # `as_service` is not used here: in the background, $! would be the pid of a subshell, and
    # SIGTERM would end only the subshell
    setpriv --reuid latchwork --regid latchwork --init-groups latchwork run -c $config \
        >"$shared/run.log" 2>&1 &
    pid=$!
    touch "$shared/runs"
    for _ in $(seq 3000); do
        if [ -e "$shared/all-done" ]; then break; fi
        kill -0 $pid 2>/dev/null || { cat "$shared/run.log" >&2; die 'the run has ended'; }
        sleep 0.1
    done
    [ -e "$shared/all-done" ] || {
        tail -n 40 "$shared/run.log" >&2
        die 'not all messages were handled within five minutes'
    }
    as_service latchwork ledger -c $config
    status=0
    kill -TERM $pid
    wait $pid || status=$?
    [ $status -eq 0 ] || {
        tail -n 40 "$shared/run.log" >&2
        die "after SIGTERM it ended with status $status"
    }
    echo 'ok: after SIGTERM it ended with status 0'
}

install_package
write_configuration
give_rights
check_configuration
run_until_done
