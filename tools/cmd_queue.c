/* latchwork queue: which verbs there are. */
#include "tools/cmd_queue.h"

#include "tools/ops.h"

static const struct ops_verb verbs[] = {
    {"ls", "kmtpoalSr", 0, 0, queue_ls, "ls", "lanes: how many wait, how long, who holds them"},
    {"show", "lW", 1, 1, queue_show, "show KEY", "one lane: its holder, and every message that waits"},
    {"pause", "kmtpoax", 0, -1, queue_pause, "pause KEY...", "the lanes park everything, nothing of them runs"},
    {"resume", "kmtpoax", 0, -1, queue_resume, "resume KEY...", "they go on"},
    {"export", "kmtpoalw", 0, -1, queue_export, "export [IDENTITY...]", "what waits, as JSON Lines (kcat -J's names)"},
    {"stats", "l", 0, 0, queue_stats, "stats", "sizes, the oldest, top keys, top reasons, rates"},
    {"replay", "kmtpfTgxRlsPuyw", 0, -1, queue_replay, "replay [IDENTITY...]", "read again from Kafka, and run again (a dry run until --execute)"},
    {"drop", "kmtpoawxRlsbu", 0, -1, queue_drop, "drop [IDENTITY...]", "what waits shall never run (a dry run until --execute)"},
    {"import", "xRlsgu", 1, 1, queue_import, "import FILE", "messages of an export into their lanes; - is stdin (a dry run until --execute)"},
};

int lw_cmd_queue(int argc, char **argv) {
    return ops_main("queue", "Lanes and what waits in them. KEY is a primary key, IDENTITY topic/partition/offset.\n", verbs,
                    sizeof verbs / sizeof *verbs, argc, argv);
}
