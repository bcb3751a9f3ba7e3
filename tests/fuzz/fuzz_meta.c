/* SPDX-License-Identifier: Apache-2.0 */
/* Commit metadata: what is decoded comes back the same when it is encoded again. */
#include "kafka/anchor.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char fleet[LW_FLEET + 1], again_fleet[LW_FLEET + 1], out[LW_META_TEXT];
    struct lw_anchor a, again;
    lw_meta_decode((const char *)data, size, fleet, &a);
    size_t n = lw_meta_encode(fleet, &a, out);
    HOLDS(n < sizeof out && n == strlen(out));
    lw_meta_decode(out, n, again_fleet, &again);
    HOLDS(!strcmp(fleet, again_fleet) && again.offset == a.offset);
    HOLDS(a.offset < 0 || (again.timestamp_ms == a.timestamp_ms && again.hash == a.hash));
    return 0;
}
