/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the API: the first byte chooses the path. The parameters and the body of a request
 * are refused with a reason, or fit the route's description. */
#include "api/private.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* Gives each route all of its parameters with the text as their value. */
static void check_params(const struct api_route *route, const char *text) {
    struct ops o = {.args = {.limit = -1, .partition = -1, .attempts = -1, .older_ms = -1}};
    struct lw_http_answer answer = {0};
    struct api_call k = {.o = &o, .route = route, .a = &answer};
    for (size_t i = 0; i < api_n_params; i++) {
        struct lw_err err = {0};
        if (api_take(&k, route->params, api_params[i].name, text, &err)) HOLDS(err.text[0]);
    }
    (void)api_filter_ok(&k);
    lw_buf_free(&answer.body);
}

static void check_body(const struct api_route *route, const char *text, size_t n) {
    struct lw_err err = {0};
    if (!route->body) return;
    json_t *body = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    json_t *schema = api_body_schema(route);
    if (!api_fits(schema, body, &err)) HOLDS(!body || err.text[0]);
    json_decref(schema);
    json_decref(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char text[4096];
    if (!size || size > sizeof text) return -1;
    const struct api_route *route = &api_routes[data[0] % api_n_routes];
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    check_params(route, text);
    check_body(route, text, size - 1);
    return 0;
}
