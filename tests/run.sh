#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the test programs.
# usage: tests/run.sh WHAT BUILD_DIR
# WHAT: quick, check, check-live, all, mutants, pure, plain, tsan, unit, server, lua, lock, sim,
# redis (server without what talks to PostgreSQL only), guard, cli, live, browser or long. Each
# program belongs to one of quick, check and check-live, and the mutants to themselves; all runs
# everything. Of the seeds of the simulation, quick runs the first 68, one of each mode, and check
# the others.
#
# Each program's output goes to BUILD_DIR/logs/NAME.log. If a program fails, the last lines of its
# output are shown, and the other programs still run. A program that is missing, or that says SKIP,
# counts as failed, because what was not tested may not work. Programs run in parallel, two for each
# processor (LW_JOBS: another number), because most of them mainly wait. No program runs twice: a
# test that fails beside others has a race, or the code has.
#
# LW_LIST: when set, prints the commands instead of running them
# LW_SEEDS: number of seeds of the simulation (default 204; 68 under sanitizers; 10,000 for long)
# LW_TEST_LIMIT_S: time limit per program, in seconds
set -u
cd "$(dirname "$0")/.." || exit 1
what=${1:?usage: tests/run.sh WHAT BUILD_DIR (the head of this file lists WHAT)}
build=${2:-build}
logs=$build/logs
mkdir -p "$logs"
passed=0
failed=0
failures=()
jobs=${LW_JOBS:-$((2 * $(nproc)))}
# The test scripts that take longest. They are started first, so that none of them is still running
# when all others have ended.
slow="test_page test_conditions test_postgres test_redis test_kafka test_members test_ready"
slow="$slow test_kills test_poison test_sentinel test_http test_cluster test_proof test_modes"
slow="$slow test_kafka_secure test_source test_replay test_rights test_import_list test_tutorials"
slow="$slow test_dev test_handler test_examples test_tracing test_tls test_sdk test_meta"
slow="$slow test_kafka_rights test_operator test_network test_counts"
# Kafka's machine lives for a minute or two: compiling it well costs more than it saves.
export JDK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1 ${JDK_JAVA_OPTIONS-}"
declare -A name_of=() start_of=() # name and start time of each running program, by process id
declare -A command_of=()          # the command of each program, by the program's name
stop_all() { [ ${#name_of[@]} -eq 0 ] || kill -TERM "${!name_of[@]}" 2>/dev/null; }
trap 'stop_all; exit 130' INT TERM

# Prints the time limit of a program, which only turns a hang into a failure: 900 s by default,
# because live tests start servers; more for the simulation, which only computes, so that beside
# other work it takes as many times longer; and more for `long`.
limit_s() { # usage: limit_s NAME
    case $what-$1 in
    long-*) echo "${LW_TEST_LIMIT_S:-7200}" ;;
    *-sim-*) echo "${LW_TEST_LIMIT_S:-3600}" ;;
    *) echo "${LW_TEST_LIMIT_S:-900}" ;;
    esac
}

report_failure() { # usage: report_failure NAME LOG WHY
    failed=$((failed + 1))
    failures+=("$1")
    printf 'FAILED  %-28s %s\n' "$1" "$3"
    if [ -s "$2" ]; then tail -n 60 "$2" | sed 's/^/    | /'; fi
}

# cmocka marks a skipped test with "[  SKIPPED ]". A script that skips a test prints a line that
# begins with SKIP.
skipped() { grep -Eq '^(SKIP|\[ *SKIPPED *\])' "$1"; }

names=() # the tests of this run, in the order in which they start
run() { # usage: run NAME COMMAND…. Adds a test to the run.
    names+=("$1")
    local name=$1
    shift
    command_of[$name]=$*
}

