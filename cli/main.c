/* SPDX-License-Identifier: Apache-2.0 */
/* The main function of the program finds the command and runs it. */
#include "cli/commands.h"
#include "handlers/plugin_host.h"

#include <string.h>

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], LW_PLUGIN_HOST) == 0) return lw_plugin_host_main();
    return cli_main(cli_commands, cli_n_commands, argc, argv);
}
