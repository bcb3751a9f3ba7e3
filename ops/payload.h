/* SPDX-License-Identifier: Apache-2.0 */
/* Declares functions that decide how much of a payload the HTTP API may show (http.payloads,
 * http.mask). */
#ifndef LW_OPS_PAYLOAD_H
#define LW_OPS_PAYLOAD_H

#include "base/bytes.h"
#include "config/config.h"

enum lw_payload_view {
    /* LW_PAYLOAD_SHOWN: the payload is shown unchanged, which is always the case for a message
     * without payload */
    LW_PAYLOAD_SHOWN,
    LW_PAYLOAD_MASKED, /* the payload is shown with "•••" instead of each masked value */
    LW_PAYLOAD_HIDDEN, /* no part of the payload is shown */
};

/* Appends to `out` the part of a payload that may be shown, and nothing if the payload is hidden.
 * Pass the whole payload: the beginning of a JSON text is not JSON, and would be hidden. With
 * http.mask, a payload is hidden if it is not JSON, or if an object in it has two members of the
 * same name, because a reader might use the value that is not masked. A masked payload is still
 * JSON, but must not be written back. Thread-safe. */
enum lw_payload_view lw_payload_shown(const struct lw_config *c, struct lw_bytes payload,
                                      struct lw_buf *out);

#endif
