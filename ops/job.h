/* SPDX-License-Identifier: Apache-2.0 */
/* A job is one bulk command over many messages. An application runs one job at a time. A job has a
 * number, reports what it did, and may be interrupted at any point and resumed later: each message
 * is moved by one call of one script, and the marks show which messages were already moved.
 *
 * Call ops_job_begin(), then ops_job_put() or ops_job_drop() for each message, then ops_job_end().
 * Without --execute nothing is written: the scripts only say what they would do, and ops_job_end()
 * reports the sums. Messages are sent in batches, at the requested rate. */
#ifndef LW_OPS_JOB_H
#define LW_OPS_JOB_H

#include "ops/ops.h"

enum ops_do { OPS_PUT, OPS_DROP, OPS_REMOVE };

struct ops_item {
    struct ops_shard *shard;
    struct lw_bytes lane; /* id of the lane, an owned copy */
    struct lw_buf envelope;
    char identity[320]; /* identity of the message that is put or dropped */
    /* `tp` has the form topic:partition. For OPS_PUT, it names the partition of the original if the
     * message was read from Kafka again, and is "" otherwise. For OPS_DROP, it names the partition
     * of the message, followed by "#NUMBER" if the message is a replay. */
    char tp[300];
    int64_t offset;
    /* For a dead letter, its id in the stream `dead`, or its identity if it is in a topic; "" if
     * the message is no dead letter. */
    char entry[OPS_DEAD_ID];
    char *backup; /* the message's line in the backup, an owned copy; NULL: there is no backup */
    char letter;  /* the script's answer about the message; 0: not sent yet */
};

struct ops_job {
    struct ops *o;
    enum ops_do what;
    /* `any` is true if messages that are already done are put into their lanes, too */
    bool dry, any, stopped;
    /* `number` is the number of the job, which is also the replay number of the messages that the
     * job puts into lanes. */
    int64_t number;
    char token[40], who[256];
    char *words; /* the options with which the job was started, as JSON */
    struct ops_item item[OPS_BATCH];
    int n, batch;
    size_t bytes; /* number of bytes of all envelopes in the batch */
    int64_t taken, begun_ms, renewed_ms, told_ms, problems;
    /* `count` holds, for each letter, the number of messages for which a script answered this
     * letter. */
    int64_t count[128];
    FILE *backup;
    char backup_name[512];
    bool progress;
    int lines; /* number of lines printed so far about individual messages */
};

/* For --resume: if the command line names neither messages nor filters, and has neither --to-topic
 * nor --again, reads all options from the record of the job. Otherwise returns -1 with o->err if an
 * option differs from that in the record. Times such as "1h" (one hour ago) are relative to the
 * first start of the job. */
int ops_job_adopt(struct ops *o);
int ops_job_begin(struct ops *o, struct ops_job *j, enum ops_do what);
/* Puts a message into its lane, at the latest when the batch ends. Returns 0 if the caller
 * may go on. Returns 1 if it must stop, because the limit is reached or the job was stopped or
 * interrupted. Returns -1 with o->err on failure. */
int ops_job_put(struct ops_job *j, const struct lw_envelope *e, struct lw_bytes lane,
                bool read_again, const struct ops_message *dead);
/* Drops a message from its lane, or drops a dead letter. Returns the same as ops_job_put(). */
int ops_job_drop(struct ops_job *j, const struct ops_message *m);
/* Records that a message cannot be processed. Returns 1 if --stop-on-error was given; the caller
 * must then stop. Otherwise returns 0. */
int ops_job_problem(struct ops_job *j, const char *identity, const char *why);
/* Records that the caller has processed a message: letter 'T' if the message was sent to a topic,
 * 'R' if the handler ran. Returns 1 if the job was stopped or interrupted, otherwise 0. */
int ops_job_done(struct ops_job *j, const char *identity, char letter, const char *more);
/* Counts a message whose processing is about to begin. Returns 0 if the caller may go on after this
 * message, 1 if it must stop then, because --limit is reached or the job was interrupted, and -1
 * with o->err on failure. */
int ops_job_take(struct ops_job *j);
/* Ends the job, prints its report, and returns the exit status. `failed` says how the reading of
 * messages ended: 0 after the last message, -1 after a failure, 1 if the job had to stop. */
int ops_job_end(struct ops_job *j, int failed);

/* --- between job.c, job_record.c and job_tell.c ----------------------------------------------- */

/* Gives the job its number and, unless it is a dry run, begins its record under a lease. */
int ops_job_start(struct ops_job *j);
/* Renews the lease (`what` is "renew") or gives it up ("end"), and records state and counts.
 * Returns -1 with o->err on failure, or if another job began because the lease had ended. */
int ops_job_record(struct ops_job *j, const char *what, const char *state);
bool ops_job_interrupted(const struct ops_job *j); /* by a signal or by the watch */
/* Returns the number of messages that were put, dropped, sent to a topic or tried. In a dry run,
 * returns the number of messages that would have been put, dropped, sent or tried. */
int64_t ops_job_done_count(const struct ops_job *j);
/* Counts what a script answered about a message, and reports it. */
void ops_job_count(struct ops_job *j, const struct ops_item *it, char letter);
void ops_job_progress(struct ops_job *j, bool last);
void ops_job_summary(struct ops_job *j, const char *state);
/* Reports the messages that the command line names and that were not found. Call this function only
 * after everything was read. If a limit or an error has ended the search, a message may exist
 * without having been reached. */
void ops_job_tell_missing(struct ops_job *j);

#endif
