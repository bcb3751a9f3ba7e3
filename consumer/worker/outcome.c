/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the outcomes of messages to the board, where the exporter reads them for its web page. How
 * messages are handled does not depend on this file. */
#include "consumer/worker/private.h"

/* Returns the index of the slot on the board that has the partition's name, or -1 if the board has
 * no room for the name. Partitions of other workers have slots, too, because this worker may run
 * their waiting messages. */
static int32_t slot_of(const struct lw_worker *w, struct part *p) {
    if (!p->named) {
        const struct lw_board_partition *slot = lw_board_slot(w->set.board, p->topic, p->partition);
        p->named = slot ? (int32_t)(slot - w->set.board->partitions) + 1 : -1;
    }
    return p->named - (p->named > 0);
}

static void add(struct lw_worker *w, struct part *p, struct lw_outcome_record *r,
                struct lw_bytes key, const char *reason) {
    r->slot = slot_of(w, p);
    if (r->slot < 0) return;
    lw_outcome_texts(r, key, reason);
    lw_outcome_add(&w->set.board->workers[w->set.index].outcomes, r);
}

void outcome_of_run(struct lw_worker *w, const struct run *r, int64_t wall_ms) {
    if (!w->set.board) return;
    check_run(r);
    struct lw_outcome_record o;
    o.at_ms = wall_ms;
    o.offset = r->msg->offset;
    o.fence = r->job.fence;
    o.took_us = r->job.took_us;
    o.attempt = (uint32_t)r->job.attempt;
    o.end = (uint8_t)lw_end_of(r->outcome);
    add(w, r->msg->part, &o, r->job.key, r->outcome == LW_DONE ? "" : r->job.reason);
}

void outcome_of_record(struct lw_worker *w, struct part *p, int64_t offset, struct lw_bytes key,
                       enum lw_end end, const char *reason) {
    if (!w->set.board) return;
    struct lw_outcome_record o = {
        .at_ms = w->io->wall_ms(w->ctx), .offset = offset, .end = (uint8_t)end};
    add(w, p, &o, key, reason);
}
