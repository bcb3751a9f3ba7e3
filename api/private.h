/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what the files of the API share. */
#ifndef LW_API_PRIVATE_H
#define LW_API_PRIVATE_H

#include "api/api.h"
#include "ops/ops.h"

enum {
    API_LIMIT = 100, /* maximum number of rows in a response if the request names no limit */
    API_LIMIT_MAX = 500,
    API_LOOK_MAX = 5000, /* maximum number of rows that one request reads */
    /* When the rows of a list have this number of bytes, no more rows are added to the response,
     * and the response contains a cursor for the next page. */
    API_BYTES_MAX = 1 << 20,
    API_PAYLOAD_MAX = 1 << 20,
    API_HEAD_BYTES = 256,
    API_ANSWER_MS = 1000,
    API_SEGMENTS = 4,
    API_WHO = 256
};

struct api_call;
struct api_jobs;
struct api_work;
/* The type of a function that answers the requests for one path. The function returns -1 if a
 * request to Redis failed, with the reason in o->err. */
typedef int api_fn(struct api_call *k);

/* --- the routes (api/routes.c) ------------------------------------------------------------ */

/* The parameters of a query, one bit each. The table api_params has their names and types. */
enum {
    API_P_KEY = 1 << 0,
    API_P_MATCH = 1 << 1,
    API_P_TOPIC = 1 << 2,
    API_P_PARTITION = 1 << 3,
    API_P_OLDER_THAN = 1 << 4,
    API_P_ATTEMPTS = 1 << 5,
    API_P_REASON = 1 << 6,
    API_P_ERROR = 1 << 7,
    API_P_WHERE = 1 << 8,
    API_P_FROM = 1 << 9,
    API_P_TO = 1 << 10,
    API_P_ORDER = 1 << 11,
    API_P_LIMIT = 1 << 12,
    API_P_CURSOR = 1 << 13,
    API_P_OUTCOME = 1 << 14, /* a query parameter that only the metrics exporter reads */
    API_LANE_FILTER =
        API_P_KEY | API_P_MATCH | API_P_TOPIC | API_P_PARTITION | API_P_OLDER_THAN | API_P_ATTEMPTS,
    API_DEAD_FILTER =
        API_LANE_FILTER | API_P_REASON | API_P_ERROR | API_P_WHERE | API_P_FROM | API_P_TO,
    API_PAGE = API_P_LIMIT | API_P_CURSOR
};

struct api_param {
    unsigned bit;
    const char *name;
    /* type of the parameter's value in the notation of api/schema.c; "[s]" if the parameter may
     * be repeated */
    const char *type;
    const char *help;
};
extern const struct api_param api_params[];
extern const size_t api_n_params;

/* Describes one path with one method. The table of routes has three uses: to find a request's
 * function, to list the paths at /api/v1, and to generate the description at
 * /api/v1/openapi.json. */
struct api_route {
    bool post;
    const char *path; /* the path after /api/v1/; "*" stands for any one segment */
    /* the function that answers; NULL: the metrics exporter answers, with figures from the board */
    api_fn *fn;
    const char *help; /* description of the path, one sentence */
    unsigned params;
    /* bits (API_P_…) of the members that "filter" in the request's body may have; 0: the body may
     * have no "filter" */
    unsigned filter;
    /* the command that api_bulk() runs for this path (api/job.h) */
    const struct api_work *work;
    /* members of the request's body, in the notation of api/schema.c; NULL: no body is
     * allowed */
    const char *body;
    /* shape of the body of a response with status 200, in the notation of api/schema.c; NULL:
     * the path has no such response */
    const char *answer;
    bool job;         /* true: the response may be 202 with {"job":ID} */
    const char *type; /* Content-Type of the response; NULL: JSON */
    /* true: an export. If a response does not reach the end, its header Latchwork-Next has the
     * cursor with which the next request continues. */
    bool export;
    bool offline; /* true: the route's function does not use Redis */
    /* true if the route's function may take seconds because it looks at all lanes or dead letters;
     * the function then runs on the thread for requests that may take seconds */
    bool lengthy;
    /* true if the second segment of the path may be the identity of a dead letter instead of its
     * id; a request with an identity is lengthy, because all dead letters are searched for the
     * identity */
    bool searches;
};
extern const struct api_route api_routes[];
extern const size_t api_n_routes;

/* A named shape of JSON in the notation of api/schema.c, which several routes use. */
struct api_shape {
    const char *name, *text;
};
extern const struct api_shape api_shapes[];
extern const size_t api_n_shapes;

/* --- one request ------------------------------------------------------------------------------ */

struct api_call {
    const struct lw_config *c;
    /* the connections to the shards, and the filters from the request's query */
    struct ops *o;
    const struct lw_http_request *q;
    struct lw_http_answer *a;
    const struct api_route *route;
    const char *segment[API_SEGMENTS]; /* decoded segments of the path after /api/v1 */
    const char *cursor;                /* cursor of the requested page; NULL: first page */
    bool newest, oldest; /* the order that the request names; neither: the usual one */
    /* the JSON of the request's body, which was checked against the route's shape; an empty object
     * if the request has no body */
    json_t *body;
    bool execute; /* the member "execute" of the request's body */
    size_t limit;
    struct api_jobs *jobs;
    /* the array that o->args.words points to; freed after the request, unless a job took it over */
    char **words;
    int n_segments;
};

