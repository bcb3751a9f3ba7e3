/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/process/member.h"

#include "base/host.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The hash function is FNV-1a. The hash covers the NUL of each text as well, so that the texts
 * "ab", "c" and "a", "bc" have different hashes. */
static uint64_t hash(uint64_t h, const char *text) {
    do h = (h ^ (unsigned char)*text) * 0x100000001b3U;
    while (*text++);
    return h;
}

static uint64_t seed(void) { return 0xcbf29ce484222325U; }

/* Hashes the topics so that their order does not matter. */
static uint32_t topics(const struct lw_config *c) {
    uint64_t sum = 0;
    for (size_t i = 0; i < c->kafka.n_topics; i++) sum += hash(seed(), c->kafka.topics[i]);
    return (uint32_t)(sum ^ sum >> 32);
}

bool lw_member_id(const struct lw_config *c, int slot, int worker, char out[LW_MEMBER_MAX]) {
    char host[LW_HOST_NAME];
    const char *given = lw_config_property(c, "group.instance.id");
    *out = 0;
    if (given) snprintf(out, LW_MEMBER_MAX, "%.200s-%d-%08" PRIx32, given, worker, topics(c));
    if (given || slot < 0) return given;
    const char *member = c->kafka.member_id ? c->kafka.member_id : lw_host_name(host);
    snprintf(out, LW_MEMBER_MAX, "%s-%s-%d-%d-%08" PRIx32, c->name, member, slot, worker,
             topics(c));
    return true;
}

/* Writes the abstract address of a slot of static membership. The kernel allows one socket with
 * this address per network namespace. */
static socklen_t slot_name(const struct lw_config *c, int slot, struct sockaddr_un *a) {
    char host[LW_HOST_NAME];
    uint64_t h = hash(hash(seed(), c->name), c->kafka.group_id);
    h = hash(h, c->kafka.member_id ? c->kafka.member_id : lw_host_name(host));
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "latchwork-member-%016" PRIx64 "-%d",
                     h, slot);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int give_up(const char *what, int error) {
    lw_warn("%s: %s; workers join the group as dynamic members: when one dies, the whole group "
            "waits session.timeout.ms",
            what, strerror(error));
    return -1;
}

int lw_member_claim(const struct lw_config *c, int *fd) {
    *fd = -1;
    if (c->kafka.dynamic) return -1;
    int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0) return give_up("can't open a socket to claim static member ids", errno);
    for (int slot = 0; slot < LW_MEMBER_SLOTS; slot++) {
        struct sockaddr_un a;
        socklen_t n = slot_name(c, slot, &a);
        if (!bind(s, (struct sockaddr *)&a, n)) {
            *fd = s;
            return slot;
        }
        if (errno != EADDRINUSE) break;
    }
    int error = errno;
    close(s);
    return give_up("can't claim static member ids on this host", error);
}
