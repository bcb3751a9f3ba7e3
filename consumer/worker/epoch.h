/* SPDX-License-Identifier: Apache-2.0 */
/* epoch: the part of the worker that joins an epoch, waits until the quarantine is over, and
 * handles the end of the epoch. */
#ifndef LW_CONSUMER_WORKER_EPOCH_H
#define LW_CONSUMER_WORKER_EPOCH_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_worker;
struct shard;

struct epoch {                   /* only epoch.c changes this struct */
    char id[40];                 /* id of the epoch that is joined; "": none */
    int64_t quarantine_until_ms; /* time when the quarantine ends; 0: there is no quarantine */
    /* `ttl_ms` is the largest TTL of the epoch that was joined last, from the reply to enter; 0:
     * none */
    int64_t ttl_ms;
    int64_t old_until_ms; /* time at which all leases of earlier epochs have ended */
};

/* Returns true while the worker is in an epoch of the shard. */
bool epoch_joined(const struct shard *sh);
/* Returns the id of the epoch, or "" if there is none. The text belongs to the shard, and changes
 * when the epoch does. */
const char *epoch_id(const struct shard *sh);
/* Returns the largest TTL of the epoch that was joined last, or 0 if none was joined. */
int64_t epoch_ttl_ms(const struct shard *sh);
void epoch_quarantine(struct shard *sh, int64_t until_ms);
/* Returns how long the quarantine still lasts, or 0 if there is none. */
int64_t quarantine_left_ms(const struct shard *sh, int64_t now);
void shard_lost(struct lw_worker *w, struct shard *sh, const char *why);
/* Returns true while neither gate nor claim may be sent, because of a quarantine or because no
 * commit of the group is known yet. */
bool shard_quarantined(const struct shard *sh, int64_t now);
void enter_build(struct lw_worker *w, struct shard *sh);
void enter_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

#endif
