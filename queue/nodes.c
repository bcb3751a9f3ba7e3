/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/nodes.h"

#include "base/redis/slot.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The words of a line in the answer to CLUSTER NODES: ID ADDRESS FLAGS MASTER PING PONG
 * CONFIG-EPOCH LINK SLOT… */
enum { FLAGS = 2, CONFIG_EPOCH = 6, FIRST_SLOT = 8, WORD = 64 };

/* Copies the next word of a line. Returns the text after the word, or NULL at the end of the
 * line. */
static const char *next_word(const char *p, char out[WORD]) {
    assert(p && out);
    p += strspn(p, " ");
    size_t n = strcspn(p, " \r\n");
    if (!n) return NULL;
    snprintf(out, WORD, "%.*s", (int)n, p);
    assert(out[0]);
    return p + n;
}

static bool has_flag(const char *flags, const char *flag) {
    assert(flags && flag);
    size_t n = strlen(flag);
    assert(n > 0);
    for (const char *p = flags; (p = strstr(p, flag)); p++)
        if ((p == flags || p[-1] == ',') && (p[n] == ',' || !p[n])) return true;
    return false;
}

/* Returns whether a node has a slot, as the last words of the node's line say. "5" and "5-9" are
 * slots of the node. "[5->-ID]" says that keys of slot 5 are moving to node ID. A slot that is
 * still moving to this node ("[5-<-ID]") does not belong to this node yet. */
static enum lw_slot_at slot_in(const char *p, int slot) {
    assert(p);
    assert(slot >= 0 && slot < LW_SLOTS);
    enum lw_slot_at at = LW_SLOT_ELSEWHERE;
    char word[WORD];
    while ((p = next_word(p, word))) {
        char *more;
        if (word[0] == '[') {
            bool leaves = strtol(word + 1, &more, 10) == slot && !strncmp(more, "->-", 3);
            /* words in brackets, which name moving slots, come after the words that name the slots
             * of the node */
            if (leaves && at == LW_SLOT_WHOLE) at = LW_SLOT_LEAVING;
            continue;
        }
        long first = strtol(word, &more, 10),
             last = *more == '-' ? strtol(more + 1, NULL, 10) : first;
        if (slot >= first && slot <= last) at = LW_SLOT_WHOLE;
    }
    return at;
}

static bool read_line(const char *line, int slot, char flags[WORD], struct lw_cluster_node *out) {
    assert(line && flags);
    assert(out);
    char word[WORD];
    const char *p = line;
    for (int i = 0; i < FIRST_SLOT; i++) {
        p = next_word(p, word);
        if (!p) return false;
        if (i == 0) snprintf(out->id, sizeof out->id, "%.*s", LW_NODE_ID - 1, word);
        if (i == FLAGS) memcpy(flags, word, WORD);
        if (i == CONFIG_EPOCH)
            snprintf(out->config_epoch, sizeof out->config_epoch, "%.*s", 23, word);
    }
    out->master = has_flag(flags, "master");
    out->slot = slot_in(p, slot);
    return true;
}

static const char *next_line(const char *p) {
    assert(p);
    p = strchr(p, '\n');
    return p && p[1] ? p + 1 : NULL;
}

bool lw_nodes_self(const char *nodes, int slot, struct lw_cluster_node *out) {
    assert(nodes && out);
    char flags[WORD];
    for (const char *line = nodes; line; line = next_line(line))
        if (read_line(line, slot, flags, out) && has_flag(flags, "myself")) return true;
    *out = (struct lw_cluster_node){0};
    return false;
}

bool lw_nodes_master(const char *nodes, const char *id) {
    assert(nodes && id);
    assert(strlen(id) < LW_NODE_ID);
    char flags[WORD];
    struct lw_cluster_node node;
    for (const char *line = nodes; line; line = next_line(line))
        if (read_line(line, 0, flags, &node) && !strcmp(node.id, id)) return node.master;
    return false;
}
