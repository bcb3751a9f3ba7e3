/* SPDX-License-Identifier: Apache-2.0 */
/* What the section `handler` has for each type of handler, as far as the engine must know it: how
 * many messages a handler has at once. handlers/ checks the other keys. */
#include "config/option.h"

#include <string.h>

enum { HTTP_IN_FLIGHT = 64 };

/* PostgreSQL allows many concurrent writers, SQLite one. */
static int writers(const struct lw_config *c) {
    const char *store = json_string_value(json_object_get(c->handler.json, "store"));
    return store && strncmp(store, "postgres", strlen("postgres")) == 0 ? 4 : 1;
}

static const struct kind {
    const char *type;
    const char *slots; /* key of the number of threads or processes; NULL: there is none */
    int default_slots; /* 0: as many as the store can have writers */
    int in_flight;     /* default of in_flight; 0: neither in_flight nor batch exists */
} kinds[] = {
    {"exec", "processes", 4, 1},
    {"plugin", "threads", 4, 0},
    {"http", NULL, 1, HTTP_IN_FLIGHT},
    {"insert", "threads", 0, 0},
};

/* Returns the kind of the configured handler. An unknown type, which handlers/ reports, is like a
 * plugin. */
static const struct kind *kind_of(const struct lw_config *c) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (c->handler.type && !strcmp(c->handler.type, kinds[i].type)) return &kinds[i];
    return &kinds[1];
}

/* Returns true for an http handler, the only one without slots, with "mode": "batch". Unless
 * handler.batch is given, a batch of such a handler has up to lock.run_ahead messages. */
static bool sends_batches(const struct lw_config *c) {
    const char *mode = json_string_value(json_object_get(c->handler.json, "mode"));
    return !kind_of(c)->slots && mode && !strcmp(mode, "batch");
}

static void finish_requests(struct lw_loader *l, const struct kind *k) {
    struct lw_config *c = l->c;
    static const char *const only[] = {"in_flight", "batch"};
    for (size_t i = 0; i < 2 && !k->in_flight && c->handler.type; i++)
        if (json_object_get(c->handler.json, only[i]))
            lw_problem(l->problems, "handler.%s: only exec and http have it", only[i]);
    if (!c->handler.in_flight) c->handler.in_flight = k->in_flight ? k->in_flight : 1;
    if (!c->handler.batch)
        c->handler.batch = sends_batches(c) && lw_config_batches(c) ? c->lock.run_ahead : 1;
    if (lw_config_at_once(c) > LW_AT_ONCE_MAX)
        lw_problem(l->problems,
                   "handler.in_flight: %d processes with %d messages each are more than %d "
                   "messages at once",
                   c->handler.threads, c->handler.in_flight, (int)LW_AT_ONCE_MAX);
    if (c->handler.batch > 1 && !lw_config_batches(c))
        lw_problem_warn(l->problems, "handler.batch: no effect with lock.run_ahead 1, retry.order "
                                     "skip, business ids, limits, or queue.on_busy latest");
    else if (c->handler.batch > c->lock.run_ahead)
        lw_problem_warn(l->problems,
                        "handler.batch: is %d, but only lock.run_ahead (%d) messages of a key are "
                        "known at once",
                        c->handler.batch, c->lock.run_ahead);
}

void lw_finish_handler(struct lw_loader *l) {
    struct lw_config *c = l->c;
    const struct kind *k = kind_of(c);
    static const char *const slots[] = {"threads", "processes"};
    for (size_t i = 0; i < 2 && c->handler.type; i++)
        if (json_object_get(c->handler.json, slots[i]) && (!k->slots || strcmp(slots[i], k->slots)))
            lw_problem(l->problems, "handler.%s: %.64s has handler.%s instead", slots[i],
                       c->handler.type, k->slots ? k->slots : "in_flight");
    if (!c->handler.threads) c->handler.threads = k->default_slots ? k->default_slots : writers(c);
    finish_requests(l, k);
    if (c->workers * c->handler.threads > LW_SLOTS_MAX)
        lw_problem(l->problems, "workers: %d workers with %d handlers each are more than %d",
                   c->workers, c->handler.threads, (int)LW_SLOTS_MAX);
    if (c->handler.timeout_ms > c->shutdown.grace_ms)
        lw_problem_warn(l->problems, "shutdown.grace_ms: shorter than handler.timeout_ms: a slow "
                                     "handler is cut off at shutdown and runs again");
}

json_t *lw_show_handler(const struct lw_config *c) {
    json_t *v = json_deep_copy(c->handler.shown);
    const struct kind *k = kind_of(c);
    if (k->slots) json_object_set_new(v, k->slots, json_integer(c->handler.threads));
    if (k->in_flight) {
        json_object_set_new(v, "in_flight", json_integer(c->handler.in_flight));
        json_object_set_new(v, "batch", json_integer(c->handler.batch));
    }
    json_object_set_new(v, "timeout_ms", json_integer(c->handler.timeout_ms));
    return v;
}
