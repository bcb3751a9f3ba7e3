/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what the HTTP API may show of a payload (http.payloads, http.mask). */
#ifndef LW_OPS_PAYLOAD_H
#define LW_OPS_PAYLOAD_H

#include "base/bytes.h"
#include "config/config.h"

enum lw_payload_view {
    LW_PAYLOAD_SHOWN,  /* the payload is shown as it is, as always for a message without payload */
    LW_PAYLOAD_MASKED, /* the payload is shown with "•••" instead of each masked value */
    LW_PAYLOAD_HIDDEN, /* nothing of the payload may be shown */
};

/* Appends to `out` what may be shown of a payload, and nothing if it is hidden. Pass the whole
 * payload: the beginning of a JSON text is no JSON, and would be hidden. With http.mask, a payload
 * is hidden if it is no JSON, or if an object in it has two values of one name, because a reader
 * might take the value that is not masked. A masked payload is still JSON, but must not be written
 * back. Thread-safe. */
enum lw_payload_view lw_payload_shown(const struct lw_config *c, struct lw_bytes payload,
                                      struct lw_buf *out);

#endif
