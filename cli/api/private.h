/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files of the API. */
#ifndef LW_CLI_API_PRIVATE_H
#define LW_CLI_API_PRIVATE_H

#include "cli/api/api.h"
#include "ops/ops.h"

enum {
    API_LIMIT = 100, /* maximum rows of an answer, if the request names no limit */
    API_LIMIT_MAX = 500,
    API_LOOK_MAX = 5000,     /* maximum rows that one request looks at */
    API_BYTES_MAX = 1 << 20, /* a list ends after this number of bytes, with a cursor for its next page */
    API_PAYLOAD_MAX = 1 << 20,
    API_HEAD_BYTES = 256,
    API_ANSWER_MS = 1000,
    API_SEGMENTS = 4
};

struct api_call {
    const struct lw_config *c;
    struct ops *o; /* the connections to the shards, and the filters that the request's query sets */
    const struct lw_http_request *q;
    struct lw_http_answer *a;
    const char *segment[API_SEGMENTS]; /* segments of the path behind /api/v1, decoded */
    const char *cursor;                /* where the requested page begins; NULL: at the first row */
    bool newest;
    bool execute; /* "execute" in the request's body */
    size_t limit;
};

/* Each of these functions answers one path. It returns -1 if Redis could not be asked; o->err then says why. */
typedef int api_fn(struct api_call *k);
/* defined in cli/api/read.c */
api_fn api_index, api_lanes, api_lane, api_dead, api_dead_one;
/* defined in cli/api/write.c */
api_fn api_pause, api_resume, api_break, api_replay;

void api_put(struct api_call *k, json_t *v); /* answers 200 with this object, and takes over its reference */

#endif
