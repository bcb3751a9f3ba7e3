/* SPDX-License-Identifier: Apache-2.0 */
/* A job of the API is a command over many lanes or messages, which takes longer than a request may.
 * Each job has its own thread and its own connections, so that the API can answer requests while
 * the job runs. One job runs at a time, and a request for a second job is refused. Jobs that replay
 * or drop messages also hold the application's job (ops/job.h), so that no such job of another host
 * or of a command runs at the same time.
 *
 * The last API_JOBS jobs are remembered in memory. The audit also records what a job did, and is
 * kept when the process ends. */
#ifndef LW_CLI_API_JOB_H
#define LW_CLI_API_JOB_H

#include "cli/api/private.h"

enum { API_JOBS = 50, API_SAMPLES = 10 };

/* Describes the command that a job runs. If the `cancel` flag of the job's watch (struct ops_watch)
 * is set, the job stops soon. */
struct api_work {
    const char *noun, *verb;       /* the words of the command, such as "dead" and "replay" */
    int (*operate)(struct ops *o); /* the command's function, which returns an exit status */
    /* If `make` is not NULL, it is called instead of `operate` and creates the object for "result"
     * of the job. It returns -1 with o->err on failure. */
    int (*make)(struct ops *o, json_t **result);
    /* true: the command excludes other jobs of the application on all hosts (ops/job.h) */
    bool one_at_a_time;
    /* true: the "ids" of the request are keys; false: they are identities or ids of dead letters */
    bool keys;
    /* A dry run of the command takes longer than a request may, so it is a job, too. */
    bool slow_dry_run;
};

struct api_jobs *api_jobs_open(const struct lw_config *c);
/* Starts a job with the filters of the request. Answers 202 with the job's id, or 409 if another
 * job is running. Returns -1 if Redis did not answer. */
int api_job_start(struct api_call *k, const struct api_work *work);
/* Makes a dry run of the command within the time limit of the request. Answers with what the
 * command would do. */
int api_job_dry(struct api_call *k, const struct api_work *work);
/* Returns the result of the newest finished job that did this work, as a new reference, or NULL if
 * there is none. Sets *at_ms to the time at which that job ended. */
json_t *api_job_last(struct api_call *k, const struct api_work *work, int64_t *at_ms);

/* cli/api/bulk.c defines these objects. */
extern const struct api_work api_work_pause, api_work_resume, api_work_drop, api_work_again,
    api_work_replay, api_work_remove;

#endif
