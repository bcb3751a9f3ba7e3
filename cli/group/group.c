/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the command `latchwork group`, which shows and changes the limits in force. */
#include "cli/group/group.h"

#include "cli/operators.h"
#include "ops/group.h"

#define AT(field) offsetof(struct operator_args, ops.field)

enum {
    LS = 1,
    SHOW = 2,
    SET = 4,
    PAUSE = 8,
    RESUME = 16,
    RESET = 32,
    ONE = SHOW | SET | RESET | PAUSE | RESUME,
    EACH = SHOW | SET | RESET
};

#define WHO "(NAME\1|\1--fleet)"
#define WHO_OR_EACH "(NAME\1|\1--fleet\1|\1--each)"
static const struct cli_verb verbs[] = {
    {.name = "ls",
     .bit = LS,
     .operate = group_ls,
     .help =
         "list the fleet and the groups that run, wait, are paused or have limits of their own"},
    {.name = "show",
     .bit = SHOW,
     .words = WHO_OR_EACH,
     .max_words = 1,
     .operate = group_show,
     .help = "show one group, the fleet, or the limits of each group"},
    {.name = "set",
     .bit = SET,
     .words = WHO_OR_EACH,
     .max_words = 1,
     .operate = group_change,
     .help = "change limits in force; what runs goes on, also above a lower limit"},
    {.name = "reset",
     .bit = RESET,
     .words = WHO_OR_EACH,
     .max_words = 1,
     .operate = group_change,
     .help = "put the limits of the configuration back into force"},
    {.name = "pause",
     .bit = PAUSE,
     .words = WHO,
     .max_words = 1,
     .operate = group_change,
     .help = "start no message of it until resume; its messages wait, and others go on"},
    {.name = "resume",
     .bit = RESUME,
     .words = WHO,
     .max_words = 1,
     .operate = group_change,
     .help = "end a pause"},
};

static const struct cli_option group_options[] = {
    CLI_CONFIG_OPTION,
    CLI_SET_OPTION,
    CLI_JSON_OPTION("print one JSON object per line"),
    {.name = "fleet",
     .kind = CLI_FLAG,
     .need = CLI_SPOKEN,
     .help = "the fleet with all its groups, instead of one group",
     .verbs = ONE,
     .at = AT(fleet)},
    {.name = "each",
     .kind = CLI_FLAG,
     .need = CLI_SPOKEN,
     .help = "the limits of each group that has none of its own (limits.group)",
     .verbs = EACH,
     .at = AT(each)},
    {.name = "running",
     .kind = CLI_NUMBER,
     .metavar = "N",
     .help = "maximum number of its messages in handlers at once (none: no limit)",
     .none = OPS_NO_LIMIT,
     .verbs = SET,
     .at = AT(running),
     .min = 1,
     .max = LW_LIMIT_COUNT_MAX},
    {.name = "per-second",
     .kind = CLI_NUMBER,
     .metavar = "N",
     .help = "maximum number of its messages that start in a second (none: no limit)",
     .none = OPS_NO_LIMIT,
     .verbs = SET,
     .at = AT(per_second),
     .min = 1,
     .max = LW_LIMIT_COUNT_MAX},
    {.name = "burst",
     .kind = CLI_NUMBER,
     .metavar = "N",
     .help = "number of messages that may start at once after a pause",
     .dflt = "a tenth of --per-second",
     .verbs = SET,
     .at = AT(burst),
     .min = 1,
     .max = LW_LIMIT_COUNT_MAX},
    {.name = "limit",
     .kind = CLI_NUMBER,
     .metavar = "N",
     .help = "maximum number of groups, those with most waiting lanes first (0: unlimited)",
     .dflt = "100",
     .verbs = LS,
     .at = AT(limit),
     .initial = -1},
    {0},
};

static const char *const examples[] = {
    "ls -c orders.json",
    "show acme -c orders.json",
    "set acme -c orders.json --per-second 5 --running 2",
    "set acme -c orders.json --per-second none",
    "set --each -c orders.json --running 10",
    "set --fleet -c orders.json --running 100",
    "reset acme -c orders.json",
    "pause acme -c orders.json",
    "resume acme -c orders.json",
    NULL,
};

static const struct cli_status statuses[] = {
    {"0", "success, or nothing to do", 0},
    {"1", "Redis did not answer, or the group is not known (show)", 0},
    {"2", "usage or configuration error", 0},
    {0},
};

static int run(void *args) {
    struct operator_args *a = args;
    const struct cli_args *cli = &a->cli;
    unsigned bit = cli->verb->bit;
    if (bit & ONE && cli->n_words + a->ops.fleet + a->ops.each != 1)
        return cli_misuse(cli, bit & EACH ? "expected either NAME, --fleet or --each"
                                          : "expected either NAME or --fleet");
    if (bit == SET && !a->ops.running && !a->ops.per_second && !a->ops.burst)
        return cli_misuse(cli, "expected a limit: --running N, --per-second N or --burst N");
    return operators_run(args);
}

const struct cli_command cli_group = {
    .name = "group",
    .summary = "limits of the fleet and its groups: list, change, reset, pause",
    .about = "Shows and changes the limits in force, of the fleet and of its groups (`limits` and "
             "`group.from` in the configuration). NAME is the name of a group, as records have it.",
    .verbs = verbs,
    .n_verbs = sizeof verbs / sizeof *verbs,
    .options = group_options,
    .examples = examples,
    .statuses = statuses,
    .args_size = sizeof(struct operator_args),
    .run = run,
};
