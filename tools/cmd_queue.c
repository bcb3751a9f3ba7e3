/* latchwork queue: which verbs there are. */
#include "tools/cmd_queue.h"

#include "tools/ops.h"

static const struct ops_verb verbs[] = {
    {"ls", "kmtpoalSr", 0, 0, queue_ls, "ls", "lanes: how many wait, how long, who holds them"},
    {"show", "lW", 1, 1, queue_show, "show KEY", "one lane: its holder, and every message that waits"},
    {"pause", "kmtpoax", 0, -1, queue_pause, "pause KEY...", "the lanes park everything, nothing of them runs"},
    {"resume", "kmtpoax", 0, -1, queue_resume, "resume KEY...", "they go on"},
    {"export", "kmtpoalw", 0, -1, queue_export, "export [IDENTITY...]", "what waits, as JSON Lines (kcat -J's names)"},
    {"stats", "lO", 0, 0, queue_stats, "stats", "sizes, the oldest, top keys, top reasons, rates"},
    {"replay", "kmtpfTgxRlsPuyw", 0, -1, queue_replay, "replay [IDENTITY...]",
     "read again from Kafka, and run again (a dry run until --execute)"},
    {"drop", "kmtpoawxRlsbu", 0, -1, queue_drop, "drop [IDENTITY...]", "what waits shall never run (a dry run until --execute)"},
    {"audit", "l", 0, 0, queue_audit, "audit", "what operators did, and the numbers of jobs, the newest last"},
    {"import", "xRlsgu", 1, 1, queue_import, "import FILE",
     "messages of an export into their lanes; - is stdin (a dry run until --execute)"},
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
