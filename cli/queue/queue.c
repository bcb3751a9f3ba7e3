/* SPDX-License-Identifier: Apache-2.0 */
/* latchwork queue: which verbs there are. */
#include "cli/queue/queue.h"

#include "ops/ops.h"

static const struct ops_verb verbs[] = {
    {"ls", "kmtpoalSr", 0, 0, queue_ls, "ls", "list lanes: how many messages wait, how long, who holds them"},
    {"show", "lW", 1, 1, queue_show, "show KEY", "show one lane: its holder and every waiting message"},
    {"pause", "kmtpoax", 0, -1, queue_pause, "pause KEY...", "pause lanes: new messages are parked, nothing starts"},
    {"resume", "kmtpoax", 0, -1, queue_resume, "resume KEY...", "resume paused lanes"},
    {"export", "kmtpoalwI", 0, -1, queue_export, "export [IDENTITY...]", "print waiting messages as JSON Lines (the names of kcat -J)"},
    {"stats", "lO", 0, 0, queue_stats, "stats", "show sizes, oldest message, top keys, top reasons, rates"},
    {"replay", "kmtpfTgxRlsPuywI", 0, -1, queue_replay, "replay [IDENTITY...]",
     "read messages again from Kafka and run them (default: dry run)"},
    {"drop", "kmtpoawxRlsbuI", 0, -1, queue_drop, "drop [IDENTITY...]", "discard waiting messages (default: dry run)"},
    {"audit", "l", 0, 0, queue_audit, "audit", "list what operators did, with job numbers, newest last"},
    {"import", "xRlsgu", 1, 1, queue_import, "import FILE", "put the messages of an export into their lanes; -: stdin (default: dry run)"},
};

static const char *const examples[] = {
    "ls -c orders.json --sort size",
    "ls -c orders.json --older-than 5m --json",
    "show c-17 -c orders.json",
    "pause c-17 -c orders.json",
    "resume c-17 -c orders.json",
    "export -c orders.json --key c-17 > c-17.jsonl",
    "stats -c orders.json --over 10s",
    "replay orders/3/1042 -c orders.json --again --execute",
    "replay -c orders.json --topic orders --key c-17 --from 1h --again",
    "replay -c orders.json --resume 7 --execute",
    "drop -c orders.json --key c-17 --where '/total>100' --limit 10",
    "import c-17.jsonl -c orders.json --execute",
    "audit -c orders.json --limit 10",
    NULL,
};
static const struct ops_help help = {"Lanes and what waits in them. KEY is a primary key, IDENTITY topic/partition/offset.\n", examples};

int lw_cmd_queue(int argc, char **argv) { return ops_main("queue", &help, verbs, sizeof verbs / sizeof *verbs, argc, argv); }
