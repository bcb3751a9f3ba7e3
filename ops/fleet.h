/* SPDX-License-Identifier: Apache-2.0 */
/* The fleet as Redis knows it: every supervisor of the application writes a heartbeat with its
 * figures every few seconds (monitor/fleet.h), and anybody can read all of them. The heartbeats are
 * in shard 0 (ops/lua/fleet.lua).
 *
 * Nothing here trusts what it reads, because anybody who may write to Redis could have written it.
 * A reader gets at most OPS_FLEET_MAX entries of at most OPS_FLEET_BYTES. An entry that cannot be
 * read has the state "unknown" and says why. */
#ifndef LW_OPS_FLEET_H
#define LW_OPS_FLEET_H

#include "base/bytes.h"
#include "base/err.h"
#include "base/redis/command.h"

#include <hiredis/hiredis.h>
#include <jansson.h>
#include <stdint.h>

enum {
    OPS_FLEET_EVERY_MS = 5000,
    OPS_FLEET_SILENT_MS = 15000,       /* after this time without a heartbeat */
    OPS_FLEET_FORGET_MS = 3600 * 1000, /* after this time without a heartbeat an entry goes */
    OPS_FLEET_MAX = 64,
    OPS_FLEET_BYTES = 1024,
    OPS_FLEET_ID = 128,
    OPS_FLEET_NAME = 64, /* maximum length of the name of a host, a version and an address */
};

enum ops_fleet_what {
    OPS_FLEET_BEATS, /* reads the heartbeats */
    OPS_FLEET_SHARES /* reads what groups take of the handlers (ops/shares.h) */
};
/* Appends the arguments of fleet.lua, after its key, to the command begun last. `id` "" only reads.
 * `text` "" removes the entry of `id`. `shares` is what ops_shares_text() has written, or "". */
void ops_fleet_args(struct lw_commands *c, const char *id, struct lw_bytes text,
                    enum ops_fleet_what what, struct lw_bytes shares);

/* Writes the text of a heartbeat. `listen` is the address of the page, or NULL. `stats` is an
 * object with the members started_ms, workers, ready, partitions, lag, waiting and in_handler;
 * others are left out. `per_second` is the rate of finished messages; negative: not known yet. */
void ops_fleet_text(struct lw_buf *out, const char *host, int pid, const char *listen,
                    double per_second, const json_t *stats);

/* Writes the name of this host, by which the fleet knows it. */
void ops_fleet_host(char out[OPS_FLEET_NAME + 1]);

/* Who reads. */
struct ops_fleet_reader {
    const char *id;   /* id of the reader's own entry; "" if it has none */
    const char *host; /* name of the reader's host: its supervisors' loopback addresses are links */
    /* `steady_ms` is the time of Redis since when the reader reaches Redis without a gap. Whoever
     * was silent before then may have had no Redis, too, and is not called silent before
     * OPS_FLEET_SILENT_MS have passed. 0: an entry is judged by its age alone. */
    int64_t steady_ms;
};
/* Returns the time of Redis in a reply of fleet.lua, or -1 with *err if the reply is malformed. */
int64_t ops_fleet_now(const redisReply *r, struct lw_err *err);
/* Returns {"supervisors":[…],"sums":{…},"more":N,"complete":B}, as doc/reference/http.md describes
 * it, from a reply for which ops_fleet_now() has returned a time. */
json_t *ops_fleet_json(const redisReply *r, const struct ops_fleet_reader *by);

#endif
