/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for keys, identities, leases and counts, which all kinds of store share. */
#include "handlers/insert/insert.h"

#include "base/clock.h"

#include <stdlib.h>

/* Adds bytes to a hash by the algorithm FNV-1a. At the end, lw_fence_key() applies the finalizer of
 * MurmurHash3 to the hash. Both algorithms are in the public domain. */
static uint64_t mix_in(uint64_t h, const void *bytes, size_t n) {
    for (const unsigned char *p = bytes, *end = p + n; p < end; p++) h = (h ^ *p) * 0x100000001b3;
    return h;
}

uint64_t lw_fence_key(const char *app, struct lw_bytes key) {
    /* hash the NUL at the end of `app`, so that "a" + "bc" differs from "ab" + "c" */
    uint64_t h = mix_in(0xcbf29ce484222325, app, strlen(app) + 1);
    if (key.n) h = mix_in(h, key.p, key.n);
    h = (h ^ h >> 33) * 0xff51afd7ed558ccd;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53;
    h ^= h >> 33;
    return h ? h : 1;
}

int64_t lw_insert_replay(const char *identity) {
    /* A '#' in an identity can only be the one before the replay number, because Kafka does not
     * allow it in names of topics. */
    const char *mark = strrchr(identity, '#');
    return mark ? strtoll(mark + 1, NULL, 10) : 0;
}

int64_t lw_insert_end_ms(const struct lw_job *job) {
    int64_t deadline = atomic_load(&job->lease->deadline_ms);
    return deadline < job->give_up_ms ? deadline : job->give_up_ms;
}

bool lw_insert_ended(const struct lw_job *job, int64_t now_ms) {
    return atomic_load(&job->lease->cancelled) || now_ms >= lw_insert_end_ms(job);
}

int64_t lw_insert_fence_before(int64_t age_s) { return (lw_wall_ms() - age_s * 1000) * 1000; }

static struct { _Atomic uint64_t inserted, updated, ignored, known, stale, dead; } counted;

void lw_insert_count(const struct lw_insert_counts *more) {
    atomic_fetch_add(&counted.inserted, more->inserted);
    atomic_fetch_add(&counted.updated, more->updated);
    atomic_fetch_add(&counted.ignored, more->ignored);
    atomic_fetch_add(&counted.known, more->known);
    atomic_fetch_add(&counted.stale, more->stale);
    atomic_fetch_add(&counted.dead, more->dead);
}

void lw_insert_counts(struct lw_insert_counts *out) {
    *out = (struct lw_insert_counts){
        .inserted = atomic_load(&counted.inserted),
        .updated = atomic_load(&counted.updated),
        .ignored = atomic_load(&counted.ignored),
        .known = atomic_load(&counted.known),
        .stale = atomic_load(&counted.stale),
        .dead = atomic_load(&counted.dead),
    };
}
