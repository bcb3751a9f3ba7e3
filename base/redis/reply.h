/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a field of a reply to INFO, and makes the error text for a malformed reply: one whose form
 * the reader does not expect. */
#ifndef LW_BASE_REDIS_REPLY_H
#define LW_BASE_REDIS_REPLY_H

#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdbool.h>

enum { LW_REPLY_TEXT = 400 };

/* Returns the name of a REDIS_REPLY_… type, such as "string". */
const char *lw_reply_type(int type);

/* Writes "malformed reply from NAME: expected WHAT, got TYPE" into `out`, cut at its size, and
 * returns `out`. TYPE is the type of `r`, or "nothing" if `r` is NULL; for an array TYPE also has
 * the number of elements and the types of the first eight. The values are left out, because they
 * may be payloads; only the text of an error reply is quoted. `name` is the script or command that
 * replied. `expected` and the arguments after it are the format and the arguments of WHAT. */
const char *lw_malformed(char out[LW_REPLY_TEXT], const redisReply *r, const char *name,
                         const char *expected, ...) __attribute__((format(printf, 4, 5)));
/* As lw_malformed(), with the arguments of WHAT in `ap`. */
void lw_vmalformed(char out[LW_REPLY_TEXT], const redisReply *r, const char *name,
                   const char *expected, va_list ap) __attribute__((format(printf, 4, 0)));

/* Returns why `r` is not a reply of the given type: `down` if there is no reply, the text of an
 * error reply, or the text of lw_malformed(), which is written to `out`. */
const char *lw_reply_wrong(char out[LW_REPLY_TEXT], const redisReply *r, const char *name, int type,
                           const char *down);

/* Copies the value of one field of INFO. If the field is missing, sets `out` to "" and returns
 * false. */
bool lw_info_field(const char *info, const char *name, char *out, int size);

#endif
