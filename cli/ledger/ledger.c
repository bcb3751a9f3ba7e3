/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the command `latchwork ledger`. ops/ledger does its work. */
#include "cli/ledger/ledger.h"

#include "base/log.h"
#include "ops/ledger/ledger.h"

#include <stdio.h>

static int run(const struct cli_args *a, const struct lw_config *c) {
    struct lw_err err = {0};
    lw_log_setup(LW_LOG_ERROR, c->log.json, "ledger");
    int differs = ledger_print(c, a->json, &err);
    if (differs < 0) fprintf(stderr, "latchwork ledger: %s\n", err.text);
    return differs ? CLI_FAILED : 0;
}

static int run_args(void *args) {
    const struct cli_args *a = args;
    struct lw_config *c = cli_config(a);
    if (!c) return CLI_USAGE;
    int status = run(a, c);
    lw_config_free(c);
    return cli_written(a, status);
}

static const struct cli_option options[] = {
    CLI_CONFIG_OPTION,
    CLI_SET_OPTION,
    CLI_JSON_OPTION("print one JSON object per line: partitions, differences, a summary"),
    {0},
};

static const char *const examples[] = {"-c orders.json", NULL};

static const struct cli_status statuses[] = {
    {"0", "Kafka and Redis agree", 0},
    {"1", "Kafka and Redis do not agree, or a server does not answer", 0},
    {"2", "usage or configuration error", 0},
    {0},
};

const struct cli_command cli_ledger = {
    .name = "ledger",
    .summary = "audit an application from Kafka and Redis alone",
    .about = "Audits an application from Kafka and Redis alone, whether it runs or not, and "
             "changes nothing. It prints a line per "
             "partition:\n"
             "\n"
             "    consumed N = committed N + done N + dead N + waiting N + in hand N;\n"
             "                                                            not gated N\n"
             "\n"
             "    committed   records below the group's commit: done, dead, dropped or skipped\n"
             "                (which of them is no longer known)\n"
             "    done, dead  above the commit; dropped ones count as done\n"
             "    waiting     in Redis; each must be in exactly one waiting list\n"
             "    in hand     not recorded yet: in a handler on the fast path, skipped, or\n"
             "                offsets that hold no record\n"
             "    not gated   from there to the end of the log\n"
             "\n"
             "A difference is reported only if it is still there after up to three more looks.",
    .options = options,
    .examples = examples,
    .statuses = statuses,
    .args_size = sizeof(struct cli_args),
    .run = run_args,
};
