/* SPDX-License-Identifier: Apache-2.0 */
/* Answers GET dead/export and lanes/export: writes messages with their whole payloads as JSON
 * Lines, as the commands `dead export` and `queue export` do. No more messages are added to a
 * response when it has EXPORT_BYTES bytes, or when EXPORT_MS have passed. The header Latchwork-Next
 * of the response then has the cursor with which the client requests the next part, so the body
 * contains nothing but messages. */
#include "api/private.h"
#include "ops/dead/dead.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { EXPORT_BYTES = 2 << 20, EXPORT_MS = 3000, PAGE = 64 };

struct part {
    struct api_call *k;
    int64_t until_ms;
};

static struct part begin(struct api_call *k) {
    k->a->body.n = 0;
    return (struct part){k, lw_boot_ms() + EXPORT_MS};
}

static bool is_full(const struct part *e) {
    return e->k->a->body.n >= EXPORT_BYTES || lw_boot_ms() >= e->until_ms;
}

static void put_line(const struct part *e, const struct ops_message *m) {
    json_t *v = api_message_json(e->k, m, SIZE_MAX);
    char *text = json_dumps(v, JSON_COMPACT);
    if (text) lw_buf_addf(&e->k->a->body, "%s\n", text);
    free(text);
    json_decref(v);
}

static int finish(struct api_call *k) {
    k->a->status = 200;
    k->a->type = "application/x-ndjson";
    return 0;
}

/* --- dead letters ----------------------------------------------------------------------------- */

static int put_dead(struct ops *o, struct ops_message *m, void *ctx) {
    (void)o;
    put_line(ctx, m);
    return is_full(ctx);
}

/* Exports dead letters. The cursor is "SHARD:ID", as in GET dead. */
int api_dead_export(struct api_call *k) {
    struct ops *o = k->o;
    struct part e = begin(k);
    char at[DEAD_PLACE];
    int shard, bad = 0;
    bool more = true;
    if (!api_dead_place(k, &shard, at, sizeof at)) return api_misplaced(k);
    while (!bad && shard < dead_places(o) && !is_full(&e)) {
        bad = dead_page(o, shard, false, at, OPS_PAGE, &more, put_dead, &e);
        if (more) continue;
        shard++;
        at[0] = 0;
    }
    if (bad < 0) return -1;
    if (bad == DEAD_MISPLACED) return api_misplaced(k);
    if (shard < dead_places(o)) lw_buf_addf(&k->a->next, "%d:%s", shard, at);
    return finish(k);
}

/* --- waiting messages ------------------------------------------------------------------------- */

/* The state of an export of waiting messages. Lanes are read by ZSCAN, which returns them in
 * parts (pages here), and exported in the order of their names within a page. If a response ends in
 * the middle of a lane, the next response reads that page again and continues after the last
 * exported message. If the request names keys, the lanes of these keys form one page. */
struct lanes {
    struct part e;
    struct lw_bytes *name; /* copies of lane names, owned by this struct */
    size_t n, cap;
    /* `lane` and `identity` name the lane and the message at which the last response ended. Both
     * are empty if the response ended between two pages. */
    struct lw_buf lane, identity;
    bool skip;  /* true: leave out the messages of `lane` up to `identity`, which were exported */
    bool ended; /* true: the response became full before the end of a page */
};

static int keep(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct lanes *ls = ctx;
    (void)o;
    if (l->n <= 0) return 0;
    ls->name = lw_more(ls->name, ls->n, &ls->cap, sizeof *ls->name);
    ls->name[ls->n++] = lw_bytes(lw_memdup(l->name.p, l->name.n), l->name.n);
    return 0;
}

static void forget(struct lanes *ls) {
    while (ls->n) free((void *)(uintptr_t)ls->name[--ls->n].p);
}

static int by_name(const void *a, const void *b) {
    return lw_bytes_order(*(const struct lw_bytes *)a, *(const struct lw_bytes *)b);
}

static int put_waiting(struct ops *o, struct ops_message *m, void *ctx) {
    struct lanes *ls = ctx;
    char identity[320] = "";
    if (!m->bad) ops_identity(&m->e, identity, sizeof identity);
    if (ls->skip) {
        ls->skip = !lw_bytes_eq(lw_bytes_of(identity), lw_bytes(ls->identity.p, ls->identity.n));
        return 0;
    }
    if (m->state == 'w' && ops_message_matches(o, m)) put_line(&ls->e, m);
    if (!is_full(&ls->e)) return 0;
    ls->identity.n = 0;
    lw_buf_add(&ls->identity, identity, strlen(identity));
    return 1;
}

/* Exports one lane or, if the last response ended within this lane, the messages after the last
 * exported one. If that message has left the lane since then, the whole lane is exported, because
 * all messages that are still in the lane stood after that message. */
