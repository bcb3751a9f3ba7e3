/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files of the API. */
#ifndef LW_CLI_API_PRIVATE_H
#define LW_CLI_API_PRIVATE_H

#include "cli/api/api.h"
#include "ops/ops.h"

enum {
    API_LIMIT = 100, /* maximum rows of an answer, if the request names no limit */
    API_LIMIT_MAX = 500,
    API_LOOK_MAX = 5000, /* maximum rows that one request looks at */
    /* a list ends after this number of bytes, with a cursor for its next page */
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
/* A function that answers one path. It returns -1 if Redis could not be asked; o->err then says
 * why. */
typedef int api_fn(struct api_call *k);

/* --- the routes (cli/api/routes.c) ------------------------------------------------------------ */

/* Parameters of a query, one bit each. Their names and kinds are in api_params. */
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
    API_P_OUTCOME = 1 << 14, /* read by the exporter only */
    API_LANE_FILTER =
        API_P_KEY | API_P_MATCH | API_P_TOPIC | API_P_PARTITION | API_P_OLDER_THAN | API_P_ATTEMPTS,
    API_DEAD_FILTER =
        API_LANE_FILTER | API_P_REASON | API_P_ERROR | API_P_WHERE | API_P_FROM | API_P_TO,
    API_PAGE = API_P_LIMIT | API_P_CURSOR
};

struct api_param {
    unsigned bit;
    const char *name;
    /* type in the notation of cli/api/schema.c; "[s]" if the parameter may come several times */
    const char *type;
    const char *help;
};
extern const struct api_param api_params[];
extern const size_t api_n_params;

/* One path with one method. The table of routes serves three readers: the search for a request's
 * function, the list at /api/v1, and the description at /api/v1/openapi.json. */
struct api_route {
    bool post;
    const char *path; /* the path behind /api/v1/; "*" stands for any one segment */
    api_fn *fn;       /* NULL: the exporter answers this path itself, from the board */
    const char *help; /* one sentence */
    unsigned params;
    /* the members that "filter" in the request's body may have; 0: it has no filter */
    unsigned filter;
    const struct api_work *work; /* what api_bulk() does (cli/api/job.h) */
    /* members of the request's body, in the notation of cli/api/schema.c; NULL: there is none */
    const char *body;
    /* the answer of status 200, in the same notation; NULL: there is none */
    const char *answer;
    bool job;         /* it may answer 202 with {"job":ID} */
    const char *type; /* Content-Type of the answer; NULL: JSON */
    bool export;      /* the header Latchwork-Next has the cursor of the next part */
    bool offline;     /* the function asks Redis nothing */
    /* the function may look at all lanes or dead letters, for seconds, so it runs in the thread of
     * the lengthy requests */
    bool lengthy;
    /* the same holds if the second segment of the path is the identity of a dead letter, not its
     * id */
    bool searches;
};
extern const struct api_route api_routes[];
extern const size_t api_n_routes;

/* Shapes that several routes name, in the notation of cli/api/schema.c. */
struct api_shape {
    const char *name, *text;
};
extern const struct api_shape api_shapes[];
extern const size_t api_n_shapes;

/* --- one request ------------------------------------------------------------------------------ */

struct api_call {
    const struct lw_config *c;
    /* the connections to the shards, and the filters that the request's query sets */
    struct ops *o;
    const struct lw_http_request *q;
    struct lw_http_answer *a;
    const struct api_route *route;
    const char *segment[API_SEGMENTS]; /* segments of the path behind /api/v1, decoded */
    const char *cursor;                /* where the requested page begins; NULL: at the first row */
    bool newest;
    /* the request's body, which has the form that the route names; an empty object if there is
     * none */
    json_t *body;
    bool execute; /* "execute" in the request's body */
    size_t limit;
    struct api_jobs *jobs;
    /* the array behind o->args.words; freed after the request, unless a job took it */
    char **words;
    int n_segments;
};

/* defined in cli/api/api.c */
api_fn api_index;
/* defined in cli/api/openapi.c and export.c */
api_fn api_openapi, api_dead_export, api_lanes_export;
/* defined in cli/api/read.c */
api_fn api_lanes, api_lane, api_dead, api_dead_one;
/* defined in cli/api/key.c */
api_fn api_key;
/* defined in cli/api/count.c, job.c and bulk.c */
api_fn api_lanes_count, api_dead_count, api_jobs, api_job, api_cancel, api_bulk;
/* defined in cli/api/write.c */
api_fn api_pause, api_resume, api_break, api_replay, api_dead_drop;
/* defined in cli/api/edit.c, audit.c, locks.c, ledger.c */
api_fn api_edit, api_audit, api_locks, api_ledger, api_run_ledger;

/* answers 200 with this object, and takes over its reference */
void api_put(struct api_call *k, json_t *v);
/* Takes a filter or another parameter of the given ones. The value must stay valid as long as the
 * request. Returns -1 if there is no such parameter, or if it cannot have this value. */
int api_take(struct api_call *k, unsigned params, const char *name, const char *value);
/* answers 400 and returns false if the filters are malformed, or exclude each other */
bool api_filter_ok(struct api_call *k);
/* Writes who asks, for the audit. Returns out. */
const char *api_who(const struct api_call *k, char out[API_WHO]);
/* Returns the holder of a lane, or JSON null if nobody holds it (cli/api/key.c). */
json_t *api_holder_json(const struct ops_lane *l);
/* Returns the message as JSON, with its payload as the configuration lets it be shown: see
 * ops_message_json(). */
json_t *api_message_json(const struct api_call *k, const struct ops_message *m, size_t payload_max);

/* Sets the member `name`, as ops_set_bytes() does, to a payload as it may be shown, at most
 * API_PAYLOAD_MAX bytes of it. NAME_masked or NAME_hidden becomes true if it is not the payload
 * itself. */
void api_set_payload(const struct api_call *k, json_t *v, const char *name,
                     struct lw_bytes payload);
/* Replays one dead letter or, without `execute`, says what would happen (cli/api/write.c). *result
 * stays NULL if there is no such dead letter. Returns -1 with o->err. */
int api_replay_one(struct api_call *k, const char *id, json_t **result);

/* Rows of a list, which ends at a number of rows, of bytes, or of rows looked at. */
struct api_rows {
    struct api_call *k;
    json_t *list;
    size_t limit, bytes, looked;
};
bool api_full(const struct api_rows *rs);
/* about: number of bytes of the row, roughly; takes over v */
void api_append(struct api_rows *rs, json_t *v, size_t about);
/* Lists the messages that wait in a lane, oldest first; *more becomes true if there are others
 * behind them. The caller owns *list, after a failure, too. */
int api_waiting(struct api_call *k, int shard, struct lw_bytes lane, json_t **list, bool *more);

/* --- shapes of JSON (cli/api/schema.c) -----------------------------------------------------------
 *
 * The notation: s text, i integer, n number, b boolean, o any object, * anything; [T] a list;
 * {name:T,name?:T} an object, whose members with '?' may be missing; T? may be null; T|T either; a
 * name with a capital is one of api_shapes. An object has no other members. */

/* Returns the JSON schema of a text in the notation. The text must be well formed, because it is
 * ours. */
json_t *api_schema(const char *text);
/* Returns the JSON schema of the bodies that a route takes. */
json_t *api_body_schema(const struct api_route *r);
/* Returns true if v has the shape. Otherwise *err names the member that is wrong. */
bool api_fits(const json_t *schema, const json_t *v, struct lw_err *err);

#endif
