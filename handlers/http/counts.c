/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/http/counts.h"

#include <assert.h>
#include <stdlib.h>

const char *const lw_http_code_name[LW_HTTP_CODES] = {
    "unreached", "tls", "timeout", "broken", "cancelled", "200", "201", "202", "204", "2xx", "3xx", "400", "401", "403",
    "404",       "408", "409",     "412",    "413",       "422", "429", "4xx", "500", "502", "503", "504", "5xx",
};
const char *const lw_http_breaker_name[LW_HTTP_BREAKERS] = {"closed", "open", "half_open"};

/* Returns the index of the label for a status, such as "404", or else of the label for its class, such as "4xx". */
int lw_http_code_of(int status) {
    int class = status / 100 < 2 ? 2 : status / 100 > 5 ? 5 : status / 100;
    for (int i = LW_HTTP_STATUS; i < LW_HTTP_CODES; i++) {
        const char *name = lw_http_code_name[i];
        if (name[1] == 'x' ? name[0] - '0' == class : atoi(name) == status) return i;
    }
    assert(!"every class has a label");
    return LW_HTTP_BROKEN;
}
