/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/epoch.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void lw_epoch_id(int64_t wall_ms, uint64_t random1, uint64_t random2, char out[LW_EPOCH_ID]) {
    assert(out);
    snprintf(out, LW_EPOCH_ID, "%011" PRIx64 "%05" PRIx64 "%016" PRIx64,
             (uint64_t)wall_ms & 0xfffffffffff, random1 & 0xfffff, random2);
    assert(strlen(out) == LW_EPOCH_ID - 1);
}
