/* SPDX-License-Identifier: Apache-2.0 */
#include "api/job.h"

#include "base/clock.h"
#include "base/log.h"
#include "monitor/access.h"
#include "ops/time.h"

#include <stdlib.h>
#include <string.h>

/* A request whose connection to Redis was broken is repeated only if at least this many
 * milliseconds are left until the request's time limit. */
enum { RETRY_MS = 3 * API_ANSWER_MS };

struct api {
    const struct lw_config *c;
    /* Each of the two threads that answer requests has its own connections to Redis. o[1] belongs
     * to the thread that answers the lengthy requests. */
    struct ops *o[2];
    struct api_jobs *jobs;
};

/* --- paths ------------------------------------------------------------------------------------ */

int api_index(struct api_call *k) {
    json_t *paths[2] = {json_array(), json_array()};
    for (size_t i = 0; i < api_n_routes; i++)
        if (api_routes[i].path[0])
            json_array_append_new(paths[api_routes[i].post],
                                  json_sprintf("/api/v1/%s", api_routes[i].path));
    api_put(k, json_pack("{s:s,s:s,s:o,s:o,s:b}", "name", k->c->name, "version", LW_VERSION, "get",
                         paths[0], "post", paths[1], "writable", (int)lw_access_writable(k->c)));
    return 0;
}

static bool fits(const char *pattern, const struct api_call *k, int n) {
    for (int i = 0; i < n; i++) {
        size_t len = strcspn(pattern, "/");
        bool any = len == 1 && *pattern == '*';
        if (!len ||
            (!any && (strlen(k->segment[i]) != len || strncmp(pattern, k->segment[i], len) != 0)))
            return false;
        pattern += len + (pattern[len] == '/');
    }
    return !*pattern;
}

/* Splits the part of the path after /api/v1 into segments, and stores each decoded segment in one
 * of the buffers of `room`. Returns the number of segments, or -1 if the path is malformed. */
static int split(struct api_call *k, const char *path, struct lw_buf room[API_SEGMENTS]) {
    static const char root[] = "/api/v1";
    int n = 0;
    if (strncmp(path, root, sizeof root - 1) != 0) return -1;
    for (path += sizeof root - 1; *path == '/'; n++) {
        size_t len = strcspn(++path, "/");
        if (!len && !*path && !n) break; /* the path is "/api/v1/", which has no segments */
        if (!len || n == API_SEGMENTS || !lw_http_decode(lw_bytes(path, len), &room[n])) return -1;
        lw_buf_add(&room[n], "", 1);
        k->segment[n] = room[n].p;
        path += len;
    }
    return *path ? -1 : n;
}

/* Returns the route of the request. If no route fits, returns NULL, and *other_method says whether
 * the path has a route for the other method (GET or POST). A GET route without a function is
 * skipped, because the metrics exporter answers it before the API is asked. */
static const struct api_route *find(const struct api_call *k, int n, bool *other_method) {
    *other_method = false;
    for (size_t i = 0; n >= 0 && i < api_n_routes; i++) {
        if (!fits(api_routes[i].path, k, n)) continue;
        if (api_routes[i].post == k->q->post && api_routes[i].fn) return &api_routes[i];
        *other_method = true;
    }
    return NULL;
}

/* --- the query -------------------------------------------------------------------------------- */

static int whole(const char *text, int64_t max, int64_t *out) {
    char *end;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || v < 0 || v > max) return -1;
    *out = v;
    return 0;
}

/* Returns a text for errors, which says what values a parameter may have. */
static const char *form_of(unsigned bit) {
    switch (bit) {
    case API_P_KEY:
    case API_P_WHERE: return "at most 256 values";
    case API_P_PARTITION:
    case API_P_ATTEMPTS: return "a whole number from 0 to 2147483647";
    case API_P_OLDER_THAN: return "a time such as 90s, 15m, 2h or 3d";
    case API_P_ORDER: return "oldest or newest";
    case API_P_LIMIT: return "a number from 1 to 500";
    default: return "another value";
    }
}
_Static_assert(OPS_LIST_MAX == 256 && API_LIMIT_MAX == 500, "form_of() names these limits");

/* Stores the value of one query parameter. Returns -1 if the parameter does not allow this
 * value. */
