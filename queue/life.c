/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/life.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

bool lw_info_field(const char *info, const char *name, char *out, int size) {
    assert(info && name);
    assert(out && size > 0);
    char pattern[64];
    snprintf(pattern, sizeof pattern, "\n%s:", name);
    const char *p = strstr(info, pattern);
    out[0] = 0;
    if (!p) return false;
    p += strlen(pattern);
    snprintf(out, (size_t)size, "%.*s", (int)strcspn(p, "\r\n"), p);
    return true;
}

static bool is_zero(const char *text) {
    assert(text);
    return text[0] && !text[strspn(text, "0")];
}

void lw_life_read(struct lw_life *life, const char *info) {
    assert(life && info);
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
    assert(a && b);
    if (!strcmp(a->id, b->id)) return true;
    return a->history[0] && !strcmp(a->history, b->history) && !b->promoted;
}
