/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a message from a waiting list or the dead letters, and converts it to and from one line
 * of JSON. */
#include "handlers/json_text.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- identities ------------------------------------------------------------------------------- */

void ops_identity(const struct lw_envelope *e, char *out, size_t size) {
    int n = snprintf(out, size, "%.*s/%d/%" PRId64, (int)e->topic.n, e->topic.p ? e->topic.p : "",
                     (int)e->partition, e->offset);
    if (e->replay && n > 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, "#%" PRId64, e->replay);
}

const char *ops_dead_entry(const struct ops_message *m, char out[OPS_DEAD_ID]) {
    if (m->in_topic)
        ops_identity(&m->e, out, OPS_DEAD_ID);
    else
        snprintf(out, OPS_DEAD_ID, "%s", strchr(m->id, ':') + 1);
    return out;
}

bool ops_topic_ok(const char *name) {
    size_t n = strlen(name);
    return n > 0 && n < 250 && strspn(name, LW_PLAIN) == n;
}

int ops_identity_parse(const char *text, char topic[256], int32_t *partition, int64_t *offset,
                       int64_t *replay) {
    const char *slash = strchr(text, '/');
    if (!slash || slash == text || slash - text > 249) return -1;
    memcpy(topic, text, (size_t)(slash - text));
    topic[slash - text] = 0;
    char *end;
    long long p = strtoll(slash + 1, &end, 10);
    if (end == slash + 1 || *end != '/' || p < 0 || p > INT32_MAX) return -1;
    const char *at = end + 1;
    *partition = (int32_t)p;
    *offset = strtoll(at, &end, 10);
    *replay = 0;
    if (end == at || *offset < 0) return -1;
    if (*end == '#') {
        at = end + 1;
        *replay = strtoll(at, &end, 10);
        if (end == at || *replay < 1) return -1;
    }
    return *end ? -1 : 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

bool ops_message_read(struct ops_message *m, struct lw_bytes raw) {
    struct lw_err err = {0};
    m->raw = raw;
    m->bad = lw_envelope_decode(raw, &m->e, &err) != 0;
    return !m->bad;
}

void ops_message_clear(struct ops_message *m) { lw_envelope_clear(&m->e); }

int ops_lane_of(const struct ops *o, const struct lw_envelope *e, struct lw_buf *scratch,
                struct lw_bytes *key, struct lw_bytes *lane, struct lw_err *err) {
    struct lw_record r = {
        .key = e->key, .payload = e->payload, .headers = e->headers, .n_headers = e->n_headers};
    struct lw_buf found = {0};
    struct lw_bytes k;
    const struct lw_record_at at = {e->topic, e->partition, e->offset};
    int bad = lw_key_of(o->c, &r, &at, &found, &k, err) != LW_KEY_OK ? -1 : 0;
    if (!bad) {
        /* the key and then the lane's name are copied into `scratch`; *key and *lane point to these
         * copies */
        char room[LW_LANE_ROOM];
        struct lw_bytes l = lw_lane_id(k, room, sizeof room);
        size_t n = k.n;
        scratch->n = 0;
        lw_buf_add(scratch, k.p, k.n);
        lw_buf_add(scratch, l.p, l.n);
        lw_buf_add(scratch, "", 1);
        *key = lw_bytes(scratch->p, n);
        *lane = lw_bytes(scratch->p + n, l.n);
    }
    lw_buf_free(&found);
    return bad;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static bool all_text(const struct lw_envelope *e) {
    for (size_t i = 0; i < e->n_headers; i++)
        if (!lw_utf8_ok(e->headers[i].name) ||
            (e->headers[i].value.p && !lw_utf8_ok(e->headers[i].value)))
            return false;
    return true;
}

static json_t *bytes_json(struct lw_bytes b, bool text) {
    if (!b.p) return json_null();
    if (text) return json_stringn(b.p, b.n);
    struct lw_buf out = {0};
    lw_json_base64(&out, b);
    json_t *s = json_stringn(out.p + 1, out.n - 2);
    lw_buf_free(&out);
    return s;
}

/* Sets the headers in the form that kcat uses: name, value, name, value… */
static void set_headers(json_t *o, const struct lw_envelope *e) {
    if (!e->n_headers) return;
    bool text = all_text(e);
    json_t *list = json_array();
    for (size_t i = 0; i < e->n_headers; i++) {
        json_array_append_new(list, bytes_json(e->headers[i].name, text));
        json_array_append_new(list, bytes_json(e->headers[i].value, text));
    }
    json_object_set_new(o, text ? "headers" : "headers_base64", list);
}

static struct lw_bytes cut(struct lw_bytes b, size_t most) {
    if (!b.p || b.n <= most) return b;
    size_t n = most;
    while (n > 0 && ((unsigned char)b.p[n] & 0xc0) == 0x80 && most - n < 4) n--;
    return lw_bytes(b.p, n);
}

json_t *ops_message_json(const struct ops_message *m, size_t payload_max) {
    json_t *o = json_object();
    const struct lw_envelope *e = &m->e;
    char identity[320];
    if (m->bad) {
        ops_set_bytes(o, "envelope", m->raw);
    } else {
        json_object_set_new(o, "topic", json_stringn(e->topic.p, e->topic.n));
        json_object_set_new(o, "partition", json_integer(e->partition));
        json_object_set_new(o, "offset", json_integer(e->offset));
        json_object_set_new(o, "tstype", json_string(e->timestamp_ms >= 0 ? "create" : "unknown"));
        json_object_set_new(o, "ts", json_integer(e->timestamp_ms));
        set_headers(o, e);
        ops_set_bytes(o, "key", e->key);
        ops_set_bytes(o, "payload", cut(e->payload, payload_max));
        if (e->payload.n > payload_max)
            json_object_set_new(o, "payload_size", json_integer((json_int_t)e->payload.n));
        ops_identity(e, identity, sizeof identity);
        json_object_set_new(o, "identity", json_string(identity));
        if (e->replay) json_object_set_new(o, "replay", json_integer(e->replay));
        json_object_set_new(o, "first_ms", json_integer(e->first_ms));
        if (e->dedup.n) ops_set_bytes(o, "dedup", e->dedup);
    }
    json_object_set_new(o, "attempts", json_integer(m->attempts));
    if (m->lane.p && (m->bad || !lw_bytes_eq(m->lane, e->key))) ops_set_bytes(o, "lane", m->lane);
    json_object_set_new(o, "shard", json_integer(m->shard));
    if (m->due_ms) json_object_set_new(o, "due_ms", json_integer(m->due_ms));
    if (m->id[0]) {
        json_object_set_new(o, "id", json_string(m->id));
        ops_set_bytes(o, "reason", m->reason);
        if (m->first_ms) json_object_set_new(o, "tried_first_ms", json_integer(m->first_ms));
        json_object_set_new(o, "died_ms", json_integer(m->last_ms));
        if (m->edited_by.p) {
            ops_set_bytes(o, "edited_by", m->edited_by);
            json_object_set_new(o, "edited_ms", json_integer(m->edited_ms));
        }
        if (m->taken_ms) json_object_set_new(o, "taken_ms", json_integer(m->taken_ms));
    }
    return o;
}

/* --- JSON back to an envelope ----------------------------------------------------------------- */

static int sextet(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int ops_base64_decode(const char *s, size_t n, struct lw_buf *out) {
    if (n % 4) return -1;
    for (size_t i = 0; i < n; i += 4) {
        int pad = i + 4 == n ? (s[i + 3] == '=') + (s[i + 3] == '=' && s[i + 2] == '=') : 0;
        int v = 0;
        for (int k = 0; k < 4; k++) {
            int x = k >= 4 - pad ? 0 : sextet(s[i + (size_t)k]);
            if (x < 0) return -1;
            v = v << 6 | x;
        }
        char three[3] = {(char)(v >> 16), (char)(v >> 8), (char)v};
        lw_buf_add(out, three, (size_t)(3 - pad));
    }
    return 0;
}

/* Copies the bytes of a string into `own`. The buffer must already have room for the bytes. If it
 * had to grow, it might be moved, and earlier pointers into it would become invalid. */
static int take_text(const json_t *v, bool is_base64, struct lw_buf *own, struct lw_bytes *out) {
    *out = (struct lw_bytes){0};
    if (!v || json_is_null(v)) return 0;
    if (!json_is_string(v)) return -1;
    size_t at = own->n, n = json_string_length(v);
    /* a byte is added first, so that the buffer is allocated and the pointer is not NULL even if
     * the text is empty */
    lw_buf_add(own, "", 1);
    own->n--;
    if (is_base64 && ops_base64_decode(json_string_value(v), n, own)) return -1;
    if (!is_base64) lw_buf_add(own, json_string_value(v), n);
    *out = lw_bytes(own->p + at, own->n - at);
    return 0;
}

static int take_bytes(const json_t *o, const char *name, struct lw_buf *own, struct lw_bytes *out,
                      struct lw_err *err) {
    char other[64];
    snprintf(other, sizeof other, "%s_base64", name);
    const json_t *coded = json_object_get(o, other);
    if (take_text(coded ? coded : json_object_get(o, name), coded != NULL, own, out))
        return lw_fail(err, "%s: expected %s", coded ? other : name,
                       coded ? "base64" : "a string or null");
    return 0;
}

static int take_int(const json_t *o, const char *name, int64_t min, int64_t otherwise, int64_t *out,
                    struct lw_err *err) {
    const json_t *v = json_object_get(o, name);
    *out = otherwise;
    if (!v && otherwise >= min) return 0;
    if (!v) return lw_fail(err, "%s is missing", name);
    if (!json_is_integer(v)) return lw_fail(err, "%s: expected an integer", name);
    if (json_integer_value(v) < min)
        return lw_fail(err, "%s is %" JSON_INTEGER_FORMAT "; expected at least %" PRId64, name,
                       json_integer_value(v), min);
    *out = json_integer_value(v);
    return 0;
}

static int take_headers(const json_t *o, struct lw_envelope *e, struct lw_buf *own,
                        struct lw_err *err) {
    const json_t *coded = json_object_get(o, "headers_base64"),
                 *list = coded ? coded : json_object_get(o, "headers");
    if (!list || json_is_null(list)) return 0;
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n % 2)
        return lw_fail(err, "headers: expected a list of names and values");
    if (!n) return 0;
    e->headers = lw_alloc(n / 2 * sizeof *e->headers);
    e->n_headers = n / 2;
    for (size_t i = 0; i < n / 2; i++)
        if (take_text(json_array_get(list, 2 * i), coded != NULL, own, &e->headers[i].name) ||
            !e->headers[i].name.p ||
            take_text(json_array_get(list, 2 * i + 1), coded != NULL, own, &e->headers[i].value))
            return lw_fail(err, "header %zu: name and value must be %s", i + 1,
                           coded ? "base64" : "strings");
    return 0;
}

static size_t room_for(const json_t *o) {
    size_t n = 64;
    const char *name;
    json_t *v, *h;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)o, name, v) n += json_string_length(v) + 1;
    json_array_foreach(json_object_get(o, "headers"), i, h) n += json_string_length(h) + 1;
    json_array_foreach(json_object_get(o, "headers_base64"), i, h) n += json_string_length(h) + 1;
    return n;
}

