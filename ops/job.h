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
    char identity[320]; /* of what is put; of what is dropped */
    char tp[300];       /* PUT: the original's, or ""; DROP: its own */
    int64_t offset;
    char entry[64]; /* id in the stream of dead letters, or "" */
    char *backup;   /* DROP, REMOVE: its line; owned */
    char letter;    /* what became of it; 0: not asked yet */
};

struct ops_job {
    struct ops *o;
    enum ops_do what;
    bool dry, any, stopped; /* any: what is done is put again, too */
    int64_t number;         /* the replay number of what is put */
    char token[40], who[256];
    char *words; /* what it was asked for */
    struct ops_item item[OPS_BATCH];
    int n, batch;
    size_t bytes; /* of the batch's envelopes */
    int64_t taken, begun_ms, renewed_ms, told_ms, problems;
    int64_t count[128]; /* by letter */
    FILE *backup;
    char backup_name[512];
    bool progress;
};

/* --resume: takes what the job was asked for from its record, where the command line says nothing of it; otherwise both must be the same.
 * Times count from when it was first asked for. */
int ops_job_adopt(struct ops *o);
int ops_job_begin(struct ops *o, struct ops_job *j, enum ops_do what);
/* 1: the limit is reached, or it was interrupted. */
int ops_job_put(struct ops_job *j, const struct lw_envelope *e, struct lw_bytes lane, bool read_again, const struct ops_message *dead);
int ops_job_drop(struct ops_job *j, const struct ops_message *m); /* from its lane, or a dead letter */
/* Something that can't be dealt with. 1: --stop-on-error. */
int ops_job_problem(struct ops_job *j, const char *identity, const char *why);
/* One that the caller dealt with itself: 'T' it went to a topic, 'R' the handler ran. 1 as above. */
int ops_job_done(struct ops_job *j, const char *identity, char letter, const char *more);
/* Counts one that is begun; 1: no more of them, but this one still. */
int ops_job_take(struct ops_job *j);
int ops_job_end(struct ops_job *j, int failed); /* returns the exit status */

#endif
