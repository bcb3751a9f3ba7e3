/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/fleet.h"

#include "base/host.h"
#include "base/redis/reply.h"
#include "ops/shares.h"

#include <arpa/inet.h>
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROBLEM = 160 };

static const double MOST = 9007199254740992.0; /* 2^53, up to which JSON readers are exact */

static const char *const names[] = {"host", "version", "listen"};
/* The figures of a heartbeat. Those from SUMMED on are added up. */
static const char *const figures[] = {"pid", "started_ms", "workers",    "ready",     "partitions",
                                      "lag", "waiting",    "in_handler", "per_second"};
enum {
    NAMES = sizeof names / sizeof *names,
    FIGURES = sizeof figures / sizeof *figures,
    SUMMED = 2
};

void ops_fleet_host(char out[OPS_FLEET_NAME + 1]) {
    char host[LW_HOST_MAX]; /* NAME/BOOT_ID */
    lw_host(host);
    snprintf(out, OPS_FLEET_NAME + 1, "%.*s", (int)strcspn(host, "/"), host);
    /* a name may have any bytes, but a heartbeat that is not UTF-8 is none */
    for (char *c = out; *c; c++)
        if ((unsigned char)*c >= 0x80) *c = '?';
}

/* --- writing ---------------------------------------------------------------------------------- */

void ops_fleet_args(struct lw_commands *c, const char *id, struct lw_bytes text,
                    enum ops_fleet_what what, struct lw_bytes shares) {
    assert(strlen(id) <= OPS_FLEET_ID && text.n <= OPS_FLEET_BYTES);
    assert(shares.n <= OPS_SHARES_BYTES);
    lw_arg_i64(c, OPS_FLEET_MAX);
    /* one byte more, by which the reader sees that a text is too long */
    lw_arg_i64(c, 1 + (what == OPS_FLEET_SHARES ? OPS_SHARES_BYTES : OPS_FLEET_BYTES));
    lw_arg_i64(c, OPS_FLEET_ID);
    lw_arg_i64(c, OPS_FLEET_FORGET_MS);
    lw_arg_text(c, id);
    lw_arg(c, text);
    lw_arg_text(c, what == OPS_FLEET_SHARES ? ":groups" : "");
    lw_arg(c, shares);
}

void ops_fleet_text(struct lw_buf *out, const char *host, int pid, const char *listen,
                    double per_second, const json_t *stats) {
    json_t *j = json_pack("{s:s,s:s,s:s*,s:i}", "host", host, "version", LW_VERSION, "listen",
                          listen, "pid", pid);
    for (int i = 0; i < FIGURES; i++) {
        json_t *v = json_object_get(stats, figures[i]);
        if (v) json_object_set(j, figures[i], v);
    }
    if (per_second >= 0) json_object_set_new(j, "per_second", json_real(per_second));
    char *text = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(j);
    if (text && strlen(text) <= OPS_FLEET_BYTES) lw_buf_add(out, text, strlen(text));
    free(text);
}

/* --- reading one entry ------------------------------------------------------------------------ */

/* Copies what a heartbeat says to `row`, in which each member is null until then. Returns false
 * with *problem if a member is not of its kind. */
static bool take_members(json_t *row, const json_t *said, char problem[PROBLEM]) {
    for (int i = 0; i < NAMES; i++) {
        json_t *v = json_object_get(said, names[i]);
        if (!v) continue;
        if (!json_is_string(v) || json_string_length(v) > OPS_FLEET_NAME) {
            snprintf(problem, PROBLEM, "malformed heartbeat: %s is not a text of at most %d bytes",
                     names[i], OPS_FLEET_NAME);
            return false;
        }
        json_object_set(row, names[i], v);
    }
    for (int i = 0; i < FIGURES; i++) {
        json_t *v = json_object_get(said, figures[i]);
        bool any = i == FIGURES - 1; /* only the rate may be a fraction */
        if (!v) continue;
        double n = json_number_value(v);
        if (!(any ? json_is_number(v) : json_is_integer(v)) || !(n >= 0 && n <= MOST)) {
            snprintf(problem, PROBLEM, "malformed heartbeat: %s is not a number from 0 to 2^53",
                     figures[i]);
            return false;
        }
        json_object_set(row, figures[i], v);
    }
    return true;
}

