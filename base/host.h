/* SPDX-License-Identifier: Apache-2.0 */
/* The name of this host, which identifies one boot of one machine. For each name, Redis stores the
 * difference between its own clock and the wall clock of that host (queue/lua/enter.lua). All
 * workers and commands on a host use the same name until the host boots again. */
#ifndef LW_BASE_HOST_H
#define LW_BASE_HOST_H

#include <stddef.h>

enum { LW_HOST_MAX = 128 };
void lw_host(char out[LW_HOST_MAX]); /* writes "NAME/BOOT_ID" */
enum { LW_HOST_NAME = 65 };
/* Writes and returns the host's name, with '-' for unusual characters, as a part of other names. */
const char *lw_host_name(char out[LW_HOST_NAME]);

/* Names the user who runs this program, for the audit: writes "USER@HOST" with the effective user;
 * "?" stands for a part that is not known. */
void lw_who(char *out, size_t size);

#endif
