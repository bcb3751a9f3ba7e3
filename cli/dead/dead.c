/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the command `latchwork dead` as a table of its verbs. */
#include "cli/dead/dead.h"

#include "cli/operators.h"
#include "cli/queue/queue.h"
#include "ops/dead/dead.h"

static const struct cli_verb verbs[] = {
    {.name = "ls",
     .bit = DEAD_LS,
     .operate = dead_ls,
     .help = "list dead letters, oldest first, with age, attempts and reason"},
    {.name = "show",
     .bit = DEAD_SHOW,
     .words = "ID...",
     .min_words = 1,
     .max_words = -1,
     .ids = true,
     .operate = dead_show,
     .help = "print dead letters in full"},
    {.name = "export",
     .bit = DEAD_EXPORT,
     .words = "[ID...]",
     .max_words = -1,
     .ids = true,
     .operate = dead_export,
     .help = "print dead letters as JSON Lines (the names of kcat -J)"},
    {.name = "replay",
     .bit = DEAD_REPLAY,
     .words = "[ID...]",
     .max_words = -1,
     .ids = true,
     .operate = dead_replay,
     .help = "put dead letters back into their lanes (default: dry run)"},
    {.name = "drop",
     .bit = DEAD_DROP,
     .words = "[ID...]",
     .max_words = -1,
     .ids = true,
     .operate = dead_drop,
     .help = "delete dead letters after a backup (default: dry run)"},
    {.name = "edit",
     .bit = DEAD_EDIT,
     .words = "ID",
     .min_words = 1,
     .max_words = 1,
     .ids = true,
     .operate = dead_edit,
     .help = "edit a payload in $EDITOR and keep the original"},
};

static const char *const examples[] = {
    "ls -c orders.json --reason 'NO_RATE*' --from 1h",
    "ls -c orders.json --where '/total>100'",
    "show orders/3/1042 -c orders.json",
    "edit orders/3/1042 -c orders.json",
    "replay orders/3/1042 -c orders.json --execute",
    "replay -c orders.json --reason 'NO_RATE*' --rate 5 --execute",
    "export -c orders.json --error timeout > letters.jsonl",
    "drop -c orders.json --older-than 30d --execute",
    NULL,
};

const struct cli_command cli_dead = {
    .name = "dead",
    .summary = "dead letters: list, show, replay, edit, drop, export",
    .about = "Dead letters in Redis (dead.to: redis) or in a topic (dead.to: topic:NAME). ID is an "
             "identity (topic/partition/offset), or the id that ls shows: SHARD:STREAM-ID, or the "
             "place in the topic.",
    .verbs = verbs,
    .n_verbs = sizeof verbs / sizeof *verbs,
    .sibling = &cli_queue,
    .options = operator_options,
    .examples = examples,
    .statuses = operator_statuses,
    .args_size = sizeof(struct operator_args),
    .run = operators_run,
};