static void forget_members(json_t *row) {
    for (int i = 0; i < NAMES; i++) json_object_set_new(row, names[i], json_null());
    for (int i = 0; i < FIGURES; i++) json_object_set_new(row, figures[i], json_null());
}

static void read_text(json_t *row, const redisReply *text, char problem[PROBLEM]) {
    json_error_t error;
    forget_members(row);
    if (!text->len) {
        snprintf(problem, PROBLEM, "malformed heartbeat: it has no text");
    } else if (text->len > OPS_FLEET_BYTES) {
        snprintf(problem, PROBLEM, "malformed heartbeat: its text has more than %d bytes",
                 OPS_FLEET_BYTES);
    } else {
        json_t *said = json_loadb(text->str, text->len, JSON_REJECT_DUPLICATES, &error);
        if (!json_is_object(said))
            snprintf(problem, PROBLEM, "malformed heartbeat: its text is not a JSON object");
        else if (!take_members(row, said, problem))
            forget_members(row);
        json_decref(said);
    }
}

static bool is_host_name(const char *host) {
    size_t n = strspn(host, LW_PLAIN);
    return n && !host[n];
}

/* Returns the address of a supervisor's page as a link, or NULL if it listens to nothing, or only
 * for its own host, or if the address is not one. */
static json_t *link_of(const json_t *row, const char *own_host) {
    const char *listen = json_string_value(json_object_get(row, "listen"));
    const char *host = json_string_value(json_object_get(row, "host"));
    const char *colon = listen ? strrchr(listen, ':') : NULL;
    char at[OPS_FLEET_NAME + 1], *end, *bare = at;
    unsigned char is[sizeof(struct in6_addr)];
    if (!colon || !host || !is_host_name(host)) return json_null();
    snprintf(at, sizeof at, "%.*s", (int)(colon - listen), listen);
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (strspn(colon + 1, "0123456789") != strlen(colon + 1) || port < 1 || port > 65535)
        return json_null();
    size_t n = strlen(at);
    bool v6 = n > 2 && at[0] == '[' && at[n - 1] == ']';
    if (v6) at[n - 1] = '\0', bare = at + 1;
    if (inet_pton(v6 ? AF_INET6 : AF_INET, bare, is) != 1) return json_null();
    bool own = !strncmp(bare, "127.", 4) || !strcmp(bare, "::1");
    bool any = !strcmp(bare, "0.0.0.0") || !strcmp(bare, "::");
    if (own && strcmp(host, own_host) != 0) return json_null();
    if (any) return json_sprintf("http://%s:%lu/", host, port);
    return json_sprintf(v6 ? "http://[%s]:%lu/" : "http://%s:%lu/", bare, port);
}

static json_t *row_of(redisReply *const entry[3], int64_t now_ms,
                      const struct ops_fleet_reader *by) {
    json_t *row = json_object();
    struct lw_bytes id = lw_bytes(entry[0]->str, entry[0]->len);
    char problem[PROBLEM] = "";
    const char *state = "up";
    double at = strtod(entry[1]->str, NULL), ago = (double)now_ms - at;
    bool timed = isfinite(at) && ago > -OPS_FLEET_FORGET_MS && ago < 2.0 * OPS_FLEET_FORGET_MS;
    ops_set_bytes(row, "id", id);
    read_text(row, entry[2], problem);
    if (!timed)
        snprintf(problem, sizeof problem, "malformed heartbeat: its time is not of the last hour");
    else if (!*problem && ago < -OPS_FLEET_SILENT_MS)
        /* it may be of long ago: the clock was set back since */
        snprintf(problem, sizeof problem, "its time is %.0f s ahead of the clock of Redis",
                 -ago / 1000);
    else if (!*problem && ago > OPS_FLEET_SILENT_MS) {
        state = "silent";
        if (now_ms - by->steady_ms <= OPS_FLEET_SILENT_MS)
            snprintf(problem, sizeof problem, "Redis was not reached meanwhile");
    }
    if (*problem) state = "unknown";
    json_object_set_new(row, "heard_ms_ago",
                        timed ? json_integer((json_int_t)(ago > 0 ? ago : 0)) : json_null());
    json_object_set_new(row, "state", json_string(state));
    json_object_set_new(row, "problem", *problem ? json_string(problem) : json_null());
    json_object_set_new(row, "this", json_boolean(*by->id && lw_bytes_eq(id, lw_bytes_of(by->id))));
    json_object_set_new(row, "link", link_of(row, by->host));
    return row;
}

