#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests scripts/deps.sh and scripts/need.sh. Fake programs named apt-get, dpkg-query, sudo and id
# replace the real programs, and only record how they were called.
# Usage: tests/cli/test_deps.sh [BUILD_DIR]
# shellcheck source=tests/support/check.sh
. tests/support/check.sh
said() { grep -Fq -- "$1" "$dir/out"; }
asked() { grep -Fq -- "$1" "$dir/asked" 2>/dev/null; }
double() { # usage: double NAME. Makes a fake program of this name, whose text is read from stdin.
    { echo '#!/bin/sh'; cat; } >"$dir/bin/$1"
    chmod +x "$dir/bin/$1"
}
# usage: deps GROUP [VARIABLE=VALUE…]. Runs deps.sh with the fake programs first in PATH.
deps() {
    group=$1
    shift
    rm -f "$dir/asked"
    env PATH="$dir/bin:$PATH" DIR="$dir" LW_POLICY_RC="$dir/policy-rc.d" "$@" scripts/deps.sh \
        "$group" >"$dir/out" 2>&1
}

mkdir -p "$dir/bin"
double dpkg-query <<'E2'
for last; do :; done
case " $MISSING " in *" $last "*) exit 1 ;; *) echo 'install ok installed' ;; esac
E2
double apt-get <<'E2'
state=none
[ ! -e "$DIR/policy-rc.d" ] || { "$DIR/policy-rc.d" redis-server start; state=$?; }
echo "apt-get $* (policy $state, by ${AS:-root})" >>"$DIR/asked"
[ "$1" = update ] || exit "${APT_STATUS:-0}"
E2
double sudo <<'E2'
echo "sudo $1" >>"$DIR/asked"
AS=sudo exec "$@"
E2
double id <<'E2'
echo "${FAKE_UID:-0}"
E2

deps test MISSING=
check 'nothing missing: nothing is done' [ $? -eq 0 -a ! -e "$dir/asked" ]

deps check MISSING='redis-server valgrind'
check 'what is missing is installed' [ $? -eq 0 ]
check 'and nothing else' asked 'apt-get install -y -qq --no-install-recommends redis-server valgrind ('
check 'while no server may be started' asked '(policy 101, by root)'
check 'the policy is taken away again' [ ! -e "$dir/policy-rc.d" ]

double node </dev/null
deps test MISSING=nodejs
check 'a program that may come from anywhere is not installed again' [ $? -eq 0 -a ! \
    -e "$dir/asked" ]
rm "$dir/bin/node"

deps build MISSING=valgrind
check 'a group is not asked for what only another one needs' [ $? -eq 0 -a ! -e "$dir/asked" ]

deps matrix MISSING="gcc debootstrap"
check 'a chroot needs only what makes it' asked 'debootstrap (policy'
check 'and nothing of the build' sh -c "! grep -q gcc '$dir/asked'"

deps build MISSING=redis-server FAKE_UID=1000
check 'with sudo' [ $? -eq 0 ]
check 'apt-get runs by sudo' asked 'by sudo)'
check 'with sudo no server may be started either' asked '(policy 101, by sudo)'
check 'with sudo the policy is taken away' [ ! -e "$dir/policy-rc.d" ]

deps build MISSING=redis-server APT_STATUS=100
check 'a failure of apt-get is one' [ $? -ne 0 ]
check 'and the policy is taken away' [ ! -e "$dir/policy-rc.d" ]

echo kept >"$dir/policy-rc.d" && chmod +x "$dir/policy-rc.d"
deps build MISSING=redis-server
check "somebody else's policy stays" [ "$(cat "$dir/policy-rc.d")" = kept ]
rm -f "$dir/policy-rc.d"

deps nonsense
check 'an unknown group is a usage error' [ $? -eq 2 ]

# A folder with links to all programs except dpkg, apt, sudo and luac5.1 simulates a machine without
# dpkg.
mkdir "$dir/other"
(
    IFS=:
    for folder in $PATH; do
        # Leave out ccache's folder. Its links, which are named like compilers, search PATH for the
        # real compiler and would not find it in the PATH of this test.
        case $folder in */ccache) continue ;; esac
        for program in "$folder"/*; do
            case ${program##*/} in
            dpkg* | apt* | sudo | luac5.1) ;;
            *) [ -e "$dir/other/${program##*/}" ] || ln -s "$program" "$dir/other/" ;;
            esac
        done
    done
) 2>/dev/null
PATH="$dir/other" scripts/deps.sh build >"$dir/out" 2>&1
check 'without dpkg, with everything there: fine' [ $? -eq 0 ]
PATH="$dir/other" scripts/deps.sh test >"$dir/out" 2>&1
check 'without dpkg, with one missing: stops' [ $? -eq 1 ]
check 'and names it' said 'lua5.1 (cmd:luac5.1)'

# The next tests are of need.sh, which compares the versions of libraries.
scripts/need.sh cc 'rdkafka >= 2.0.2, hiredis' >"$dir/out" 2>&1
check 'recent enough' [ $? -eq 0 -a ! -s "$dir/out" ]
scripts/need.sh cc 'rdkafka >= 2.0.2, hiredis >= 99, nosuchlibrary >= 3' >"$dir/out" 2>&1
check 'too old' [ $? -eq 1 ]
check 'says which, with both versions' said \
    "the library hiredis is $(pkg-config --modversion hiredis); 99 or later is needed"
check 'says what is missing' said 'the library nosuchlibrary is missing (3 or later is needed)'
check 'says what to do' said 'make deps'
scripts/need.sh nosuchcompiler 'rdkafka' >"$dir/out" 2>&1
check 'a compiler that is missing' [ $? -eq 1 ]
check 'is named' said 'the compiler nosuchcompiler is missing'

summary