static int take(struct api_call *k, unsigned bit, const char *value) {
    struct ops_args *a = &k->o->args;
    int64_t n;
    switch (bit) {
    case API_P_KEY: return a->n_keys < OPS_LIST_MAX ? a->keys[a->n_keys++] = value, 0 : -1;
    case API_P_WHERE: return a->n_where < OPS_LIST_MAX ? a->where[a->n_where++] = value, 0 : -1;
    case API_P_MATCH: return a->match = value, 0;
    case API_P_TOPIC: return a->topic = value, 0;
    case API_P_REASON: return a->reason = value, 0;
    case API_P_ERROR: return a->error = value, 0;
    case API_P_FROM: return a->from = value, 0;
    case API_P_TO: return a->to = value, 0;
    case API_P_CURSOR: return k->cursor = value, 0;
    case API_P_PARTITION: return whole(value, INT32_MAX, &a->partition);
    case API_P_ATTEMPTS: return whole(value, INT32_MAX, &a->attempts);
    case API_P_OLDER_THAN: return (a->older_ms = ops_duration_ms(value)) < 0 ? -1 : 0;
    case API_P_ORDER:
        k->newest = !strcmp(value, "newest"), k->oldest = !strcmp(value, "oldest");
        return k->newest || k->oldest ? 0 : -1;
    default: break;
    }
    if (bit != API_P_LIMIT || whole(value, API_LIMIT_MAX, &n) || !n) return -1;
    k->limit = (size_t)n;
    return 0;
}

int api_take(struct api_call *k, unsigned params, const char *name, const char *value,
             struct lw_err *err) {
    struct lw_buf known = {0};
    for (size_t i = 0; i < api_n_params; i++) {
        if (!(params & api_params[i].bit)) continue;
        if (!strcmp(name, api_params[i].name)) {
            lw_buf_free(&known);
            return take(k, api_params[i].bit, value)
                       ? lw_fail(err, "%.60s is \"%.200s\"; expected %s", name, value,
                                 form_of(api_params[i].bit))
                       : 0;
        }
        lw_buf_addf(&known, "%s%s", known.n ? ", " : "", api_params[i].name);
    }
    lw_fail(err, "unknown parameter \"%.60s\"; expected %.*s", name, known.n ? (int)known.n : 4,
            known.n ? known.p : "none");
    lw_buf_free(&known);
    return -1;
}

bool api_filter_ok(struct api_call *k) {
    struct lw_err err = {0};
    if (k->o->args.n_keys && k->o->args.match)
        lw_http_error(k->a, 400, "use either key or match");
    else if (ops_filter_check(k->o, &err))
        lw_http_error(k->a, 400, "%s", err.text);
    else
        return true;
    return false;
}

static bool good_query(struct api_call *k) {
    struct lw_err err = {0};
    for (size_t i = 0; i < k->q->n_args; i++)
        if (api_take(k, k->route->params, k->q->args[i].name, k->q->args[i].value, &err)) {
            lw_http_error(k->a, 400, "%s", err.text);
            return false;
        }
    return api_filter_ok(k);
}

/* --- the body --------------------------------------------------------------------------------- */

static bool good_body(struct api_call *k) {
    const struct lw_buf *b = &k->q->body;
    struct lw_err err = {0};
    json_t *schema = api_body_schema(k->route);
    k->body = b->n ? json_loadb(b->p, b->n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL)
                   : json_object();
    bool good = api_fits(schema, k->body, &err);
    k->execute = good && json_is_true(json_object_get(k->body, "execute"));
    json_decref(schema);
    if (!good)
        lw_http_error(k->a, 400, "the body: %s", k->body ? err.text : "expected a JSON object");
    return good;
}

const char *api_who(const struct api_call *k, char out[API_WHO]) {
    struct lw_access access = lw_access_of(k->c, k->q->authorization);
    snprintf(out, API_WHO, "http:%s@%s", access.name ? access.name : "?", k->q->from);
    return out;
}

/* --- one request ------------------------------------------------------------------------------ */

void api_put(struct api_call *k, json_t *v) { lw_http_json(k->a, 200, v); }

static bool sound(const struct ops *o) {
    bool all = o->shards;
    for (int s = 0; all && s < o->c->redis.shards; s++)
        all = o->shards[s].redis && lw_redis_usable(o->shards[s].redis);
    return all;
}

static bool connected(struct ops *o) {
    if (sound(o)) return true;
    ops_disconnect(o);
    if (ops_connect(o) == 0) return true;
    ops_disconnect(o);
    return false;
}

