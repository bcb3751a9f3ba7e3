/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of the API: commands over many lanes or messages, which take longer than a request may. Each
 * job has a thread and connections of its own, so that requests go on meanwhile. One job runs at a
 * time, and a request for a second one is refused. Jobs that replay or drop also hold the
 * application's job (ops/job.h), so that they exclude those of other hosts and of the commands.
 *
 * The last API_JOBS jobs are remembered in memory. What a job did also stands in the audit, which
 * outlives the process. */
#ifndef LW_CLI_API_JOB_H
#define LW_CLI_API_JOB_H

#include "cli/api/private.h"

enum { API_JOBS = 50, API_SAMPLES = 10 };

/* Describes what a job does. A job stops soon after the `cancel` of its watch becomes true. */
struct api_work {
    const char *noun, *verb;       /* the words of the command, such as "dead" and "replay" */
    int (*operate)(struct ops *o); /* the command's function; it returns an exit status */
    /* Is called instead of `operate`, and makes the object for the job's "result". Returns -1 with
     * o->err on failure. */
    int (*make)(struct ops *o, json_t **result);
    /* the command excludes other jobs of the application on all hosts (ops/job.h) */
    bool one_at_a_time;
    /* "ids" of the request are keys; otherwise identities or ids of dead letters */
    bool keys;
    bool slow_dry_run; /* a dry run is a job, too, because it takes longer than a request may */
};

struct api_jobs *api_jobs_open(const struct lw_config *c);
/* Starts a job with the filters of the request, and answers 202 with its id, or 409 if another job
 * runs. Returns -1 if Redis could not be asked. */
int api_job_start(struct api_call *k, const struct api_work *work);
/* Runs the command as a dry run within the request, for a limited time, and answers with what it
 * would do. */
int api_job_dry(struct api_call *k, const struct api_work *work);
/* Returns the result of the newest finished job with this work as a new reference, or NULL; *at_ms
 * becomes the time of its end. */
json_t *api_job_last(struct api_call *k, const struct api_work *work, int64_t *at_ms);

/* defined in cli/api/bulk.c */
extern const struct api_work api_work_pause, api_work_resume, api_work_drop, api_work_again,
    api_work_replay, api_work_remove;

#endif
