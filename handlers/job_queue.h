/* SPDX-License-Identifier: Apache-2.0 */
/* A queue of jobs, linked by their `next`. It owns nothing, and has no lock of its own. */
#ifndef LW_HANDLERS_JOB_QUEUE_H
#define LW_HANDLERS_JOB_QUEUE_H

#include "handlers/handler.h"

struct lw_job_queue {
    /* oldest job; the link behind the youngest. The owner calls lw_jobs_clear() first */
    struct lw_job *head, **tail;
};

/* Empties the queue; its jobs stay as they are. */
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

/* Takes the oldest job out; the queue must not be empty. */
static inline struct lw_job *lw_jobs_pop(struct lw_job_queue *q) {
    struct lw_job *job = q->head;
    q->head = job->next;
    if (!q->head) q->tail = &q->head;
    return job;
}

/* Moves all jobs of `from` behind those of `to`. */
static inline void lw_jobs_move(struct lw_job_queue *to, struct lw_job_queue *from) {
    if (!from->head) return;
    *to->tail = from->head;
    to->tail = from->tail;
    lw_jobs_clear(from);
}

#endif
