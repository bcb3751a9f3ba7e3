/* SPDX-License-Identifier: Apache-2.0 */
/* `latchwork ledger` */
#ifndef LW_CLI_LEDGER_LEDGER_H
#define LW_CLI_LEDGER_LEDGER_H

int lw_cmd_ledger(int argc, char **argv); /* argv[0] is the command's name; returns the exit status */

#endif