static void reset(struct ops *o, const struct lw_http_request *q) {
    o->args = (struct ops_args){
        .limit = -1, .partition = -1, .attempts = -1, .older_ms = -1, .json = true};
    o->err = (struct lw_err){0};
    o->deadline_ms = q->until_ms;
    o->asked_ms = lw_wall_ms();
    o->scanned = o->to_scan = 0;
    o->cut = false;
}

/* Calls the route's function. If the function fails because the connection to Redis is broken,
 * connects and calls the function once more, because the connection may have broken unnoticed long
 * before the request. A POST request is not repeated, nor is any request if too little time is
 * left. */
static int call(struct api_call *k) {
    if (k->route->offline) return k->route->fn(k);
    if (!connected(k->o)) return -1;
    int bad = k->route->fn(k);
    if (bad >= 0 || k->q->post || sound(k->o) || lw_boot_ms() + RETRY_MS > k->q->until_ms)
        return bad;
    k->o->err = (struct lw_err){0};
    return connected(k->o) ? k->route->fn(k) : -1;
}

static void run(struct api_call *k) {
    if (!lw_access_allowed(k->c, k->q, k->route->post, k->a) || (k->route->post && !good_body(k)))
        return;
    if (!good_query(k)) return;
    if (call(k) < 0)
        lw_http_error(k->a,
                      k->a->status >= 400  ? k->a->status
                      : k->o->err.conflict ? 409
                                           : 503,
                      "%s", k->o->err.text);
    if (k->route->post && k->a->status < 300)
        lw_info("api: %s of %s, asked for by %s: %s", k->segment[k->n_segments - 1], k->segment[0],
                k->q->from, k->execute ? "done" : "see the answer");
}

static void free_segments(struct lw_buf room[API_SEGMENTS]) {
    for (int i = 0; i < API_SEGMENTS; i++) lw_buf_free(&room[i]);
}

/* Returns true if the request must search for a dead letter because the path names it by its
 * identity TOPIC/PARTITION/OFFSET. A path with the letter's id needs no search. The id is SHARD:ID,
 * and a topic name has no colon. */
static bool is_search(const struct api_call *k) {
    return k->route->searches && !strchr(k->segment[1], ':');
}

static bool lengthy(void *self, const struct lw_http_request *q) {
    struct lw_buf room[API_SEGMENTS] = {0};
    struct api_call k = {.q = q};
    bool other_method;
    const struct api *api = self;
    k.route = find(&k, split(&k, q->path, room), &other_method);
    bool kafka = k.route && k.route->fn == api_dead && api->c->dead.topic;
    bool is = k.route && (k.route->lengthy || kafka || is_search(&k));
    free_segments(room);
    return is;
}

static void answer(void *self, const struct lw_http_request *q, struct lw_http_answer *a,
                   bool is_lengthy) {
    struct api *api = self;
    struct lw_buf room[API_SEGMENTS] = {0};
    struct api_call k = {.c = api->c,
                         .o = api->o[is_lengthy],
                         .q = q,
                         .a = a,
                         .limit = API_LIMIT,
                         .jobs = api->jobs};
    bool other_method;
    reset(k.o, q);
    k.n_segments = split(&k, q->path, room);
    k.route = find(&k, k.n_segments, &other_method);
    if (k.route) {
        run(&k);
    } else if (other_method) {
        lw_http_error(a, 405,
                      q->post ? "read-only path; use GET" : "this path makes a change; use POST");
        a->allow = q->post ? "GET, HEAD" : "POST";
    } else {
        lw_http_error(a, 404, "no such path; GET /api/v1 lists them");
    }
    json_decref(k.body);
    free(k.words);
    free_segments(room);
}

/* --- life ------------------------------------------------------------------------------------- */

static struct ops *new_ops(const struct lw_config *c) {
    struct ops *o = lw_alloc(sizeof *o);
    *o = (struct ops){.noun = "dead",
                      .c = (struct lw_config *)(uintptr_t)c,
                      .quiet = true,
                      .connect_ms = API_ANSWER_MS,
                      .answer_ms = API_ANSWER_MS};
    return o;
}

static void *open_api(const struct lw_config *c) {
    struct api *api = lw_alloc(sizeof *api);
    api->c = c;
    api->jobs = api_jobs_open(c);
    for (size_t i = 0; i < sizeof api->o / sizeof *api->o; i++) api->o[i] = new_ops(c);
    return api;
}

int lw_api_exporter_main(const struct lw_config *c, const struct lw_board *board) {
    static const struct lw_exporter_api served = {open_api, lengthy, answer};
    return lw_exporter_main(c, board, &served);
}