static int put_lane(struct lanes *ls, struct lw_bytes lane) {
    struct ops *o = ls->e.k->o;
    struct lw_bytes from = lw_bytes(ls->lane.p, ls->lane.n);
    int order = from.n ? lw_bytes_order(lane, from) : 1;
    if (order < 0) return 0;
    int shard = ops_shard_of(o, lane)->index;
    ls->skip = order == 0 && ls->identity.n;
    int stop = ops_each_waiting(o, shard, lane, put_waiting, ls);
    if (!stop && ls->skip) {
        ls->skip = false;
        stop = ops_each_waiting(o, shard, lane, put_waiting, ls);
    }
    if (stop <= 0) return stop;
    ls->lane.n = 0;
    lw_buf_add(&ls->lane, lane.p, lane.n);
    return 1;
}

static int put_page(struct lanes *ls) {
    int stop = 0;
    if (ls->n) qsort(ls->name, ls->n, sizeof *ls->name, by_name);
    for (size_t i = 0; i < ls->n && !stop; i++)
        if (!i || lw_bytes_order(ls->name[i - 1], ls->name[i])) stop = put_lane(ls, ls->name[i]);
    ls->ended = stop > 0;
    if (!stop) ls->lane.n = ls->identity.n = 0;
    forget(ls);
    return stop < 0 ? -1 : 0;
}

/* Parses the cursor. It is "SHARD.CURSOR" at the beginning of a page, and
 * "SHARD.CURSOR.LANE.IDENTITY" within a page, with the lane's name in hex digits. SHARD is -1 if
 * the request names keys. */
static bool parse(const struct api_call *k, struct lanes *ls, int *shard, char at[OPS_CURSOR]) {
    int end = 0, least = k->o->args.n_keys ? -1 : 0;
    if (sscanf(k->cursor, "%3d.%20[0-9]%n", shard, at, &end) != 2 || !api_scan_cursor(at) ||
        *shard < least || *shard >= k->c->redis.shards)
        return false;
    const char *p = k->cursor + end;
    if (!*p) return true;
    for (p++; lw_hex_digit(p[0]) >= 0 && lw_hex_digit(p[1]) >= 0; p += 2) {
        char byte = (char)(lw_hex_digit(p[0]) << 4 | lw_hex_digit(p[1]));
        lw_buf_add(&ls->lane, &byte, 1);
    }
    if (*p != '.' || !ls->lane.n) return false;
    lw_buf_add(&ls->identity, p + 1, strlen(p + 1));
    return true;
}

static void put_cursor(const struct lanes *ls, int shard, const char *at) {
    struct lw_buf *next = &ls->e.k->a->next;
    lw_buf_addf(next, "%d.%s", shard, at);
    if (!ls->ended) return;
    lw_buf_addf(next, ".");
    for (size_t i = 0; i < ls->lane.n; i++) lw_buf_addf(next, "%02x", (unsigned char)ls->lane.p[i]);
    lw_buf_addf(next, ".%.*s", (int)ls->identity.n, ls->identity.p ? ls->identity.p : "");
}

static int walk(struct lanes *ls, int shard, char at[OPS_CURSOR]) {
    struct ops *o = ls->e.k->o;
    int bad = 0, shards = o->c->redis.shards;
    char page[OPS_CURSOR];
    while (!bad && shard < shards && !ls->ended && !is_full(&ls->e)) {
        memcpy(page, at, sizeof page);
        bad = shard < 0 ? ops_each_lane(o, keep, ls)
                        : ops_lane_page(o, &o->shards[shard], false, at, PAGE, keep, ls);
        if (!bad) bad = put_page(ls);
        /* The response ends in the middle of this page of lanes, so the next response will begin
         * with the same page. */
        if (ls->ended) memcpy(at, page, sizeof page);
        if (ls->ended || (shard >= 0 && strcmp(at, "0") != 0)) continue;
        shard = shard < 0 ? shards : shard + 1;
    }
    if (!bad && shard < shards) put_cursor(ls, shard, at);
    return bad ? -1 : 0;
}

int api_lanes_export(struct api_call *k) {
    struct lanes ls = {.e = begin(k)};
    char at[OPS_CURSOR] = "0";
    int shard = k->o->args.n_keys ? -1 : 0, bad = 0;
    bool good = !k->cursor || parse(k, &ls, &shard, at);
    if (good) bad = walk(&ls, shard, at);
    forget(&ls);
    free(ls.name);
    lw_buf_free(&ls.lane);
    lw_buf_free(&ls.identity);
    if (!good) return api_misplaced(k);
    return bad ? -1 : finish(k);
}
