/* SPDX-License-Identifier: Apache-2.0 */
/* A job: one bulk command over many messages. It runs alone (one job an application at a time), has a number, tells what it did, and may be
 * interrupted anywhere and gone on with: each message is moved by one script, and one that was moved is known by its marks.
 *
 * Calling sequence: begin, then put/drop/remove for each message, end. Without --execute nothing is written, the scripts only say what
 * they would do, and end tells it. Messages are sent in batches, at the rate that was asked for. */
#ifndef LW_OPS_JOB_H
#define LW_OPS_JOB_H

#include "ops/ops.h"

enum ops_do { OPS_PUT, OPS_DROP, OPS_REMOVE };

struct ops_item {
    struct ops_shard *shard;
    struct lw_bytes lane; /* owned */
    struct lw_buf envelope;
    char identity[320]; /* its identity: of the message that is put, or dropped */
    char tp[300];       /* PUT: topic:partition of the original, or ""; DROP: its own */
    int64_t offset;
    char entry[64]; /* id in the stream of dead letters, or "" */
    char *backup;   /* DROP, REMOVE: its line in the backup; owned */
    char letter;    /* the script's answer; 0: not sent yet */
};

struct ops_job {
    struct ops *o;
    enum ops_do what;
    bool dry, any, stopped; /* any: messages that are done are put again, too */
    int64_t number;         /* the replay number of the messages that are put */
    char token[40], who[256];
    char *words; /* the options that it was started with */
    struct ops_item item[OPS_BATCH];
    int n, batch;
    size_t bytes; /* size of the envelopes in the batch */
    int64_t taken, begun_ms, renewed_ms, told_ms, problems;
    int64_t count[128]; /* number of messages by letter */
    FILE *backup;
    char backup_name[512];
    bool progress;
};

/* --resume: takes options missing on the command line from the job's record; the others must equal
 * it. Relative times count from the job's first start. */
int ops_job_adopt(struct ops *o);
int ops_job_begin(struct ops *o, struct ops_job *j, enum ops_do what);
/* Returns 1 if the limit is reached or the job was interrupted. */
int ops_job_put(struct ops_job *j, const struct lw_envelope *e, struct lw_bytes lane, bool read_again, const struct ops_message *dead);
int ops_job_drop(struct ops_job *j, const struct ops_message *m); /* drops a message from its lane, or a dead letter */
/* Notes a message that cannot be dealt with. Returns 1 with --stop-on-error. */
int ops_job_problem(struct ops_job *j, const char *identity, const char *why);
/* Notes a message that the caller dealt with: 'T' it went to a topic, 'R' the handler ran. Returns
 * 1 as above. */
int ops_job_done(struct ops_job *j, const char *identity, char letter, const char *more);
/* Counts a message that is begun. Returns 1 if it is the last one. */
int ops_job_take(struct ops_job *j);
int ops_job_end(struct ops_job *j, int failed); /* returns the exit status */

#endif
