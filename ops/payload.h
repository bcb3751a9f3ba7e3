/* SPDX-License-Identifier: Apache-2.0 */
/* What the HTTP API may show of a payload (http.payloads, http.mask). */
#ifndef LW_OPS_PAYLOAD_H
#define LW_OPS_PAYLOAD_H

#include "base/bytes.h"
#include "config/config.h"

enum lw_payload_view {
    LW_PAYLOAD_SHOWN,  /* the payload as it is; a message without payload is always shown so */
    LW_PAYLOAD_MASKED, /* the payload, in which "•••" stands for each masked value */
    LW_PAYLOAD_HIDDEN, /* nothing may be shown */
};

/* Appends to `out` what may be shown of a payload, and nothing if it is hidden. Pass the whole payload: the beginning of a JSON text is no
 * JSON, and would be hidden. With `mask`, a payload is hidden if it is no JSON, or if an object in it has two values of one name: a reader
 * might take the other one. A masked payload still is JSON, and must not be written back. Thread-safe. */
enum lw_payload_view lw_payload_shown(const struct lw_config *c, struct lw_bytes payload, struct lw_buf *out);

#endif