static int fill(const json_t *o, struct lw_envelope *e, struct lw_buf *own, int64_t now_ms,
                struct lw_err *err) {
    int64_t partition;
    const char *topic = json_string_value(json_object_get(o, "topic"));
    if (!topic || !*topic) return lw_fail(err, "topic is missing");
    if (!ops_topic_ok(topic))
        return lw_fail(err,
                       "topic: expected a topic's name, which has at most 249 letters, digits, "
                       "dots, underscores and dashes");
    e->topic = lw_bytes_of(topic);
    if (take_int(o, "partition", 0, -1, &partition, err) ||
        take_int(o, "offset", 0, -1, &e->offset, err))
        return -1;
    if (partition > INT32_MAX)
        return lw_fail(err, "partition is %" PRId64 "; expected at most %d", partition, INT32_MAX);
    e->partition = (int32_t)partition;
    if (take_int(o, "replay", 0, 0, &e->replay, err) ||
        take_int(o, "ts", INT64_MIN + 1, -1, &e->timestamp_ms, err) ||
        take_int(o, "first_ms", INT64_MIN + 1, now_ms, &e->first_ms, err))
        return -1;
    if (json_object_get(o, "payload_size"))
        return lw_fail(err,
                       "payload: this one was cut when it was printed; use the output of export");
    return take_bytes(o, "key", own, &e->key, err) ||
                   take_bytes(o, "payload", own, &e->payload, err) ||
                   take_bytes(o, "dedup", own, &e->dedup, err) || take_headers(o, e, own, err)
               ? -1
               : 0;
}

int ops_message_from_json(const json_t *o, int64_t now_ms, struct lw_buf *out, struct lw_err *err) {
    struct lw_envelope e = {0};
    struct lw_buf own = {0};
    if (!json_is_object(o)) return lw_fail(err, "expected a JSON object");
    size_t room = room_for(o);
    own.p = lw_alloc(room);
    own.cap = room;
    int bad = fill(o, &e, &own, now_ms, err);
    if (!bad) lw_envelope_encode(&e, out);
    free(e.headers);
    lw_buf_free(&own);
    return bad;
}