# Prints how far the run is, and how long the rest may take if it takes as long as the tests so far.
progress() {
    local ended=$((passed + failed)) seconds=$(($(date +%s) - begin))
    local left=$((ended ? seconds * (${#names[@]} - ended) / ended : 0))
    printf '%3d/%d, about %d s left' "$ended" "${#names[@]}" "$left"
}

start() { # usage: start NAME. Starts a test in the background.
    local name=$1 log=$logs/$1.log
    local -a words
    read -ra words <<<"${command_of[$name]}"
    set -- "${words[@]}"
    if [ ! -x "$1" ]; then
        : >"$log"
        report_failure "$name" "$log" "missing: $1"
        return
    fi
    while [ ${#name_of[@]} -ge "$jobs" ]; do end_one; done
    timeout -k 10 "$(limit_s "$name")" "$@" >"$log" 2>&1 </dev/null &
    name_of[$!]=$name
    start_of[$!]=$(date +%s)
}

# Waits until one of the running programs ends, and reports its result.
end_one() {
    local pid status name log seconds
    wait -n -p pid "${!name_of[@]}"
    status=$?
    name=${name_of[$pid]} log=$logs/${name_of[$pid]}.log seconds=$(($(date +%s) - start_of[$pid]))
    unset "name_of[$pid]" "start_of[$pid]"
    if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
        report_failure "$name" "$log" "no end within $(limit_s "$name") s (status $status)"
    elif [ "$status" -ne 0 ]; then
        report_failure "$name" "$log" "exit status $status after $seconds s"
    elif skipped "$log"; then
        report_failure "$name" "$log" "something was skipped"
    else
        passed=$((passed + 1))
        printf 'ok      %-32s %4d s   %s\n' "$name" "$seconds" "$(progress)"
    fi
}
end_all() { # starts all tests that were added, and waits for all of them
    local name
    for name in "${names[@]}"; do start "$name"; done
    while [ ${#name_of[@]} -gt 0 ]; do end_one; done
}

# Runs one program per source file, so that a source whose program is missing counts as a failure
# instead of being left out silently.
run_sources() { # usage: run_sources FOLDER [ONLY…]; ! before ONLY: all but these
    local folder=$1 source name found=0 but=
    shift
    if [ "${1-}" = '!' ]; then
        but=" ${*:2} "
        set --
    fi
    for source in tests/"$folder"/test_*.c tests/"$folder"/*/test_*.c; do
        [ -e "$source" ] || continue
        name=${source##*/} name=${name%.c}
        if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
        if [[ $but == *" $name "* ]]; then continue; fi
        found=1
        name=${source#tests/} name=${name%.c}
        run "${name//\//-}" "$build/${source%.c}"
    done
    [ $found = 1 ] || report_failure "$folder" /dev/null "no test sources in tests/$folder"
}

run_sim() { # usage: run_sim SEEDS. Runs the tests of the simulation with this number of seeds.
    run sim-store "$build/tests/sim/sim_store_diff"
    run sim-scenes "$build/tests/sim/sim_scenes"
    run sim-lanes "$build/tests/sim/sim_lanes" --seeds "$1"
    run_operator "$1"
}
run_operator() { # usage: run_operator SEEDS
    run sim-operator "$build/tests/sim/sim_lanes" --operate --seeds $(($1 / 5 + 1))
}
# Under sanitizers the mutants are left out: they would find nothing more.
run_mutants() { run sim-mutants tests/sim/mutants.py "$build" "$@"; }

run_guard() { run guard "$build/tests/guard/guard"; }

# Prints the paths of the test scripts in a folder, slow scripts first.
scripts_of() { # usage: scripts_of FOLDER
    local script name
    for name in $slow; do
        for script in tests/"$1/$name".sh tests/"$1/$name".py; do
            [ ! -e "$script" ] || echo "$script"
        done
    done
    for script in tests/"$1"/test_*.sh tests/"$1"/test_*.py; do
        name=${script##*/} name=${name%.*}
        [ ! -e "$script" ] || [[ " $slow " == *" $name "* ]] || echo "$script"
    done
}

# usage: run_scripts FOLDER [ONLY…]; ! before ONLY: all but these. Runs a folder's test scripts.
run_scripts() {
    local script found=0 folder=$1 name but=
    shift
    if [ "${1-}" = '!' ]; then
        but=" ${*:2} "
        set --
    fi
    for script in $(scripts_of "$folder"); do
        name=${script##*/} name=${name%.*}
        if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
        if [[ $but == *" $name "* ]]; then continue; fi
        found=1
        run "$folder-$name" "$script" "$build"
    done
    set -- "$folder"
    [ $found = 1 ] || report_failure "$1" /dev/null "no test scripts in tests/$1"
}

# The unit tests of parts with threads, which run under ThreadSanitizer. It sees only what happens
# within a process, so the tests of memory that processes share are not among them.
threaded="test_http test_pool test_pool_chain test_exec test_plugin test_insert test_job"

# What `quick` runs of the folders cli and lua: the rules of the source, and all scripts of Redis
# but the long random runs and what counts bytes and CPU. `check` runs the rest.
rules="test_layers test_owners test_headers test_targets test_troubleshooting test_docs"
long="test_random test_bytes test_cost"

quick=68 # seeds of the simulation in quick: one of each mode
seeds=${LW_SEEDS:-204}
[ "$what" != check ] || [ "$seeds" -gt $quick ] || quick=0
begin=$(date +%s)
case $what in
unit | server | lua | lock) run_sources "$what" ;;
redis) run_sources server ! test_insert_postgres ;;
sim)
    run_sim "$seeds"
    run_mutants
    ;;
mutants) run_mutants "${@:3}" ;;
quick)
    # the longest first
    run sim-lanes "$build/tests/sim/sim_lanes" --seeds "${LW_SEEDS:-$quick}"
    run live-kill_workers tests/live/test_kills.py "$build" kill_workers
    run sim-store "$build/tests/sim/sim_store_diff"
    run sim-scenes "$build/tests/sim/sim_scenes"
    # shellcheck disable=SC2086 # lists of programs
    {
        run_sources unit
        run_sources lua ! $long
        run_scripts cli $rules
    }
    ;;
check)
    run sim-lanes "$build/tests/sim/sim_lanes" --first $quick --seeds $((seeds - quick))
    run_operator "$seeds"
    run_mutants --fast
    # shellcheck disable=SC2086 # lists of programs
    {
        run_scripts cli ! $rules
        run_sources server
        run_sources lua $long
        run_sources lock
        run_guard
    }
    ;;
check-live)
    run_scripts browser
    run_scripts live
    ;;
guard) run_guard ;;
cli | live | browser) run_scripts "$what" ;;
tsan)
    # With halt_on_error, a report of ThreadSanitizer also ends a child process with an error.
    # Otherwise a child that ends by _exit would hide the report.
    export TSAN_OPTIONS="halt_on_error=1 suppressions=$PWD/tests/preload/tsan.txt ${TSAN_OPTIONS:-}"
    export LD_PRELOAD="$PWD/$build/tests/preload/c11_threads.so"
    jobs=${LW_JOBS:-$((4 * $(nproc)))} # these programs wait even more than others
    # the whole worker under load, the API and the page's process
    run live-kill_workers tests/live/test_kills.py "$build" kill_workers
    run_scripts cli test_api
    # shellcheck disable=SC2086 # a list of programs
    run_sources unit $threaded
    run_sources server test_renewer
    run_sources lock
    ;;
