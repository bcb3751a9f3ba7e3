/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers and letters that C and the lane scripts share.
 *
 * scripts/embed-lua.sh reads this file when it embeds the scripts in C: it replaces the name of a
 * constant in a script by the constant's number, and a name between quotes by the constant's
 * letter. For this, each constant must be on a separate line, as NAME = 123 or NAME = 'x'. */
#ifndef LW_QUEUE_CODES_H
#define LW_QUEUE_CODES_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    /* number of offsets whose states are stored in one Redis string, with two bits each */
    LW_SEGMENT = 16384,
    /* default maximum size, in bytes, of the data that a call carries, or reads from waiting
     * lists */
    LW_CALL_BYTES = 2097152,
    /* default maximum of the total size, in bytes, of the messages that a call hands over per
     * lane */
    LW_LANE_BYTES = 1048576,
    /* number of list elements that a script reads at once while their size is unknown */
    LW_READ_AT_ONCE = 8,
};

/* The state that Redis records of a message, in two bits. A message is finished if its state is
 * LW_STATE_DONE or higher. */
enum lw_state {
    LW_STATE_UNSEEN = 0,
    LW_STATE_WAITING = 1,
    LW_STATE_DONE = 2,
    LW_STATE_DEAD = 3,
};

/* Extracts the state of one offset from a byte with the states of four offsets. The lowest of the
 * four offsets has the highest bits. */
static inline enum lw_state lw_state_in(char four, int64_t offset) {
    assert(offset >= 0);
    return (enum lw_state)((unsigned char)four >> (2 * (3 - offset % 4)) & 3);
}

/* The outcome of a message that was granted. Handlers answer with one of the first four. A call of
 * settle may report any of them. */
enum lw_outcome {
    LW_DONE = 'd',  /* the effect has happened, now or earlier under the same identity */
    LW_RETRY = 'r', /* try again after a backoff, and count an attempt */
    LW_DEAD = 'x',  /* never try again, and keep the message as a dead letter */
    /* the message was not run, or its outcome is unknown because the lease ended before its handler
     * did; give the message back without counting an attempt */
    LW_BACK = 'b',
    LW_DEAD_SENT = 's', /* the message is a dead letter that its topic has acknowledged */
    LW_LATER = 'l',     /* a retry that counts no attempt; the time of the first one is recorded */
};

/* Returns true if the outcome finishes the message. Any other outcome sends the message back to its
 * lane. */
static inline bool lw_outcome_ends(enum lw_outcome outcome) {
    bool ends = outcome == LW_DONE || outcome == LW_DEAD || outcome == LW_DEAD_SENT;
    assert(ends || outcome == LW_RETRY || outcome == LW_LATER || outcome == LW_BACK);
    return ends;
}

/* The words for outcomes. Two larger enums that contain the outcomes use the same words: lw_end in
 * consumer/outcomes.h, and handler_result in cli/handler/messages.h. */
#define LW_WORD_DONE "done"
#define LW_WORD_RETRY "retry"
#define LW_WORD_DEAD "dead"
#define LW_WORD_BACK "back"

/* Returns the word for an outcome in handlers, the journal and the log: "done", "retry", "dead",
 * "back", "sent" for LW_DEAD_SENT, or "later" for LW_LATER. */
const char *lw_outcome_word(enum lw_outcome outcome);
/* Finds the outcome for a word. Returns false if no outcome has this word. */
bool lw_outcome_of(const char *word, enum lw_outcome *outcome);

/* How settle continues with the lane of a settled message. The first four modes are for a lease
 * under which no message runs any more. */
enum lw_go {
    /* keep the lease, and grant the messages of the local chain that the item names */
    LW_GO_KEEP = 'k',
    /* like LW_GO_KEEP, but release the lock if messages wait in the waiting list */
    LW_GO_KEEP_ALONE = 'K',
    LW_GO_NEXT = 'n', /* keep the lease, and hand over heads of the waiting list */
    LW_GO_DROP = '-', /* release the lock */
    /* LW_GO_NAMED and LW_GO_HEADS are for a lease under which a message still runs. */
    LW_GO_NAMED = 'm', /* grant the messages of the local chain that the item names */
    /* hand over further heads of the waiting list; if the item names a message, only heads behind
     * that message */
    LW_GO_HEADS = 'h',
};

/* The answers of settle about the lane of an item. */
enum lw_settled {
    LW_SETTLED_STALE = 'S',    /* the lease is no longer the caller's */
    LW_SETTLED_RELEASED = 'L', /* the lock was released, or turned into a backoff */
    LW_SETTLED_KEPT = 'K',     /* the lease continues */
    LW_SETTLED_NEXT = 'N',     /* the lease continues, and heads were handed over */
    /* the lock was released, but the message could not be put back, because the Redis key of the
     * waiting list has another type */
    LW_SETTLED_BAD = 'B',
};

/* The answers of settle about each message that an item names. */
enum lw_named {
    LW_NAMED_GRANTED = 'A',
    /* the message was finished before this call of settle, or the call dropped it as a duplicate */
    LW_NAMED_FINISHED = 'P',
    /* the call did not decide about the message, because the lease is not kept, or nothing more is
     * granted under it, or the mode is LW_GO_HEADS, which grants only heads */
    LW_NAMED_UNDECIDED = 'G',
};

/* The caller of gate adds this to the number of messages of a lane if the call carries their
 * envelopes. */
enum { LW_GATE_ENVELOPES = 128 };

/* The answers of gate about a message. */
enum lw_gated {
    LW_GATED_RUN = 'R',      /* run the message, because the caller now holds its lane */
    LW_GATED_ALSO = 'A',     /* run the message after the one before it, under the same lease */
    LW_GATED_WAITS = 'W',    /* the message stands in the waiting list of its lane */
    LW_GATED_FINISHED = 'D', /* the message was finished before this call of gate */
    /* the message was dropped, because another message has recorded the same business id */
    LW_GATED_DUPLICATE = 'U',
    LW_GATED_UNDECIDED = 'G', /* ask gate again about the message */
    LW_GATED_ENVELOPE = 'E',  /* the message has to wait, so call gate again with its envelope */
    LW_GATED_BAD = 'B', /* a Redis key of the lane has a type that the scripts do not expect */
};

/* The answers of claim about a lane. */
enum lw_claimed {
    LW_CLAIMED_HEADS = 'N', /* heads of the waiting list were handed over */
    LW_CLAIMED_EMPTY = 'E', /* no message waits in the lane */
    LW_CLAIMED_BUSY = 'B',
};

#endif