/* api/api.c defines api_index(). */
api_fn api_index;
/* api/openapi.c defines api_openapi(), and api/export.c the functions for exports. */
api_fn api_openapi, api_dead_export, api_lanes_export;
/* api/read.c defines the functions that read lanes and dead letters. */
api_fn api_lanes, api_lane, api_dead, api_dead_one;
/* api/key.c defines api_key(), and api/message.c api_message(). */
api_fn api_key, api_message;
/* api/count.c, job.c and bulk.c define the functions that count, that show and cancel jobs, and
 * that start bulk commands. */
api_fn api_lanes_count, api_dead_count, api_jobs, api_job, api_cancel, api_bulk;
/* api/write.c defines the functions that change one lane or one dead letter. */
api_fn api_pause, api_resume, api_break, api_replay, api_dead_drop;
/* api/group.c defines the functions for groups and limits. */
api_fn api_groups, api_group_set, api_group_reset, api_group_pause, api_group_resume;
/* api/edit.c, audit.c, locks.c and ledger.c define the functions for edits, the audit, locks
 * and the ledger. */
api_fn api_edit, api_audit, api_locks, api_ledger, api_run_ledger;

/* Answers 200 with the object, and takes over the caller's reference to it. */
void api_put(struct api_call *k, json_t *v);
/* Stores the value of one query parameter, which may be a filter, in the call. `params` has the
 * bits of the allowed parameters. The value must stay valid until the request is answered. Returns
 * -1 if no allowed parameter has this name, or if the parameter does not allow this value. */
int api_take(struct api_call *k, unsigned params, const char *name, const char *value,
             struct lw_err *err);
/* Answers 400 and returns false if a filter is malformed or if two filters exclude each other. */
bool api_filter_ok(struct api_call *k);
/* Writes the name of the client that sent the request to `out`, for the audit, and returns
 * `out`. */
const char *api_who(const struct api_call *k, char out[API_WHO]);
/* Returns the holder of a lane, or JSON null if nobody holds the lane (api/key.c). */
json_t *api_holder_json(const struct ops_lane *l);
/* Returns the message as JSON, as ops_message_json() does, but shows only as much of the payload as
 * the setting http.payloads allows. */
json_t *api_message_json(const struct api_call *k, const struct ops_message *m, size_t payload_max);

/* Sets the member `name` to the payload, as ops_set_bytes() does, but shows at most API_PAYLOAD_MAX
 * bytes, and only what the setting http.payloads allows. Sets the member NAME_masked or NAME_hidden
 * to true if the payload is masked or hidden. */
void api_set_payload(const struct api_call *k, json_t *v, const char *name,
                     struct lw_bytes payload);
/* Replays one dead letter or, if `execute` is not set, reports what a replay would do
 * (api/write.c). *result stays NULL if there is no such dead letter. Returns -1 with o->err on
 * failure. */
int api_replay_one(struct api_call *k, const char *id, json_t **result);

/* The rows of a response with a list. No more rows are added when one of three limits is reached:
 * the number of rows, the number of bytes, or the number of rows that were looked at. */
struct api_rows {
    struct api_call *k;
    json_t *list;
    size_t limit, bytes, looked;
};
bool api_full(const struct api_rows *rs);
/* Appends `v` to the list and takes over the caller's reference to it. `about` is the approximate
 * size of the row in bytes. */
void api_append(struct api_rows *rs, json_t *v, size_t about);
/* Lists the messages that wait in a lane, oldest first. Sets *more to true if the list ends before
 * the last waiting message. The caller owns *list, even after a failure. */
int api_waiting(struct api_call *k, int shard, struct lw_bytes lane, json_t **list, bool *more);
/* Appends a dead letter to the rows `ctx`. Returns true if no more rows are added after it. */
ops_message_fn api_add_dead;
/* Sets the place (dead_places()) and the position in it after which a list of dead letters begins,
 * from the request's cursor. The cursor is "SHARD:ID" of the last dead letter looked at, or
 * "SHARD:" before the first dead letter of the place. Without a cursor the list begins with shard
 * 0. Returns false if the cursor is malformed. */
bool api_dead_place(const struct api_call *k, int *shard, char *at, size_t size);
/* Returns true if the digits are a cursor that Redis can have given out: a number of 64 bits. */
bool api_scan_cursor(const char *digits);
/* Answers 400 because the cursor is malformed. Returns 0. */
int api_misplaced(struct api_call *k);

/* --- shapes of JSON (api/schema.c) -----------------------------------------------------------
 *
 * The notation has these forms:
 *
 *     s, i, n, b     a text, an integer, a number, a boolean
 *     o              any object
 *     *              any value
 *     [T]            a list of T
 *     {name:T}       an object with this member and no others; {name?:T}: the member may be missing
 *     T?             T or null
 *     T|T            one of two shapes
 *     Name           the shape of this name in api_shapes */

/* Returns the JSON schema of a shape. The shape must be well formed, because it comes from the
 * program and not from a request. */
json_t *api_schema(const char *text);
/* Returns the JSON schema of the request bodies that the route accepts. */
json_t *api_body_schema(const struct api_route *r);
/* Returns true if the value `v` matches the schema. Otherwise returns false, and *err names the
 * wrong member. */
bool api_fits(const json_t *schema, const json_t *v, struct lw_err *err);

#endif
