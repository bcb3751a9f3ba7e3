/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/http/counts.h"

#include <assert.h>
#include <stdbool.h>

const char *const lw_http_code_name[LW_HTTP_CODES] = {
    "unreached", "tls", "timeout", "broken", "cancelled", "200", "201", "202", "204",
    "2xx",       "3xx", "400",     "401",    "403",       "404", "408", "409", "412",
    "413",       "422", "429",     "4xx",    "500",       "502", "503", "504", "5xx",
};
const char *const lw_http_breaker_name[LW_HTTP_BREAKERS] = {"closed", "open", "half_open"};

/* Returns true if the label is this status in digits, such as "404", and not a class such as
 * "4xx". */
static bool names(const char *label, int status) {
    return status < 1000 && label[0] == '0' + status / 100 && label[1] == '0' + status / 10 % 10 &&
           label[2] == '0' + status % 10;
}

int lw_http_code_of(int status) {
    int class = status / 100 < 2 ? 2 : status / 100 > 5 ? 5 : status / 100;
    for (int i = LW_HTTP_STATUS; i < LW_HTTP_CODES; i++) {
        const char *name = lw_http_code_name[i];
        if (name[1] == 'x' ? name[0] - '0' == class : names(name, status)) return i;
    }
    assert(!"every class has a label");
    return LW_HTTP_BROKEN;
}
