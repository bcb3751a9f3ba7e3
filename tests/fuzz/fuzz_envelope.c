/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of waiting lists: what the decoder accepts, the encoder writes in a form that decodes to
 * the same message. Messages for `queue import` come the other way, from JSON. */
#include "ops/ops.h"
#include "queue/envelope.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static bool same(struct lw_bytes a, struct lw_bytes b) { return !a.p == !b.p && lw_bytes_eq(a, b); }

static void round_trip(struct lw_bytes in) {
    struct lw_envelope first, second;
    struct lw_buf text = {0};
    struct lw_err err = {0};
    if (lw_envelope_decode(in, &first, &err)) {
        HOLDS(err.text[0]);
        return;
    }
    lw_envelope_encode(&first, &text);
    HOLDS(!lw_envelope_decode(lw_bytes(text.p, text.n), &second, &err));
    HOLDS(same(first.topic, second.topic) && same(first.key, second.key));
    HOLDS(same(first.dedup, second.dedup) && same(first.payload, second.payload));
    HOLDS(first.partition == second.partition && first.offset == second.offset);
    HOLDS(first.replay == second.replay && first.first_ms == second.first_ms);
    HOLDS(first.timestamp_ms == second.timestamp_ms && first.n_headers == second.n_headers);
    for (size_t i = 0; i < first.n_headers; i++)
        HOLDS(same(first.headers[i].name, second.headers[i].name) &&
              same(first.headers[i].value, second.headers[i].value));
    lw_envelope_clear(&first);
    lw_envelope_clear(&second);
    lw_buf_free(&text);
}

static void from_json(const uint8_t *data, size_t size) {
    struct lw_buf out = {0};
    struct lw_err err = {0};
    struct lw_envelope e;
    json_t *v = json_loadb((const char *)data, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (v && !ops_message_from_json(v, 1764000000000, &out, &err)) {
        HOLDS(!lw_envelope_decode(lw_bytes(out.p, out.n), &e, &err));
        lw_envelope_clear(&e);
    } else if (v) {
        HOLDS(err.text[0]);
    }
    json_decref(v);
    lw_buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    round_trip(lw_bytes((const char *)data, size));
    from_json(data, size);
    return 0;
}
