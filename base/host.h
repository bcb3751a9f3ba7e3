/* SPDX-License-Identifier: Apache-2.0 */
/* The name of this host, which identifies one boot of one machine. The clock of Redis is compared
 * with the wall clock of a host under this name. All workers and commands on the host have the same
 * name until the host boots again. */
#ifndef LW_BASE_HOST_H
#define LW_BASE_HOST_H

enum { LW_HOST_MAX = 128 };
void lw_host(char out[LW_HOST_MAX]); /* writes "NAME/BOOT_ID" */

#endif
