/* SPDX-License-Identifier: Apache-2.0 */
/* Lines that an exec handler writes: a line is an answer as a whole or refused with a reason. */
#include "handlers/exec/line.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lw_exec_said said = {0};
    struct lw_err err = {0};
    /* The second half is read into the same structure, as the next line of the process would be. */
    size_t half = size / 2;
    struct lw_bytes lines[] = {lw_bytes((const char *)data, size),
                               lw_bytes((const char *)data + half, size - half)};
    for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
        err.text[0] = '\0';
        if (lw_exec_read(&said, lines[l], &err)) {
            HOLDS(err.text[0]);
            continue;
        }
        HOLDS(said.hello || said.n > 0);
        for (size_t i = 0; !said.hello && i < said.n; i++) {
            HOLDS(said.answers[i].id.p);
            HOLDS(said.answers[i].outcome == LW_DONE || said.answers[i].outcome == LW_RETRY ||
                  said.answers[i].outcome == LW_DEAD);
        }
    }
    (void)lw_exec_begun(lines[0]);
    lw_exec_said_free(&said);
    return 0;
}
