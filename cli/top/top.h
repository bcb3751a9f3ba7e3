/* SPDX-License-Identifier: Apache-2.0 */
/* `latchwork top`: what a fleet is doing now, on a terminal, as text or as JSON. */
#ifndef LW_CLI_TOP_TOP_H
#define LW_CLI_TOP_TOP_H

int lw_cmd_top(int argc, char **argv); /* argv[0] is the command's name; returns the exit status */

#endif
