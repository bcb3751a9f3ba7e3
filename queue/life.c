/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/life.h"

#include "base/redis/reply.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REDIS_MAJOR_FLOOR = 7 };

static bool is_zero(const char *text) { return text[0] && !text[strspn(text, "0")]; }

void lw_life_read(struct lw_life *life, const char *info) {
    char run_id[48], replid[48], old_replid[48], role[16], bytes[24];
    lw_info_field(info, "run_id", run_id, sizeof run_id);
    lw_info_field(info, "master_replid", replid, sizeof replid);
    lw_info_field(info, "role", role, sizeof role);
    snprintf(life->id, sizeof life->id, "%s/%s", run_id, replid);
    life->history[0] = 0;
    life->never_replica = false;
    life->promoted = true;
    if (!run_id[0] || strcmp(role, "master") != 0 ||
        !lw_info_field(info, "total_net_repl_input_bytes", bytes, sizeof bytes))
        return;
    snprintf(life->history, sizeof life->history, "%s/%s", run_id, bytes);
    lw_info_field(info, "master_replid2", old_replid, sizeof old_replid);
    life->promoted = !is_zero(old_replid);
    life->never_replica = is_zero(bytes) && !life->promoted;
    assert(life->history[0]);
}

bool lw_life_same(const struct lw_life *a, const struct lw_life *b) {
    if (!strcmp(a->id, b->id)) return true;
    return a->history[0] && !strcmp(a->history, b->history) && !b->promoted;
}

void lw_redis_server_read(struct lw_redis_server *s, const char *info) {
    char version[32];
    s->too_old = false;
    if (lw_info_field(info, "valkey_version", version, sizeof version)) {
        snprintf(s->text, sizeof s->text, "Valkey %s", version);
        return;
    }
    bool known = lw_info_field(info, "redis_version", version, sizeof version);
    s->too_old = strtol(version, NULL, 10) < REDIS_MAJOR_FLOOR;
    assert(known || !version[0]);
    snprintf(s->text, sizeof s->text, "Redis %s%s", known ? "" : "of unknown version", version);
}

bool lw_redis_lacks_lua(const char *error) {
    return strstr(error, "Could not find scripting engine");
}
