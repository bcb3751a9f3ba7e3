/* SPDX-License-Identifier: Apache-2.0 */
/* Names the user who runs this program, for the audit stream. */
#ifndef LW_BASE_WHO_H
#define LW_BASE_WHO_H

#include <stddef.h>

/* writes "USER@HOST" with the effective user; "?" stands for a part that is not known */
void lw_who(char *out, size_t size);

#endif
