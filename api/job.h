/* SPDX-License-Identifier: Apache-2.0 */
/* A job of the API is a command over many lanes or messages, which takes longer than a request may.
 * Each job has its own thread and its own connections, so that the API can answer requests while
 * the job runs. Only one job runs at a time in this process, and a request for a second job is
 * refused. A job that replays or drops messages also holds the lease of the application's job
 * (ops/job.h), so that no such job of another host or of a command runs at the same time.
 *
 * The last API_JOBS jobs are remembered in memory. The audit in Redis also records what a job did,
 * and outlives the process. */
#ifndef LW_API_JOB_H
#define LW_API_JOB_H

#include "api/private.h"

enum { API_JOBS = 50, API_SAMPLES = 10 };

/* Describes the command that a job runs. If the `cancel` flag of the job's watch (struct ops_watch)
 * is set, the command stops at its next step. */
struct api_work {
    const char *noun, *verb;       /* the words of the command, such as "dead" and "replay" */
    int (*operate)(struct ops *o); /* the command's function, which returns an exit status */
    /* If `make` is not NULL, it is called instead of `operate`. `make` stores in *result the JSON
     * object that becomes the job's member "result", and returns -1 with o->err on failure. */
    int (*make)(struct ops *o, json_t **result);
    /* `one_at_a_time` is true if the command excludes other jobs of the application on all hosts
     * (ops/job.h). */
    bool one_at_a_time;
    /* `keys` is true if the "ids" of the request are keys; if it is false, they are identities or
     * ids of dead letters. */
    bool keys;
    /* true if even a dry run of the command may take longer than a request is allowed to take; a
     * dry run is then a job, too */
    bool slow_dry_run;
};

struct api_jobs *api_jobs_open(const struct lw_config *c);
/* Starts a job with the filters of the request. Answers 202 with the job's id, 409 if another job
 * is running, or 503 if no thread can be started, and returns 0. Returns -1 if Redis did not
 * reply. */
int api_job_start(struct api_call *k, const struct api_work *work);
/* Makes a dry run of the command within the time limit of the request. The response says what the
 * command would do. */
int api_job_dry(struct api_call *k, const struct api_work *work);
/* Returns the result of the newest finished job that ran the command `work`, as a new reference, or
 * NULL if there is no such job. Sets *at_ms to the time at which that job ended. */
json_t *api_job_last(struct api_call *k, const struct api_work *work, int64_t *at_ms);

/* api/bulk.c defines one struct api_work for each bulk command. */
extern const struct api_work api_work_pause, api_work_resume, api_work_drop, api_work_again,
    api_work_replay, api_work_remove;

#endif