/* --- reading all ------------------------------------------------------------------------------ */

int64_t ops_fleet_now(const redisReply *r, struct lw_err *err) {
    char why[LW_REPLY_TEXT];
    bool sound = r->type == REDIS_REPLY_ARRAY && r->elements >= 2 && r->elements % 3 == 2 &&
                 r->elements <= 2 + 3 * OPS_FLEET_MAX &&
                 r->element[0]->type == REDIS_REPLY_STRING &&
                 r->element[1]->type == REDIS_REPLY_INTEGER;
    for (size_t i = 2; sound && i < r->elements; i++)
        sound = r->element[i]->type == REDIS_REPLY_STRING;
    if (sound) return strtoll(r->element[0]->str, NULL, 10);
    if (r->type == REDIS_REPLY_ERROR)
        lw_fail(err, "Redis rejected the heartbeat: %s", r->str);
    else
        lw_fail(err, "%s",
                lw_malformed(why, r, "fleet.lua", "[TIME, NUMBER, id, time, text, ...]"));
    return -1;
}

/* Adds up what the supervisors that are up have said. Sets *complete to false if one of them did
 * not say all. */
static json_t *add_up(const json_t *rows, size_t n, bool *complete) {
    static const char *const states[] = {"up", "silent", "unknown"};
    double sum[FIGURES] = {0};
    json_int_t in[3] = {0};
    json_t *row, *sums = json_object();
    size_t at;
    json_array_foreach(rows, at, row) {
        const char *state = json_string_value(json_object_get(row, "state"));
        for (int s = 0; s < 3; s++) in[s] += !strcmp(state, states[s]);
        for (int i = SUMMED; !strcmp(state, "up") && i < FIGURES; i++) {
            const json_t *v = json_object_get(row, figures[i]);
            if (!json_is_number(v)) *complete = false;
            sum[i] += json_number_value(v);
        }
    }
    if (in[2]) *complete = false;
    json_object_set_new(sums, "supervisors", json_integer((json_int_t)n));
    for (int s = 0; s < 3; s++) json_object_set_new(sums, states[s], json_integer(in[s]));
    for (int i = SUMMED; i < FIGURES; i++)
        json_object_set_new(sums, figures[i],
                            i == FIGURES - 1 ? json_real(sum[i])
                                             : json_integer((json_int_t)sum[i]));
    return sums;
}

static int by_id(const void *a, const void *b) {
    const redisReply *x = *(redisReply *const *)a, *y = *(redisReply *const *)b;
    return lw_bytes_order(lw_bytes(x->str, x->len), lw_bytes(y->str, y->len));
}

json_t *ops_fleet_json(const redisReply *r, const struct ops_fleet_reader *by) {
    json_t *rows = json_array();
    struct lw_err unused = {0};
    int64_t now_ms = ops_fleet_now(r, &unused);
    size_t shown = (r->elements - 2) / 3;
    size_t n = r->element[1]->integer > (long long)shown ? (size_t)r->element[1]->integer : shown;
    bool complete = n == shown;
    /* in an order that stays from one reply to the next */
    qsort(r->element + 2, shown, 3 * sizeof *r->element, by_id);
    for (size_t i = 0; i < shown; i++)
        json_array_append_new(rows, row_of(&r->element[2 + 3 * i], now_ms, by));
    json_t *sums = add_up(rows, n, &complete);
    return json_pack("{s:o,s:o,s:I,s:b}", "supervisors", rows, "sums", sums, "more",
                     (json_int_t)(n - shown), "complete", (int)complete);
}
