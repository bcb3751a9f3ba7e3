/* latchwork dev: everything on this machine with nothing configured; with --demo the bounded form that checks its own figures. */
#ifndef LW_TOOLS_CMD_DEV_H
#define LW_TOOLS_CMD_DEV_H

int lw_cmd_dev(int argc, char **argv);

#endif
