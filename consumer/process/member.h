/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the group.instance.id of each worker, for static membership.
 *
 * A static member that rejoins under its id within session.timeout.ms gets its partitions back
 * without a rebalance. When a dynamic member dies, the whole group waits until the session of that
 * member ends. The id is
 *
 *     NAME-MEMBER-SLOT-WORKER-TOPICS
 *
 * MEMBER is kafka.member_id, or the host's name. SLOT tells supervisors with the same MEMBER on one
 * host apart, because two members with one id would fence each other. A supervisor claims its slot
 * with a socket in the abstract namespace, which the kernel frees when the process ends. TOPICS is
 * a hash of kafka.topics, because a broker does not notice when a known static member subscribes to
 * other topics.
 *
 * If kafka.properties set group.instance.id, the id is ID-WORKER-TOPICS, where ID is the value of
 * that property. Each supervisor of the group then needs a value of its own. */
#ifndef LW_CONSUMER_PROCESS_MEMBER_H
#define LW_CONSUMER_PROCESS_MEMBER_H

#include "config/config.h"

enum { LW_MEMBER_MAX = 250, LW_MEMBER_SLOTS = 64 };

/* Claims the lowest free slot of static membership for this process, and returns the slot. Returns
 * -1 and sets *fd to -1 if workers must be dynamic members. The reason is either the configuration,
 * or a failure to claim a slot, which is logged. The claim ends when all copies of `fd` are closed,
 * so children must close their copy. */
int lw_member_claim(const struct lw_config *c, int *fd);
/* Writes a worker's group.instance.id. If slot is -1 and kafka.properties name no id, returns false
 * with an empty `out`. */
bool lw_member_id(const struct lw_config *c, int slot, int worker, char out[LW_MEMBER_MAX]);

#endif
