/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

struct lw_failed {
    UT_hash_handle hh;
    uint64_t successes; /* the number of successes when the message failed last */
    char identity[LW_IDENTITY_MAX];
};

void lw_trial_open(struct lw_trial *t, int places) {
    *t = (struct lw_trial){.places = places > 1 ? places : 1, .size = 1};
}

static void forget(struct lw_trial *t, struct lw_failed *one) {
    HASH_DEL(t->table, one);
    free(one);
    t->n--;
}

void lw_trial_close(struct lw_trial *t) {
    while (t->table) forget(t, t->table);
}

static struct lw_failed *find(const struct lw_trial *t, const char *identity) {
    struct lw_failed *found = NULL;
    if (t->n) HASH_FIND_STR(t->table, identity, found);
    return found;
}

bool lw_trial_failed(struct lw_trial *t, const char *identity) {
    struct lw_failed *one = find(t, identity);
    bool own = one && t->successes > one->successes;
    if (!one) {
        if (t->n >= LW_TRIAL_MOST) forget(t, t->table);
        one = lw_alloc(sizeof *one);
        snprintf(one->identity, sizeof one->identity, "%s", identity);
        HASH_ADD_STR(t->table, identity, one);
        t->n++;
    }
    one->successes = t->successes;
    return own;
}

void lw_trial_succeeded(struct lw_trial *t, const char *identity) {
    struct lw_failed *one = find(t, identity);
    if (one) forget(t, one);
    t->successes++;
    t->size = 1;
    t->failures = t->trials = 0;
}

bool lw_trial_over(struct lw_trial *t) {
    if (++t->failures < t->size) return false;
    t->failures = 0;
    if (t->trials < 2) t->trials++;
    t->size = t->trials == 1 ? t->places : 4 * t->places + 1;
    return true;
}

void lw_trial_prefer(const struct lw_trial *t, struct lw_job_queue *q) {
    for (struct lw_job **at = &q->head, *job; (job = *at); at = &job->next) {
        if (find(t, job->identity)) continue;
        if (at == &q->head) return;
        *at = job->next;
        if (!*at) q->tail = at;
        lw_jobs_push_front(q, job);
        return;
    }
}
