/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations: a file is refused with problems that are lines of text, or it can be printed. */
#include "cli/check/check.h"
#include "config/config.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lw_problems problems = {.check_handler = lw_config_check_handler};
    struct lw_buf text = {0};
    struct lw_config *c =
        lw_config_parse("fuzz.json", (const char *)data, size, NULL, 0, &problems);
    HOLDS(!c == (problems.n_errors > 0));
    HOLDS(!problems.errors.n || problems.errors.p[problems.errors.n - 1] == '\n');
    if (c) {
        lw_config_print(c, &text);
        HOLDS(text.n);
        lw_config_free(c);
    }
    lw_buf_free(&text);
    lw_buf_free(&problems.errors);
    lw_buf_free(&problems.warnings);
    return 0;
}
