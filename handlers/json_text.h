/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON directly into a buffer. This is faster than building a document, and bytes that are
 * not UTF-8 can be written as base64. */
#ifndef LW_HANDLERS_JSON_TEXT_H
#define LW_HANDLERS_JSON_TEXT_H

#include "base/bytes.h"

/* Returns true for well-formed UTF-8: no overlong forms, surrogates, or code points above
 * 10FFFF. */
bool lw_utf8_ok(struct lw_bytes s);
/* Appends s in quotes and escaped; s must be UTF-8. */
void lw_json_string(struct lw_buf *out, struct lw_bytes s);
/* Appends s as base64 in quotes (RFC 4648, with padding). */
void lw_json_base64(struct lw_buf *out, struct lw_bytes s);

#endif
