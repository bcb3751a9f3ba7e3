/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of Redis servers, and trace contexts: what is accepted can be written and read
 * again. */
#include "base/redis/url.h"
#include "base/trace_context.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void check_url(const char *text) {
    struct lw_redis_url url, copy;
    struct lw_err err = {0};
    char where[300];
    char *shown = lw_url_redact(text);
    HOLDS(shown);
    if (!lw_redis_url_parse(text, &url, &err)) {
        HOLDS(url.path ? !url.host : url.host && url.port > 0 && url.port < 65536);
        HOLDS(strlen(lw_redis_url_where(&url, where, sizeof where)) < sizeof where);
        HOLDS(!lw_redis_url_copy(&url, &copy, &err));
        lw_redis_url_free(&copy);
        lw_redis_url_free(&url);
    } else {
        HOLDS(err.text[0]);
    }
    free(shown);
    if (!lw_redis_address_parse(text, 26379, &url, &err)) {
        HOLDS(url.host && url.port > 0 && url.port < 65536);
        lw_redis_url_free(&url);
    }
}

static void check_trace(const uint8_t *data, size_t size) {
    struct lw_trace_context first, second;
    char text[LW_TRACEPARENT + 1];
    if (!lw_traceparent_read(lw_bytes((const char *)data, size), &first)) return;
    lw_traceparent_write(&first, text);
    HOLDS(lw_traceparent_read(lw_bytes(text, strlen(text)), &second));
    HOLDS(!memcmp(first.trace_id, second.trace_id, LW_TRACE_ID));
    HOLDS(!memcmp(first.span_id, second.span_id, LW_SPAN_ID));
    (void)lw_trace_ratio(first.trace_id, 0.5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char text[4096];
    if (size >= sizeof text) return -1;
    memcpy(text, data, size);
    text[size] = '\0';
    check_url(text);
    check_trace(data, size);
    return 0;
}
