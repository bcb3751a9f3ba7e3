/* SPDX-License-Identifier: Apache-2.0 */
/* latchwork run: the supervisor and its workers. */
#ifndef LW_CLI_RUN_RUN_H
#define LW_CLI_RUN_RUN_H

/* argv[0] is "run". Returns the exit status of the program. */
int lw_cmd_run(int argc, char **argv);

#endif
