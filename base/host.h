/* SPDX-License-Identifier: Apache-2.0 */
/* Which host this is, as Redis' clock is compared with its wall clock: workers and commands of one boot of one host say the same. */
#ifndef LW_BASE_HOST_H
#define LW_BASE_HOST_H

enum { LW_HOST_MAX = 128 };
void lw_host(char out[LW_HOST_MAX]); /* "NAME/BOOT_ID" */

#endif
