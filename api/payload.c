/* SPDX-License-Identifier: Apache-2.0 */
/* Converts messages to JSON and shows only as much of a payload as the setting http.payloads
 * allows. Every payload in a response of the API passes through these functions. */
#include "api/private.h"
#include "ops/payload.h"

static void set_flag(json_t *v, const char *name, const char *flag) {
    char full[64];
    snprintf(full, sizeof full, "%s_%s", name, flag);
    json_object_set_new(v, full, json_true());
}

void api_set_payload(const struct api_call *k, json_t *v, const char *name,
                     struct lw_bytes payload) {
    struct lw_buf shown = {0};
    enum lw_payload_view view = lw_payload_shown(k->c, payload, &shown);
    struct lw_bytes text = view == LW_PAYLOAD_SHOWN ? payload : lw_bytes(shown.p, shown.n);
    if (text.n > API_PAYLOAD_MAX) text.n = API_PAYLOAD_MAX;
    if (view == LW_PAYLOAD_HIDDEN) text = lw_bytes(NULL, 0);
    ops_set_bytes(v, name, text);
    if (view != LW_PAYLOAD_SHOWN)
        set_flag(v, name, view == LW_PAYLOAD_HIDDEN ? "hidden" : "masked");
    lw_buf_free(&shown);
}

/* Returns the JSON of a message whose envelope cannot be decoded. Any part of such an envelope may
 * be payload, so the JSON contains the envelope only if http.payloads is "show". */
static json_t *unreadable(const struct api_call *k, const struct ops_message *m,
                          size_t payload_max) {
    struct ops_message view = *m;
    bool hidden = k->c->http.payloads != LW_PAYLOADS_SHOW;
    if (hidden) view.raw = (struct lw_bytes){0};
    json_t *v = ops_message_json(&view, payload_max);
    if (hidden) set_flag(v, "payload", "hidden");
    return v;
}

json_t *api_message_json(const struct api_call *k, const struct ops_message *m,
                         size_t payload_max) {
    if (m->bad) return unreadable(k, m, payload_max);
    struct lw_buf shown = {0};
    struct ops_message view = *m;
    enum lw_payload_view how = lw_payload_shown(k->c, m->e.payload, &shown);
    if (how == LW_PAYLOAD_MASKED) view.e.payload = lw_bytes(shown.p, shown.n);
    if (how == LW_PAYLOAD_HIDDEN) view.e.payload = (struct lw_bytes){0};
    json_t *v = ops_message_json(&view, payload_max);
    if (how == LW_PAYLOAD_HIDDEN)
        json_object_set_new(v, "payload_size", json_integer((json_int_t)m->e.payload.n));
    if (how != LW_PAYLOAD_SHOWN)
        set_flag(v, "payload", how == LW_PAYLOAD_HIDDEN ? "hidden" : "masked");
    lw_buf_free(&shown);
    return v;
}
