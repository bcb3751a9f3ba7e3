/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/hot.h"

#include "monitor/outcome_list.h"
#include "queue/lane.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct row {
    char key[LW_OUTCOME_KEY];
    size_t n;
    int64_t waiting;  /* number of waiting messages; -1: unknown */
    int64_t asked_ms; /* time of the last reply of Redis for this key; boot clock */
};

struct lw_hot {
    pthread_mutex_t lock; /* guards all fields below it */
    struct row row[LW_HOT_ASKED];
    size_t n;
};

struct lw_hot *lw_hot_open(void) {
    struct lw_hot *h = lw_alloc(sizeof *h);
    pthread_mutex_init(&h->lock, NULL);
    return h;
}

/* --- the list --------------------------------------------------------------------------------- */

static const struct row *find(const struct row *rows, size_t n, const char *key, size_t n_key) {
    for (size_t i = 0; i < n; i++)
        if (rows[i].n == n_key && !memcmp(rows[i].key, key, n_key)) return &rows[i];
    return NULL;
}

/* Returns a row for this key. If the present list of rows has a row for this key, returns a copy of
 * that row, with its number of waiting messages. */
static struct row row_of(const struct lw_hot *h, const char *key, size_t n) {
    const struct row *known = find(h->row, h->n, key, n);
    struct row r = {.n = n, .waiting = -1};
    if (known) return *known;
    memcpy(r.key, key, n);
    return r;
}

/* Sets the member "waiting" of `one`, the entry of a key in the list: to the number of waiting
 * messages of the key, or to null if no recent number is known. Adds the key to the rows for the
 * next request to Redis, unless the key is cut off or is not UTF-8. */
static void take(const struct lw_hot *h, struct row *rows, size_t *n, json_t *one, int64_t now_ms) {
    const json_t *key = json_object_get(one, "key");
    bool whole = json_is_string(key) && !json_object_get(one, "key_cut") && *n < LW_HOT_ASKED;
    struct row r = {.waiting = -1};
    if (whole) r = rows[(*n)++] = row_of(h, json_string_value(key), json_string_length(key));
    bool known = r.waiting >= 0 && now_ms - r.asked_ms <= LW_HOT_FRESH_MS;
    json_object_set_new(one, "waiting", known ? json_integer(r.waiting) : json_null());
}

json_t *lw_hot_list(struct lw_hot *h, const struct lw_board *b, int64_t wall_ms, int64_t now_ms) {
    json_t *list = lw_outcomes_hot(b, wall_ms, LW_HOT_ASKED), *one;
    struct row rows[LW_HOT_ASKED] = {0};
    size_t i, n = 0;
    pthread_mutex_lock(&h->lock);
    json_array_foreach(list, i, one) take(h, rows, &n, one, now_ms);
    memcpy(h->row, rows, n * sizeof *rows);
    h->n = n;
    pthread_mutex_unlock(&h->lock);
    while (json_array_size(list) > LW_HOT_KEYS) json_array_remove(list, json_array_size(list) - 1);
    return list;
}

/* --- asking ----------------------------------------------------------------------------------- */

/* Asks the Redis of this shard how many messages wait for each key of `rows` that belongs to the
 * shard. Stores the numbers in the rows. */
static void ask_shard(const struct lw_config *c, int shard, struct lw_shard_looker *looker,
                      struct row *rows, size_t n, int64_t now_ms) {
    struct lw_bytes lanes[LW_HOT_ASKED];
    char room[LW_HOT_ASKED][LW_LANE_ROOM];
    int64_t waiting[LW_HOT_ASKED];
    size_t at[LW_HOT_ASKED], some = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t tag;
        struct lw_bytes lane =
            lw_lane_id(lw_bytes(rows[i].key, rows[i].n), room[i], sizeof room[i]);
        if (lw_lane_shard(lane, c->redis.shards, &tag) != shard) continue;
        lanes[some] = lane;
        at[some++] = i;
    }
    if (!some || !lw_shard_waiting(looker, lanes, some, waiting)) return;
    for (size_t i = 0; i < some; i++) {
        rows[at[i]].waiting = waiting[i];
        rows[at[i]].asked_ms = now_ms;
    }
}

/* Copies the numbers that Redis reported into the present list. The keys in this list may have
 * changed since Redis was asked, so each row is found by its key. */
static void keep(struct lw_hot *h, const struct row *rows, size_t n) {
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < h->n; i++) {
        const struct row *r = find(rows, n, h->row[i].key, h->row[i].n);
        if (r) h->row[i] = *r;
    }
    pthread_mutex_unlock(&h->lock);
}

void lw_hot_ask(struct lw_hot *h, const struct lw_config *c, struct lw_shard_looker **lookers,
                int64_t now_ms) {
    struct row rows[LW_HOT_ASKED];
    pthread_mutex_lock(&h->lock);
    size_t n = h->n;
    memcpy(rows, h->row, n * sizeof *rows);
    pthread_mutex_unlock(&h->lock);
    for (int s = 0; s < c->redis.shards && n; s++) ask_shard(c, s, lookers[s], rows, n, now_ms);
    keep(h, rows, n);
}
