/* SPDX-License-Identifier: Apache-2.0 */
/* A queue of jobs, linked by their field `next`. The queue does not own the jobs, and has no
 * mutex. */
#ifndef LW_HANDLERS_JOB_QUEUE_H
#define LW_HANDLERS_JOB_QUEUE_H

#include "handlers/handler.h"

struct lw_job_queue {
    /* `head` is the oldest job, and `tail` points to the link after the youngest job. The owner
     * must call lw_jobs_clear() before any other use. */
    struct lw_job *head, **tail;
};

/* Makes the queue empty, without changing the jobs. */
static inline void lw_jobs_clear(struct lw_job_queue *q) {
    *q = (struct lw_job_queue){NULL, &q->head};
}

static inline void lw_jobs_append(struct lw_job_queue *q, struct lw_job *job) {
    job->next = NULL;
    *q->tail = job;
    q->tail = &job->next;
}

static inline void lw_jobs_push_front(struct lw_job_queue *q, struct lw_job *job) {
    job->next = q->head;
    if (!q->head) q->tail = &job->next;
    q->head = job;
}

/* Removes and returns the oldest job. The queue must not be empty. */
static inline struct lw_job *lw_jobs_pop(struct lw_job_queue *q) {
    struct lw_job *job = q->head;
    q->head = job->next;
    if (!q->head) q->tail = &q->head;
    return job;
}

/* Moves all jobs of `from` to the end of `to`. */
static inline void lw_jobs_move(struct lw_job_queue *to, struct lw_job_queue *from) {
    if (!from->head) return;
    *to->tail = from->head;
    to->tail = from->tail;
    lw_jobs_clear(from);
}

#endif
