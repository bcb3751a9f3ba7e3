#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests deploy/latchwork@.service by systemd-analyze, which needs no running systemd. The unit must
# be valid, and its exposure score must be low.
# Usage: tests/cli/test_service_unit.sh [BUILD_DIR]
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build}
# shellcheck source=tests/support/check.sh
. tests/support/check.sh
mkdir -p "$dir/bin" "$dir/units"
cp "$build/latchwork" "$dir/bin/"
unit=$dir/units/latchwork@orders.service
sed "s|@PREFIX@|$dir|g" deploy/latchwork@.service >"$unit"

# usage: silent COMMAND…
# Succeeds if COMMAND succeeds and its output does not mention the unit. `systemd-analyze verify`
# succeeds even if it warns of an unknown key.
silent() {
    if "$@" >"$dir/said" 2>&1 && ! grep -qF "$dir" "$dir/said"; then return 0; fi
    cat "$dir/said"
    return 1
}
check 'the unit is valid' silent systemd-analyze verify --man=no --recursive-errors=no "$unit"
# The exposure score is a number from 0 to 10. The number in --threshold is ten times the largest
# score that is accepted. The unit cannot reach 0, because it needs the network, and because Node
# and Java write code into memory.
check 'the unit exposes little' systemd-analyze security \
    --offline=true --threshold=20 --no-pager "$unit"
has() { grep -qx "$1" "$unit"; }
check 'systemd is told when the run is ready' has 'Type=notify'
check 'systemd watches it' has 'WatchdogSec=[0-9]*'
check 'handlers cannot speak for it' has 'NotifyAccess=main'
check 'Node and Java can compile while they run' \
    sh -c "! grep -q '^MemoryDenyWriteExecute=' '$unit'"
check 'they can read /proc/meminfo' sh -c "! grep -q '^ProcSubset=' '$unit'"
# The supervisor replaces a hung worker after 90 s plus the default grace period of 30 s
# (consumer/fleet/table.c). The watchdog of systemd must wait a minute longer.
check 'a hung worker is replaced before the watchdog ends everything' \
    sh -c "[ \"\$(sed -n 's/^WatchdogSec=//p' '$unit')\" -ge 180 ]"
check 'a start that waits a minute for ready workers is no timeout' \
    sh -c "[ \"\$(sed -n 's/^TimeoutStartSec=//p' '$unit')\" -gt 60 ]"

summary
