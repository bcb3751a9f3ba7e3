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
 *     - a trial takes messages that have not failed first, and it has failed when as many as its
 *       size have: 1 at first, then the places of the handler, then four times the places and one.
 *
 * So if at most four times as many keys as the handler has places always fail, the third trial has
 * a message of another key. The three pauses before it, of which the first is at most a quarter of
 * the longest one (lw_trial_first_pause_ms()), are together at most twice the longest one. All
 * functions belong to the thread that runs the messages. */
#ifndef LW_HANDLERS_TRIAL_H
#define LW_HANDLERS_TRIAL_H

#include "handlers/job_queue.h"

enum { LW_TRIAL_MOST = 4096 }; /* maximum number of remembered messages; the oldest goes first */
enum { LW_TRIAL_REST_MAX_MS = 30000 };

struct lw_trial {
    int places;         /* how many messages the handler runs at once */
    int size, failures; /* messages of the present trial, and how many of them have failed */
    int trials;         /* how many trials have failed since the last success, at most 2 */
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
/* Returns how long a message that failed rests, if the pause is pause_ms: two pauses, so that the
 * next trial meets other messages, but not so long that it is late after a real outage. */
static inline int64_t lw_trial_rest_ms(int64_t pause_ms) {
    return 2 * pause_ms < LW_TRIAL_REST_MAX_MS ? 2 * pause_ms : LW_TRIAL_REST_MAX_MS;
}
/* Returns the length of the first pause, at most usual_ms, if the longest one is most_ms. */
static inline int64_t lw_trial_first_pause_ms(int64_t usual_ms, int64_t most_ms) {
    int64_t ms = usual_ms < most_ms / 4 ? usual_ms : most_ms / 4;
    return ms > 0 ? ms : 1;
}
/* Takes note that a message of a trial failed. Returns true if the trial is over, because as many
 * have failed as it takes; the next one is larger. Until then further messages may be tried. */
bool lw_trial_over(struct lw_trial *t);
/* Moves the first job that has not failed to the head of the queue, if there is one. */
void lw_trial_prefer(const struct lw_trial *t, struct lw_job_queue *q);

#endif
