/* SPDX-License-Identifier: Apache-2.0 */
/* Detects recreated and truncated topics while they are read. Every few seconds the inspector
 * compares one record of each partition with its anchor. A delivered record becomes a candidate for
 * the next anchor. The candidate replaces the old anchor only after a later check, and only if that
 * check has not found a recreated topic. Otherwise a record of the new topic could become the
 * anchor, and the new topic would not be noticed. */
#include "kafka/private.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHECK_MS = 5000,
    /* minimum time between two candidates for the anchor, because hashing every record would cost
     * too much */
    CANDIDATE_MS = 1000,
};

void lw_source_saw(struct lw_source *s, struct lw_part *p, const rd_kafka_message_t *m) {
    /* While the partition has no anchor, the inspector uses the first candidate as its anchor. So
     * this candidate must not be replaced by a later record. */
    bool first = p->candidate.offset < 0;
    if (!first && (p->anchor.offset < 0 || s->polled_ms - p->candidate_ms < CANDIDATE_MS)) return;
    p->candidate = lw_anchor_of(m);
    p->candidate_ms = s->polled_ms;
}

char *lw_source_metadata(const struct lw_source *s, const struct lw_part *p, const char *fleet) {
    char text[LW_META_TEXT];
    if (s->no_metadata) return NULL;
    lw_meta_encode(fleet, p->anchor.offset >= 0 ? &p->anchor : &p->candidate, text);
    return lw_strdup(text);
}

static void ask(struct lw_source *s) {
    struct lw_looked *all = lw_alloc((s->n_parts + 1) * sizeof *all);
    for (size_t i = 0; i < s->n_parts; i++) {
        const struct lw_part *p = s->parts[i];
        all[i] = (struct lw_looked){.partition = p->partition,
                                    .gen = p->gen,
                                    .begin = p->begin,
                                    .anchor = p->anchor,
                                    .next = p->candidate};
        snprintf(all[i].topic, sizeof all[i].topic, "%s", p->topic);
        if (p->anchor.offset < 0 && p->candidate.offset >= 0) all[i].anchor = p->candidate;
    }
    lw_inspector_ask(s->inspector, all, s->n_parts);
}

static void refuse(struct lw_source *s, const struct lw_looked *k) {
    s->refused = true;
    lw_source_fatal(s,
                    "%s/%d: the topic was deleted and recreated, or truncated, while this "
                    "application was reading it: %s. Stopped, since "
                    "records may have been skipped. Give the application another \"name\" and "
                    "group.id: it then handles the new topic "
                    "from its beginning",
                    k->topic, (int)k->partition, k->why);
}

static void take_answer(struct lw_source *s, const struct lw_looked *all, size_t n) {
    for (size_t i = 0; i < n && !s->dead; i++) {
        struct lw_part *p = lw_source_part(s, all[i].gen);
        if (!p) continue;
        if (all[i].found == LW_LOOK_ANOTHER) refuse(s, &all[i]);
        if (all[i].found == LW_LOOK_SAME)
            p->anchor = all[i].next.offset >= 0 ? all[i].next : all[i].anchor;
        if (all[i].found == LW_LOOK_GONE) p->anchor = all[i].next;
    }
}

/* Opens the inspector if it is not open, and returns true if it is open. Without an inspector,
 * recreated topics are not detected, but everything else works. */
static bool have_inspector(struct lw_source *s) {
    struct lw_err err = {0};
    if (!s->inspector) s->inspector = lw_inspector_open(s->config, s->fd, &err);
    if (!s->inspector)
        lw_warn("kafka: can't check whether topics were recreated: %s; retrying in %d s", err.text,
                CHECK_MS / 1000);
    return s->inspector;
}

void lw_source_check(struct lw_source *s) {
    size_t n = 0;
    struct lw_looked *all = s->inspector ? lw_inspector_answer(s->inspector, &n) : NULL;
    if (all) take_answer(s, all, n);
    free(all);
    bool due = !s->checked_ms || s->polled_ms - s->checked_ms >= CHECK_MS;
    if (!due || s->dead || !s->n_parts || (s->inspector && lw_inspector_busy(s->inspector))) return;
    s->checked_ms = s->polled_ms;
    if (have_inspector(s)) ask(s);
}
