/* SPDX-License-Identifier: Apache-2.0 */
/* The main function of the program finds the command and runs it. */
#include "cli/commands.h"

int main(int argc, char **argv) { return cli_main(cli_commands, cli_n_commands, argc, argv); }