plain | pure)
    if [ "$what" = pure ]; then
        run_sim "${LW_SEEDS:-$quick}"
    else
        run sim-store "$build/tests/sim/sim_store_diff"
    fi
    run_sources unit
    run_sources server
    # shellcheck disable=SC2086 # a list of programs; they test what runs within Redis
    run_sources lua ! $long
    run_sources lock
    ;;
all)
    # The simulation comes first, because it finds bugs in the protocol soonest and takes longest.
    run_sim "$seeds"
    run_mutants
    run_sources unit
    run_sources server
    run_sources lua
    run_sources lock
    run_guard
    run_scripts cli
    run_scripts live
    run_scripts browser
    ;;
long)
    export LW_SOAK=1
    run sim-lanes "$build/tests/sim/sim_lanes" --seeds "${LW_SEEDS:-10000}"
    run sim-operator "$build/tests/sim/sim_lanes" --operate --seeds "${LW_SEEDS:-10000}"
    run_scripts live
    ;;
*)
    echo "tests/run.sh: unknown selection $what" >&2
    exit 2
    ;;
esac
if [ -n "${LW_LIST-}" ]; then
    for name in "${names[@]}"; do echo "${command_of[$name]}"; done
    exit $failed
fi
end_all
if [ $failed -gt 0 ]; then echo "failed: ${failures[*]}"; fi
case $what in
quick) echo "next: make check (the rest without Kafka), make check-live (Kafka, Chromium, PostgreSQL)" ;;
check) echo "next: make check-live (Kafka, Chromium, PostgreSQL), or .ci/run, which runs everything" ;;
esac
echo "in $(($(date +%s) - begin)) s, logs in $logs"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
