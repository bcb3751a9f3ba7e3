/* SPDX-License-Identifier: Apache-2.0 */
/* The name of this host, for comparing Redis' clock with the host's wall clock. The name changes
 * when the host boots again. Between two boots all workers and commands on the host have the same
 * name. */
#ifndef LW_BASE_HOST_H
#define LW_BASE_HOST_H

enum { LW_HOST_MAX = 128 };
void lw_host(char out[LW_HOST_MAX]); /* writes "NAME/BOOT_ID" */

#endif
