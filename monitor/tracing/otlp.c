/* SPDX-License-Identifier: Apache-2.0 */
/* Writes spans as the body of an OTLP/HTTP request in JSON (ExportTraceServiceRequest). Ids are in
 * hex and times are strings, as OTLP prescribes; the usual JSON of protocol buffers would have
 * base64 for ids. Attributes have the names of OpenTelemetry's semantic conventions for messaging.
 * Names that begin with "latchwork." are Latchwork's own. */
#include "monitor/tracing/private.h"

#include "base/bytes.h"
#include "queue/key.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { KIND_CONSUMER = 5, STATUS_ERROR = 2, FLAG_KNOWS_REMOTE = 0x100, FLAG_IS_REMOTE = 0x200 };

/* The version of OpenTelemetry's semantic conventions from which the names of attributes are
 * taken. */
#define SCHEMA "https://opentelemetry.io/schemas/1.36.0"

struct lw_otlp {
    const struct lw_config *c;
    json_t *root, *spans;
};

/* --- attributes ------------------------------------------------------------------------------- */

/* Returns a JSON string for arbitrary bytes. If they are not valid UTF-8, which would make the
 * whole request malformed, every byte beyond ASCII becomes '?'. */
static json_t *text_json(struct lw_bytes text) {
    json_t *v = json_stringn(text.p ? text.p : "", text.n);
    if (v) return v;
    char *plain = lw_memdup(text.p, text.n);
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)plain[i] >= 0x80) plain[i] = '?';
    v = json_stringn(plain, text.n);
    free(plain);
    return v;
}

static void add(json_t *list, const char *key, const char *type, json_t *value) {
    json_array_append_new(list, json_pack("{s:s,s:{s:o}}", "key", key, "value", type, value));
}

static void add_text(json_t *list, const char *key, const char *text) {
    add(list, key, "stringValue", text_json(lw_bytes_of(text)));
}
static void add_bool(json_t *list, const char *key, bool value) {
    add(list, key, "boolValue", json_boolean(value));
}
static void add_number(json_t *list, const char *key, int64_t value) {
    add(list, key, "intValue", json_sprintf("%" PRId64, value));
}

static void add_key(json_t *list, const struct lw_config *c, const struct lw_span_record *s,
                    struct lw_bytes key) {
    char text[LW_KEY_TEXT];
    if (c->tracing.keys == LW_KEYS_HASH) {
        snprintf(text, sizeof text, "%016" PRIx64, s->key_hash);
        add_text(list, "latchwork.key_hash", text);
    } else if (c->tracing.keys == LW_KEYS_PLAIN && key.p) {
        lw_key_plain(key, text);
        add_text(list, "messaging.kafka.message.key", text);
    }
}

static void add_message(json_t *list, const struct lw_config *c, const struct lw_span_record *s,
                        const struct lw_span_texts *t) {
    char partition[16];
    snprintf(partition, sizeof partition, "%" PRId32, s->partition);
    add_text(list, "messaging.system", "kafka");
    add_text(list, "messaging.operation.type", "process");
    add_text(list, "messaging.operation.name", "process");
    add(list, "messaging.destination.name", "stringValue", text_json(t->topic));
    add_text(list, "messaging.destination.partition.id", partition);
    add_text(list, "messaging.consumer.group.name", c->kafka.group_id);
    add_number(list, "messaging.kafka.offset", s->offset);
    if (s->body >= 0)
        add_number(list, "messaging.message.body.size", s->body);
    else
        add_bool(list, "messaging.kafka.message.tombstone", true);
    add_key(list, c, s, t->key);
}

static void add_run(json_t *list, int worker, const struct lw_span_record *s) {
    add_text(list, "latchwork.outcome", s->end < LW_ENDS ? lw_end_name[s->end] : "?");
    add_number(list, "latchwork.attempt", s->attempt);
    add_number(list, "latchwork.lane.wait_ms", s->lane_ms);
    add_bool(list, "latchwork.lane.parked", s->parked);
    add_number(list, "latchwork.fence", (int64_t)s->fence);
    add_number(list, "latchwork.worker", worker);
    if (s->replay) add_number(list, "latchwork.replay", s->replay);
    if (lw_end_failed((enum lw_end)s->end)) add_text(list, "error.type", lw_end_name[s->end]);
}

