/* SPDX-License-Identifier: Apache-2.0 */
/* trial: is the service at fault, or the message?
 *
 * A handler that waits for others (a process, a service, a database) stops when they seem to be
 * unable to work, gives messages back without an attempt, and tries again after a pause. Messages
 * that always fail look the same at first. Three rules keep them apart, so that N of them cannot
 * stop the messages that would succeed:
 *
 *     - one success, of whatever message, shows that the service works;
 *     - a message that failed before, and fails again after another one has succeeded, is at fault
 *       itself: it counts an attempt, and says nothing about the service;
 *     - a trial takes messages that have not failed first, and takes four times as many as the one
 *       before, up to the places of the handler, before it has failed.
 *
 * So after k failed trials about 4^k messages were tried. All functions belong to the thread that
 * runs the messages. */
#ifndef LW_HANDLERS_TRIAL_H
#define LW_HANDLERS_TRIAL_H

#include "handlers/job_queue.h"

enum { LW_TRIAL_MOST = 4096 }; /* maximum number of remembered messages; the oldest goes first */
enum { LW_TRIAL_REST_MAX_MS = 30000 };

struct lw_trial {
    int places;         /* how many messages the handler runs at once */
    int size, failures; /* messages of the present trial, and how many of them have failed */
    uint64_t successes; /* number of messages that succeeded */
    struct lw_failed *table;
    size_t n;
};

void lw_trial_open(struct lw_trial *t, int places);
void lw_trial_close(struct lw_trial *t);
/* Takes note that a message failed. Returns true if the message is at fault itself. */
bool lw_trial_failed(struct lw_trial *t, const char *identity);
/* Takes note that a message succeeded. */
void lw_trial_succeeded(struct lw_trial *t, const char *identity);
/* Returns how long a message that failed rests, if the pause is pause_ms: several pauses, so that
 * the next trials meet other messages, but not so long that it is late after a real outage. */
static inline int64_t lw_trial_rest_ms(int64_t pause_ms) {
    return 8 * pause_ms < LW_TRIAL_REST_MAX_MS ? 8 * pause_ms : LW_TRIAL_REST_MAX_MS;
}
/* Takes note that a message of a trial failed. Returns true if the trial is over, because as many
 * have failed as it takes; the next one is larger. Until then further messages may be tried. */
bool lw_trial_over(struct lw_trial *t);
/* Returns true if the message has failed and not succeeded since. */
bool lw_trial_has_failed(const struct lw_trial *t, const char *identity);
/* Moves the first job that has not failed to the head of the queue, if there is one. */
void lw_trial_prefer(const struct lw_trial *t, struct lw_job_queue *q);

#endif
