/* latchwork run: the supervisor and its workers. */
#ifndef LW_TOOLS_CMD_RUN_H
#define LW_TOOLS_CMD_RUN_H

/* argv[0] is "run". Returns the exit status of the program. */
int lw_cmd_run(int argc, char **argv);

#endif
