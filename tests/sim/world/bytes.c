/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world/bytes.h"

#include "tests/sim/world/operator.h"

#include <inttypes.h>

/* OTHER is the maximum size of an envelope without its payload and headers, in bytes. */
enum { LARGE = 250000, MEDIUM = 3000, HEADER = 3000, OTHER = 200 };

static const struct lw_byte_bounds usual = {
    .call = LW_CALL_BYTES, .lane = LW_LANE_BYTES, .heads = 32 << 20, .held = 64 << 20};
static const struct lw_byte_bounds tight = {
    .call = 4000, .lane = 3500, .heads = 9000, .held = 40000};

struct lw_byte_bounds bytes_bounds(const struct world *w) {
    return w->f->tight ? tight : usual;
}

static size_t largest(const struct world *w) {
    return w->f->tight ? MEDIUM + HEADER + OTHER : LARGE + OTHER;
}

static struct lw_bytes payload_of(const struct world *w, int part, int index) {
    static char bytes[LARGE];
    const char *group = limits_payload(w, part, index);
    if (group) return lw_bytes_of(group);
    if (w->f->tight && (index + part) % 2) return lw_bytes(bytes, MEDIUM);
    return w->f->big && (index + part) % 16 == 0 ? lw_bytes(bytes, LARGE) : lw_bytes_of("{}");
}

static size_t n_headers_of(const struct world *w, int part, int index) {
    return w->f->tight && (index + part) % 4 == 3;
}

static size_t size_of(const struct world *w, int part, int index) {
    return payload_of(w, part, index).n + HEADER * n_headers_of(w, part, index);
}

void bytes_arrival(struct sim_worker *me, int part, int index, struct lw_arrival *a) {
    static char value[HEADER];
    static struct lw_header header;
    struct world *w = me->world;
    header = (struct lw_header){lw_bytes_of("h"), lw_bytes(value, HEADER)};
    a->record.payload = payload_of(w, part, index);
    a->record.headers = &header;
    a->record.n_headers = n_headers_of(w, part, index);
    a->origin = (void *)(uintptr_t)(1 + size_of(w, part, index));
    me->held_bytes += size_of(w, part, index);
    size_t most = bytes_bounds(w).held + largest(w);
    if (me->held_bytes > most)
        world_bad(w, "worker %d holds %zu bytes of records, more than %zu", me->index,
                  me->held_bytes, most);
}

void bytes_release(void *ctx, void *origin) {
    ((struct sim_worker *)ctx)->held_bytes -= (size_t)(uintptr_t)origin - 1;
}

void bytes_started(struct world *w, const struct lw_job *job) {
    int index = record_at(&w->part[job->partition], job->offset);
    if (index < 0 || operator_replay(job)) return;
    size_t n = w->f->dedup ? 1 : n_headers_of(w, job->partition, index);
    bool same = job->payload.n == payload_of(w, job->partition, index).n && job->n_headers == n &&
                (!job->n_headers || w->f->dedup || job->headers[0].value.n == HEADER);
    if (!same)
        world_bad(w, "%s: another payload or other headers than were produced", job->identity);
}

/* --- calls ------------------------------------------------------------------------------------ */

static size_t carried(int argc, char *const *argv, const size_t *len, size_t *n) {
    size_t bytes = 0;
    *n = 0;
    for (int i = 3; i < argc; i++)
        if (len[i] > 4 && !memcmp(argv[i], "1 t ", 4)) bytes += len[i], ++*n;
    return bytes;
}

/* Checks how many bytes of heads one call handed over, in each lane and in all lanes together. */
static void handed_over(struct world *w, const redisReply *heads, const redisReply *each) {
    const struct lw_byte_bounds b = bytes_bounds(w);
    size_t all = 0, at = 0;
    for (size_t i = 0; i < each->len; i++) {
        size_t lane = 0, n = (unsigned char)each->str[i];
        for (size_t k = 0; k < n; k++) lane += heads->element[at++]->len;
        if (n > 1 && lane > b.lane)
            world_bad(w, "a lane is given %zu heads of %zu bytes, more than %zu", n, lane, b.lane);
        all += lane;
    }
    if (all > b.call + largest(w))
        world_bad(w, "a call hands over %zu bytes, more than %zu", all, b.call + largest(w));
}

void bytes_called(struct world *w, int argc, char *const *argv, const size_t *len,
                  const redisReply *r, uint64_t list_bytes) {
    const struct lw_byte_bounds b = bytes_bounds(w);
    bool heads = r->type == REDIS_REPLY_ARRAY && (r->elements == 6 || r->elements == 7) &&
                 r->element[r->elements - 2]->type == REDIS_REPLY_ARRAY;
    bool settle = heads && r->elements == 7;
    size_t n, bytes = carried(argc, argv, len, &n), back = settle ? n : 0;
    if (bytes > b.call + largest(w))
        world_bad(w, "a call carries %zu bytes, more than %zu", bytes, b.call + largest(w));
    /* For each message that settle puts back into a waiting list, settle may read an element of the
     * list twice, so the bytes of these elements are allowed in addition. */
    uint64_t most = b.call + (LW_READ_AT_ONCE + 1 + 2 * back) * largest(w);
    if (list_bytes > most)
        world_bad(w, "a script reads %" PRIu64 " bytes of lists, more than %" PRIu64, list_bytes,
                  most);
    if (heads) handed_over(w, r->element[r->elements - 2], r->element[r->elements - 1]);
}
