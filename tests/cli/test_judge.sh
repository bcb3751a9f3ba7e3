#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests bench/judge, which looks for broken promises in journals. The test gives it small journals
# with known faults.
# Usage: tests/cli/test_judge.sh [BUILD_DIR]
judge=$(pwd)/${1:-build}/bench/judge
[ -x "$judge" ] || { echo "no program at $judge"; exit 1; }
# shellcheck source=tests/support/check.sh
. tests/support/check.sh
mkdir "$dir/j"

# usage: t NAME FIGURE…
# Judges the journals in the folder $dir/j, with the file $dir/produced if it is not empty. The
# output must contain each FIGURE, which has the form "name":value.
t() {
    name=$1
    shift
    if [ -s "$dir/produced" ]; then
        set -- "$@" --
        "$judge" "$dir/j" --produced "$dir/produced"
    else
        "$judge" "$dir/j"
    fi >"$dir/out" 2>"$dir/err" ||
        { bad "$name: exit status $?"; return; }
    for figure; do
        [ "$figure" != -- ] || continue
        if grep -qF -- "$figure" "$dir/out"; then good; else bad "$name: no $figure"; fi
    done
}

# usage: refused NAME TEXT
# Judges the journals in the folder $dir/j. The judge must exit with status 1 and print TEXT on
# stderr.
refused() {
    "$judge" "$dir/j" >"$dir/out" 2>"$dir/err"
    if [ $? -eq 1 ] && grep -qF -- "$2" "$dir/err"; then good; else bad "$1"; fi
}

: >"$dir/produced"
printf 'not a journal' >"$dir/j/1.progress"
cat >"$dir/j/a.journal" <<'END'
100 200 k 0 0
200 300 k 0 1
100 400 j 1 0
END
cat >"$dir/j/b" <<'END'
300 400 k 1 1
300 400 l 0 2
END
t "clean: touching ends, two keys at once, partitions of a key in any order" '"handled":5,' \
    '"keys":3,' '"overlaps":0,' '"misordered":0' \
    '"duplicates":0' '"first_us":100,' '"last_us":400,' \
    '"busiest":{"key":"k","count":3,"mean_us":100.0}' '"mean_us":140.0'

cat >"$dir/j/b" <<'END'
150 160 k 1 1
290 310 k 1 2
END
t "overlaps: one inside another, one past its end" '"overlaps":2,' '"misordered":0'

# The first run is long, so both the second and the third run overlap it. The second and the third
# run do not overlap each other.
printf '100 900 k 0 0\n200 300 k 0 1\n400 500 k 0 2\n' >"$dir/j/a.journal"
: >"$dir/j/b"
t "overlaps: of a long one with all behind it" '"overlaps":2,'

printf '100 110 k 0 5\n120 130 k 0 4\n140 150 k 0 6\n160 170 k 0 3\n180 190 j 0 1\n200 210 k 1 1\n' >"$dir/j/a.journal"
t "misordered: offsets 4 and 3 after larger ones; not another key's, nor another partition's" \
    '"misordered":2' '"overlaps":0,'

printf '100 110 k 0 9\n120 130 k 1 3\n' >"$dir/j/a.journal"
t "not misordered: a smaller offset of the key's other partition" '"misordered":0'

printf '100 110 k 0 1\n120 130 k 0 2\n' >"$dir/j/a.journal"
printf '140 150 k 0 1\n' >"$dir/j/b"
t "a repetition is a duplicate and not misordered" '"handled":3,' '"distinct":2,' '"duplicates":1' \
    '"misordered":0'

printf '1100 1200 k 0 1\n5000 5100 k 0 2\n1300 1400 j 1 1\n' >"$dir/j/a.journal"
printf '9000 9100 k 0 1\n' >"$dir/j/b"
printf '0 1 1000\n0 2 2000\n1 1 1250\n1 7 1300\n' >"$dir/produced"
t "latency: of first handlings; one message was never handled" '"missing":1' '"n":3' \
    '"start":{"p50":100,' '"max":3000}' '"end":{"p50":200,'
: >"$dir/produced"

printf '100 110 k 0 1\n120 13' >"$dir/j/a.journal"
refused "torn" "a.journal:2: torn"
printf '100 110 k 0\n' >"$dir/j/a.journal"
refused "a number is missing" "a.journal:1: not of the form"
printf '100 90 k 0 1\n' >"$dir/j/a.journal"
refused "ends before it starts" "a.journal:1: not of the form"

summary
