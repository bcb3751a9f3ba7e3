/* SPDX-License-Identifier: Apache-2.0 */
/* codes: the numbers and letters that C and the lane scripts share, in one place.
 *
 * scripts/embed-lua.sh reads this file when it turns the scripts into C: in a script, a name of this list becomes its number, and a name
 * between quotes its letter. So one constant stands on a line, as NAME = 123, or NAME = 'x', and the scripts name no number or letter of
 * their own for these. */
#ifndef LW_QUEUE_CODES_H
#define LW_QUEUE_CODES_H

#include <stdbool.h>
#include <stdint.h>

enum {
    LW_SEGMENT = 16384,      /* offsets whose states stand in one string of Redis, two bits each */
    LW_CALL_BYTES = 2097152, /* a call to Redis carries, or reads of waiting lists, as much: the default */
    LW_LANE_BYTES = 1048576, /* of one lane a call hands over as much: the default */
    LW_READ_AT_ONCE = 8,     /* elements of a list that a script reads before it knows how large they are */
};

/* What Redis knows of a message, two bits. From LW_STATE_DONE on it is finished. */
enum lw_state {
    LW_STATE_UNSEEN = 0,
    LW_STATE_WAITING = 1,
    LW_STATE_DONE = 2,
    LW_STATE_DEAD = 3,
};

/* Out of the byte that holds the states of four offsets, the first in the highest bits. */
static inline enum lw_state lw_state_in(char four, int64_t offset) {
    return (enum lw_state)((unsigned char)four >> (2 * (3 - offset % 4)) & 3);
}

/* What became of a message that was granted: the one list of outcomes. The handlers answer one of the first four; settle is told all. */
enum lw_outcome {
    LW_DONE = 'd',      /* the effect happened, now or earlier under the same identity */
    LW_RETRY = 'r',     /* try again after a backoff, counts an attempt */
    LW_DEAD = 'x',      /* never try again: a dead letter */
    LW_BACK = 'b',      /* not run (or unknown because the lease ended first): give it back, no attempt counted */
    LW_DEAD_SENT = 's', /* a dead letter that its topic has acknowledged */
};

/* The message is finished by it; else it goes back to its lane. */
static inline bool lw_outcome_ends(enum lw_outcome outcome) { return outcome == LW_DONE || outcome == LW_DEAD || outcome == LW_DEAD_SENT; }

/* The word of an outcome, as handlers, the journal and the log have it: "done", "retry", "dead", "back"; "sent" for LW_DEAD_SENT. */
const char *lw_outcome_word(enum lw_outcome outcome);
bool lw_outcome_of(const char *word, enum lw_outcome *outcome); /* false: there is no such word */

/* How the lane of a settled message goes on. Nothing of the lease runs any more: */
enum lw_go {
    LW_GO_KEEP = 'k',       /* keep the lease for the named messages of the local chain */
    LW_GO_KEEP_ALONE = 'K', /* the same, unless others wait */
    LW_GO_NEXT = 'n',       /* hand heads over */
    LW_GO_DROP = '-',       /* drop the lease */
    /* something does: */
    LW_GO_NAMED = 'm', /* name more of the local chain */
    LW_GO_HEADS = 'h', /* hand over more heads, those behind the one that is named */
};

/* settle: an item is seven bytes (queue/calls.h). What it answers about the lane of an item: */
enum lw_settled {
    LW_SETTLED_STALE = 'S',    /* the lease is no longer the caller's */
    LW_SETTLED_RELEASED = 'L', /* the lock is gone */
    LW_SETTLED_KEPT = 'K',     /* the lease goes on */
    LW_SETTLED_NEXT = 'N',     /* heads are handed over, under the same lock */
    LW_SETTLED_BAD = 'B',      /* released, but the name of the list holds another type, so the message was not put back */
};

/* And about each message that the item named: */
enum lw_named {
    LW_NAMED_GRANTED = 'A',
    LW_NAMED_FINISHED = 'P',  /* it was finished before this call */
    LW_NAMED_UNDECIDED = 'G', /* the lease is not kept, or nothing more is granted under it */
};

/* gate: added to the number of a lane's messages. */
enum {
    LW_GATE_BEHIND = 64,     /* with on_busy drop: the caller runs one of the lane, and asks only which of these are dropped */
    LW_GATE_ENVELOPES = 128, /* the envelopes of these messages are here */
};

/* What gate answers about a message. */
enum lw_gated {
    LW_GATED_RUN = 'R',       /* the lane is the caller's */
    LW_GATED_ALSO = 'A',      /* run it after the one before it, under the same lease */
    LW_GATED_WAITS = 'W',     /* it stands in the list of its lane */
    LW_GATED_FINISHED = 'D',  /* it was finished before this call */
    LW_GATED_DROPPED = 'X',   /* because its lane is busy (on_busy drop) */
    LW_GATED_DUPLICATE = 'U', /* dropped: its business id is another message's */
    LW_GATED_UNDECIDED = 'G', /* ask again; with on_busy drop: once the lane's run is over */
    LW_GATED_ENVELOPE = 'E',  /* it has to wait: ask again with its envelope */
    LW_GATED_BAD = 'B',       /* a name of the lane holds another type */
};

/* What claim answers about a lane. */
enum lw_claimed {
    LW_CLAIMED_HEADS = 'N', /* heads are handed over */
    LW_CLAIMED_EMPTY = 'E', /* nobody waits there */
    LW_CLAIMED_BUSY = 'B',
};

#endif
