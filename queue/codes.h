/* SPDX-License-Identifier: Apache-2.0 */
/* codes: the numbers and letters that C and the lane scripts share, in one place.
 *
 * scripts/embed-lua.sh reads this file when it turns the scripts into C: in a script, a name of
 * this list becomes its number, and a name between quotes its letter. So each constant stands on
 * a line of its own, as NAME = 123 or NAME = 'x', and the scripts contain no such number or
 * letter themselves. */
#ifndef LW_QUEUE_CODES_H
#define LW_QUEUE_CODES_H

#include <stdbool.h>
#include <stdint.h>

enum {
    /* number of offsets whose states stand in one Redis string, two bits each */
    LW_SEGMENT = 16384,
    /* default maximum of what a call carries, or reads from waiting lists */
    LW_CALL_BYTES = 2097152,
    LW_LANE_BYTES = 1048576, /* default maximum of what a call hands over per lane */
    /* number of list elements that a script reads at once while it does not know how large they
     * are */
    LW_READ_AT_ONCE = 8,
};

/* The state that Redis records of a message, in two bits. A message in state LW_STATE_DONE or a
 * higher one is finished. */
enum lw_state {
    LW_STATE_UNSEEN = 0,
    LW_STATE_WAITING = 1,
    LW_STATE_DONE = 2,
    LW_STATE_DEAD = 3,
};

/* Returns the state of one offset from a byte that holds four, the first in the highest bits. */
static inline enum lw_state lw_state_in(char four, int64_t offset) {
    return (enum lw_state)((unsigned char)four >> (2 * (3 - offset % 4)) & 3);
}

/* Says what became of a message that was granted. Handlers answer with one of the first four; a
 * call of settle may report any of them. */
enum lw_outcome {
    LW_DONE = 'd',  /* the effect happened, now or earlier under the same identity */
    LW_RETRY = 'r', /* try again after a backoff; counts an attempt */
    LW_DEAD = 'x',  /* never try again: a dead letter */
    /* not run, or unknown because the lease ended first: give the message back without counting an
     * attempt */
    LW_BACK = 'b',
    LW_DEAD_SENT = 's', /* a dead letter that its topic has acknowledged */
};

/* Returns true if the outcome finishes the message; otherwise the message goes back to its lane. */
static inline bool lw_outcome_ends(enum lw_outcome outcome) {
    return outcome == LW_DONE || outcome == LW_DEAD || outcome == LW_DEAD_SENT;
}

/* Returns the word for an outcome in handlers, the journal and the log: "done", "retry", "dead",
 * "back"; "sent" for LW_DEAD_SENT. */
const char *lw_outcome_word(enum lw_outcome outcome);
/* returns false if there is no such word */
bool lw_outcome_of(const char *word, enum lw_outcome *outcome);

/* Says how the lane of a settled message goes on. The first four are for a lease under which no
 * message runs any more. */
enum lw_go {
    LW_GO_KEEP = 'k',       /* keep the lease for the named messages of the local chain */
    LW_GO_KEEP_ALONE = 'K', /* like LW_GO_KEEP, but release the lock if messages wait in the list */
    LW_GO_NEXT = 'n',       /* keep the lease and hand heads over */
    LW_GO_DROP = '-',       /* release the lock */
    /* The next two are for a lease under which a message still runs. */
    LW_GO_NAMED = 'm', /* grant further messages of the local chain: the named ones */
    LW_GO_HEADS = 'h', /* hand over further heads: those behind the named message */
};

/* The answers of settle about the lane of an item. */
enum lw_settled {
    LW_SETTLED_STALE = 'S',    /* the lease is no longer the caller's */
    LW_SETTLED_RELEASED = 'L', /* the lock is gone */
    LW_SETTLED_KEPT = 'K',     /* the lease goes on */
    LW_SETTLED_NEXT = 'N',     /* heads are handed over, under the same lock */
    /* released, but the Redis key of the waiting list has another type, so the message was not put
     * back */
    LW_SETTLED_BAD = 'B',
};

/* The answers of settle about each message that an item names. */
enum lw_named {
    LW_NAMED_GRANTED = 'A',
    LW_NAMED_FINISHED = 'P', /* the message was finished before this call */
    /* not decided: the lease is not kept, or nothing more is granted under it */
    LW_NAMED_UNDECIDED = 'G',
};

/* Flags that the caller of gate adds to the number of a lane's messages. */
enum {
    /* with on_busy drop: the caller runs an earlier message of the lane, and asks which of the
     * others to drop */
    LW_GATE_BEHIND = 64,
    LW_GATE_ENVELOPES = 128, /* the call carries the envelopes of these messages */
};

/* The answers of gate about a message. */
enum lw_gated {
    LW_GATED_RUN = 'R',       /* run the message: its lane is the caller's now */
    LW_GATED_ALSO = 'A',      /* run the message after the one before it, under the same lease */
    LW_GATED_WAITS = 'W',     /* the message stands in the waiting list of its lane */
    LW_GATED_FINISHED = 'D',  /* the message was finished before this call */
    LW_GATED_DROPPED = 'X',   /* not run, because its lane is busy (on_busy drop) */
    LW_GATED_DUPLICATE = 'U', /* dropped, because another message has the same business id */
    /* ask again about the message; with on_busy drop, when the run of its lane is over */
    LW_GATED_UNDECIDED = 'G',
    LW_GATED_ENVELOPE = 'E', /* the message has to wait: ask again with its envelope */
    LW_GATED_BAD = 'B',      /* a Redis key of the lane has another type than the scripts expect */
};

/* The answers of claim about a lane. */
enum lw_claimed {
    LW_CLAIMED_HEADS = 'N', /* heads are handed over */
    LW_CLAIMED_EMPTY = 'E', /* no message waits in the lane */
    LW_CLAIMED_BUSY = 'B',
};

#endif
