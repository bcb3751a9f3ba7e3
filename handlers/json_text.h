/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON straight into a buffer. Writing into a buffer is faster than building a document, and
 * the caller can write bytes that are not UTF-8 as base64. */
#ifndef LW_HANDLERS_JSON_TEXT_H
#define LW_HANDLERS_JSON_TEXT_H

#include "base/bytes.h"

/* true for well-formed UTF-8: no overlong forms, surrogates, or code points above 10FFFF */
bool lw_utf8_ok(struct lw_bytes s);
/* appends s, quoted and escaped; s must be UTF-8 */
void lw_json_string(struct lw_buf *out, struct lw_bytes s);
/* appends s as quoted base64 (RFC 4648, with padding) */
void lw_json_base64(struct lw_buf *out, struct lw_bytes s);

#endif
