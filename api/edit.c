/* SPDX-License-Identifier: Apache-2.0 */
/* Answers POST dead/ID/edit, which changes the payload of a dead letter. */
#include "api/private.h"
#include "ops/dead/dead.h"

#include <stdlib.h>
#include <string.h>

/* --- edit ------------------------------------------------------------------------------------- */

struct edit {
    struct api_call *k;
    struct lw_bytes payload; /* the payload after the edit */
    bool found, valid, changed;
    char id[OPS_DEAD_ID]; /* the letter's id after the edit; "" if dead_store() wrote nothing */
    json_t *answer;
};

static void describe(struct edit *e, const struct ops_message *m, const char *error) {
    e->answer = json_pack("{s:b,s:b}", "valid", e->valid, "changed", e->changed);
    if (error[0]) json_object_set_new(e->answer, "error", json_string(error));
    api_set_payload(e->k, e->answer, "old", m->e.payload);
    api_set_payload(e->k, e->answer, "new", e->payload);
}

static int edit_one(struct ops *o, struct ops_message *m, void *ctx) {
    struct edit *e = ctx;
    struct lw_err err = {0};
    e->found = true;
    e->valid = dead_payload_check(m, e->payload, &err) == 0;
    e->changed = !lw_bytes_eq(e->payload, m->e.payload) || !m->e.payload.p;
    snprintf(e->id, sizeof e->id, "%s", m->id);
    describe(e, m, err.text);
    if (!e->k->execute || !e->valid || !e->changed) return 1;
    return dead_store(o, m, e->payload, e->id) ? -1 : 1;
}

/* Reads the new payload from the request's body, which contains it as text or in base64. The caller
 * must free *out, even after a failure. */
static bool take_payload(struct api_call *k, struct lw_buf *out) {
    const json_t *text = json_object_get(k->body, "payload"),
                 *base64 = json_object_get(k->body, "payload_base64");
    lw_buf_add(out, "", 0);
    if (!text == !base64) {
        lw_http_error(k->a, 400, "use either \"payload\" or \"payload_base64\"");
        return false;
    }
    if (text) return lw_buf_add(out, json_string_value(text), json_string_length(text)), true;
    if (ops_base64_decode(json_string_value(base64), json_string_length(base64), out) == 0)
        return true;
    lw_http_error(k->a, 400, "payload_base64: expected base64");
    return false;
}

/* If the request asks for a replay, replays the dead letter. Then sends the response, which
 * describes the edit. */
static int finish(struct api_call *k, struct edit *e) {
    bool stored = k->execute && e->valid && e->changed;
    if (k->execute && !e->valid) {
        lw_http_error(k->a, 400, "%s", json_string_value(json_object_get(e->answer, "error")));
        json_decref(e->answer);
        return 0;
    }
    json_object_set_new(e->answer, "id", json_string(e->id));
    json_object_set_new(e->answer, "result",
                        json_string(stored       ? "edited"
                                    : k->execute ? "not changed"
                                                 : "would be edited"));
    json_t *replayed = NULL;
    int bad = k->execute && json_is_true(json_object_get(k->body, "replay"))
                  ? api_replay_one(k, e->id, &replayed)
                  : 0;
    /* If the replay fails, the edit is kept. The edited letter has a new id, so the response must
     * contain that id even then. */
    if (bad) {
        json_object_set_new(e->answer, "replay_error", json_string(k->o->err.text));
        k->o->err = (struct lw_err){0};
    }
    if (replayed) json_object_set_new(e->answer, "replayed", replayed);
    api_put(k, e->answer);
    return 0;
}

int api_edit(struct api_call *k) {
    struct ops *o = k->o;
    char by[API_WHO], *id = (char *)(uintptr_t)k->segment[1];
    struct lw_buf payload = {0};
    struct edit e = {.k = k};
    if (k->c->http.payloads != LW_PAYLOADS_SHOW) {
        lw_http_error(k->a, 403,
                      "http.payloads is not \"show\", so payloads cannot be edited here; use "
                      "`latchwork dead edit`");
        return 0;
    }
    if (!take_payload(k, &payload)) return lw_buf_free(&payload), 0;
    e.payload = lw_bytes(payload.p ? payload.p : "", payload.n);
    o->noun = "dead", o->verb = "edit", o->who = api_who(k, by);
    o->args.words = &id, o->args.n_words = 1;
    o->args.again = json_is_true(json_object_get(k->body, "again"));
    int stop = dead_each(o, edit_one, &e);
    o->verb = NULL, o->who = NULL;
    lw_buf_free(&payload);
    if (stop < 0) {
        json_decref(e.answer);
        return -1;
    }
    if (e.found) return finish(k, &e);
    lw_http_error(k->a, 404, OPS_NO_LETTER);
    return 0;
}
