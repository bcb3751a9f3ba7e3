/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/shares.h"

#include "base/redis/reply.h"
#include "ops/fleet.h"

#include <stdlib.h>
#include <string.h>

static const double MOST = 9007199254740992.0; /* 2^53, up to which JSON readers are exact */

/* --- rows ------------------------------------------------------------------------------------- */

static void add_figures(struct ops_share *to, const struct ops_share *from) {
    to->running += from->running;
    to->busy_ms += from->busy_ms;
    to->per_second += from->per_second;
}

void ops_shares_add(struct ops_shares *s, const struct ops_share *one) {
    if (!one->name.p) {
        add_figures(&s->all, one);
        return;
    }
    s->row = lw_more(s->row, s->n, &s->cap, sizeof s->row[0]);
    s->row[s->n] = *one;
    s->row[s->n++].name = lw_bytes(lw_memdup(one->name.p, one->name.n), one->name.n);
}

static int by_name(const void *a, const void *b) {
    const struct ops_share *x = a, *y = b;
    return lw_bytes_order(x->name, y->name);
}

static int by_time(const void *a, const void *b) {
    const struct ops_share *x = a, *y = b;
    if (x->busy_ms != y->busy_ms) return x->busy_ms < y->busy_ms ? 1 : -1;
    return by_name(a, b);
}

static void free_name(struct ops_share *one) { free((void *)(uintptr_t)one->name.p); }

void ops_shares_sum(struct ops_shares *s) {
    size_t n = 0;
    if (s->n) qsort(s->row, s->n, sizeof s->row[0], by_name);
    for (size_t i = 0; i < s->n; i++) {
        if (n && !by_name(&s->row[n - 1], &s->row[i])) {
            add_figures(&s->row[n - 1], &s->row[i]);
            free_name(&s->row[i]);
        } else {
            s->row[n++] = s->row[i];
        }
    }
    s->n = n;
}

const struct ops_share *ops_shares_find(const struct ops_shares *s, struct lw_bytes name) {
    const struct ops_share key = {.name = name};
    return s->n ? bsearch(&key, s->row, s->n, sizeof key, by_name) : NULL;
}

void ops_shares_free(struct ops_shares *s) {
    for (size_t i = 0; i < s->n; i++) free_name(&s->row[i]);
    free(s->row);
    *s = (struct ops_shares){0};
}

/* --- the text of a supervisor ----------------------------------------------------------------- */

static json_t *to_json(const struct ops_share *one) {
    json_t *j = json_pack("{s:I,s:I,s:f}", "running", (json_int_t)one->running, "busy_ms",
                          (json_int_t)one->busy_ms, "per_second", one->per_second);
    if (one->name.p) ops_set_bytes(j, "group", one->name);
    return j;
}

static char *dump(const json_t *j) { return json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(6)); }

void ops_shares_text(struct lw_buf *out, struct ops_shares *s) {
    enum { REST = 200 }; /* room for all that is not a group */
    json_t *groups = json_array();
    size_t n = 0, bytes = REST;
    if (s->n) qsort(s->row, s->n, sizeof s->row[0], by_time);
    for (; n < s->n; n++) {
        json_t *one = to_json(&s->row[n]);
        char *text = dump(one);
        bytes += strlen(text) + 1;
        free(text);
        if (bytes > OPS_SHARES_BYTES) {
            json_decref(one);
            break;
        }
        json_array_append_new(groups, one);
    }
    json_t *j = json_pack("{s:o,s:o,s:b}", "all", to_json(&s->all), "groups", groups, "complete",
                          (int)(s->complete && n == s->n));
    char *text = dump(j);
    json_decref(j);
    lw_buf_add(out, text, strlen(text));
    free(text);
}

static bool number(const json_t *j, const char *name, double *out) {
    const json_t *v = json_object_get(j, name);
    *out = json_number_value(v);
    return json_is_number(v) && *out >= 0 && *out <= MOST;
}

/* Reads the figures, and the name of a group if there is one; `room` holds the bytes of the name.
 * Returns false if they are malformed. */
static bool from_json(const json_t *j, struct lw_buf *room, struct ops_share *one) {
    double running, busy_ms, per_second;
    const json_t *text = json_object_get(j, "group"), *base64 = json_object_get(j, "group_base64");
    if (!number(j, "running", &running) || !number(j, "busy_ms", &busy_ms) ||
        !number(j, "per_second", &per_second))
        return false;
    *one = (struct ops_share){
        .running = (int64_t)running, .busy_ms = (int64_t)busy_ms, .per_second = per_second};
    room->n = 0;
    if (json_is_string(text))
        lw_buf_add(room, json_string_value(text), json_string_length(text));
    else if (!json_is_string(base64) ||
             ops_base64_decode(json_string_value(base64), json_string_length(base64), room))
        return !text && !base64;
    one->name = lw_bytes(room->p ? room->p : "", room->n);
    return room->n <= LW_LANE_ROOM;
}

bool ops_shares_take(struct ops_shares *s, struct lw_bytes text) {
    json_t *said = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL), *j;
    const json_t *groups = json_object_get(said, "groups"),
                 *complete = json_object_get(said, "complete");
    struct lw_buf room = {0};
    struct ops_share all, one;
    size_t i, before = s->n;
    bool ok = from_json(json_object_get(said, "all"), &room, &all) && !all.name.p &&
              json_is_array(groups) && json_is_boolean(complete);
    json_array_foreach(ok ? groups : NULL, i, j) {
        ok = from_json(j, &room, &one) && one.name.p;
        if (!ok) break;
        ops_shares_add(s, &one);
    }
    if (ok) {
        ops_shares_add(s, &all);
        s->complete &= json_is_true(complete);
    }
    while (!ok && s->n > before) free_name(&s->row[--s->n]);
    json_decref(said);
    lw_buf_free(&room);
    return ok;
}

/* --- the fleet -------------------------------------------------------------------------------- */

int ops_shares_read(struct ops *o, struct ops_shares *out) {
    struct ops_shard *home = &o->shards[0];
    *out = (struct ops_shares){0};
    ops_script(o, &lw_op_fleet, 1), ops_keys(o, home, "fleet");
    ops_fleet_args(&o->cmd, "", lw_bytes("", 0), OPS_FLEET_SHARES, lw_bytes("", 0));
    redisReply *r = ops_ask_for(o, home, REDIS_REPLY_ARRAY);
    if (!r) return -1;
    int64_t now_ms = ops_fleet_now(r, &o->err);
    size_t n = now_ms < 0 ? 0 : (r->elements - 2) / 3;
    out->complete = n > 0 && r->element[1]->integer == (long long)n;
    for (size_t i = 0; i < n; i++) {
        redisReply *const *entry = &r->element[2 + 3 * i];
        double ago_ms = (double)now_ms - strtod(entry[1]->str, NULL);
        /* who is silent runs nothing any more, or nobody knows */
        if (!(ago_ms <= OPS_FLEET_SILENT_MS)) continue;
        struct lw_bytes text = lw_bytes(entry[2]->str, entry[2]->len);
        out->complete &= text.n <= OPS_SHARES_BYTES && ops_shares_take(out, text);
    }
    freeReplyObject(r);
    ops_shares_sum(out);
    return now_ms < 0 ? -1 : 0;
}