/* --- one span --------------------------------------------------------------------------------- */

static json_t *hex(const uint8_t *bytes, size_t n) {
    char text[2 * LW_TRACE_ID + 1];
    lw_hex(bytes, n, text);
    return json_string(text);
}

static json_t *nanoseconds(int64_t us) { return json_sprintf("%" PRId64 "000", us); }

static bool has_parent(const struct lw_span_record *s) {
    static const uint8_t none[LW_SPAN_ID];
    return memcmp(s->parent_id, none, LW_SPAN_ID) != 0;
}

/* Returns true if a tracestate can be passed on, because it consists of printable ASCII. */
static bool is_state(struct lw_bytes state) {
    for (size_t i = 0; i < state.n; i++)
        if (state.p[i] < ' ' || state.p[i] > '~') return false;
    return state.n > 0;
}

static void set_status(json_t *span, const struct lw_span_record *s, struct lw_bytes reason) {
    if (!lw_end_failed((enum lw_end)s->end)) return;
    json_object_set_new(span, "status",
                        json_pack("{s:i,s:o}", "code", STATUS_ERROR, "message", text_json(reason)));
}

static json_t *span_json(const struct lw_config *c, int worker, const struct lw_span_record *s) {
    struct lw_span_texts t = lw_span_get_texts(s);
    json_t *span = json_object(), *attributes = json_array();
    int flags = s->context.flags | FLAG_KNOWS_REMOTE | (has_parent(s) ? FLAG_IS_REMOTE : 0);
    json_object_set_new(span, "traceId", hex(s->context.trace_id, LW_TRACE_ID));
    json_object_set_new(span, "spanId", hex(s->context.span_id, LW_SPAN_ID));
    if (has_parent(s)) json_object_set_new(span, "parentSpanId", hex(s->parent_id, LW_SPAN_ID));
    if (is_state(t.state)) json_object_set_new(span, "traceState", text_json(t.state));
    json_object_set_new(span, "flags", json_integer(flags));
    json_object_set_new(span, "name", json_sprintf("process %.*s", (int)t.topic.n, t.topic.p));
    json_object_set_new(span, "kind", json_integer(KIND_CONSUMER));
    json_object_set_new(span, "startTimeUnixNano", nanoseconds(s->start_us));
    json_object_set_new(span, "endTimeUnixNano", nanoseconds(s->end_us));
    add_message(attributes, c, s, &t);
    add_run(attributes, worker, s);
    json_object_set_new(span, "attributes", attributes);
    set_status(span, s, t.reason);
    return span;
}

/* --- the request ------------------------------------------------------------------------------ */

static json_t *resource(const struct lw_config *c, const char *host, const char *instance) {
    json_t *list = json_array();
    add_text(list, "service.name", c->tracing.service ? c->tracing.service : c->name);
    add_text(list, "service.instance.id", instance);
    add_text(list, "host.name", host);
    add_text(list, "telemetry.sdk.name", "latchwork");
    add_text(list, "telemetry.sdk.language", "c");
    add_text(list, "telemetry.sdk.version", LW_VERSION);
    return json_pack("{s:o}", "attributes", list);
}

struct lw_otlp *lw_otlp_open(const struct lw_config *c, const char *host, const char *instance) {
    struct lw_otlp *o = lw_alloc(sizeof *o);
    o->c = c;
    o->spans = json_array();
    o->root = json_pack("{s:[{s:o,s:[{s:{s:s,s:s},s:o,s:s}]}]}", "resourceSpans", "resource",
                        resource(c, host, instance), "scopeSpans", "scope", "name", "latchwork",
                        "version", LW_VERSION, "spans", o->spans, "schemaUrl", SCHEMA);
    lw_or_abort(o->root);
    return o;
}

void lw_otlp_add(struct lw_otlp *o, int worker, const struct lw_span_record *s) {
    json_array_append_new(o->spans, span_json(o->c, worker, s));
}

char *lw_otlp_close(struct lw_otlp *o) {
    char *text = lw_or_abort(json_dumps(o->root, JSON_COMPACT));
    json_decref(o->root);
    free(o);
    return text;
}
