/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the actions on many lanes or messages, which are either named by "ids" in the request
 * or matched by its "filter". */
#include "api/job.h"
#include "ops/dead/dead.h"
#include "ops/queue/queue.h"

#include <string.h>

const struct api_work api_work_pause = {
    .noun = "queue", .verb = "pause", .operate = queue_pause, .keys = true};
const struct api_work api_work_resume = {
    .noun = "queue", .verb = "resume", .operate = queue_resume, .keys = true};
const struct api_work api_work_drop = {
    .noun = "queue", .verb = "drop", .operate = queue_drop, .keys = true, .one_at_a_time = true};
const struct api_work api_work_again = {.noun = "queue",
                                        .verb = "replay",
                                        .operate = queue_replay,
                                        .keys = true,
                                        .one_at_a_time = true,
                                        .slow_dry_run = true};
const struct api_work api_work_replay = {
    .noun = "dead", .verb = "replay", .operate = dead_replay, .one_at_a_time = true};
const struct api_work api_work_remove = {
    .noun = "dead", .verb = "drop", .operate = dead_drop, .one_at_a_time = true};

static bool refuse(struct api_call *k, const char *why) {
    lw_http_error(k->a, 400, "%s", why);
    return false;
}

/* Returns the text of a JSON string. Returns NULL if a byte 0 stands in it: what follows would be
 * cut off, and the rest may name something else. */
static const char *whole_text(const json_t *v) {
    const char *text = json_string_value(v);
    return strlen(text) == json_string_length(v) ? text : NULL;
}

/* Reads one member of "filter" in the request's body. The body was checked before, so the member is
 * a text, a number or a list of texts. */
static int take_member(struct api_call *k, const char *name, const json_t *value,
                       struct lw_err *err) {
    char digits[32];
    size_t i;
    const json_t *one;
    const char *text;
    if (json_is_string(value)) {
        if (!(text = whole_text(value))) return lw_fail(err, "%.60s contains a byte 0", name);
        return api_take(k, k->route->filter, name, text, err);
    }
    json_array_foreach(value, i, one) {
        if (!(text = whole_text(one))) return lw_fail(err, "%.60s contains a byte 0", name);
        if (api_take(k, k->route->filter, name, text, err)) return -1;
    }
    if (!json_is_integer(value)) return 0;
    snprintf(digits, sizeof digits, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    /* api_take() parses the number at once, so the local array `digits` does not have to outlive
     * the call */
    return api_take(k, k->route->filter, name, digits, err);
}

static bool take_filter(struct api_call *k) {
    const char *name;
    json_t *value;
    struct lw_err err = {0};
    json_object_foreach(json_object_get(k->body, "filter"), name, value)
        if (take_member(k, name, value, &err)) {
            lw_http_error(k->a, 400, "filter: %s", err.text);
            return false;
        }
    return api_filter_ok(k);
}

static bool fits(struct api_call *k, const json_t *list) {
    return json_array_size(list) <= OPS_LIST_MAX ||
           refuse(k, "too many ids; expected at most 256; use a filter for more");
}

/* Makes the texts of a JSON list the arguments of the command. The arguments point into the
 * request's body, so the body must outlive the command. */
static bool take_words(struct api_call *k, const json_t *list) {
    size_t i;
    const json_t *one;
    if (!fits(k, list)) return false;
    k->words = lw_alloc((json_array_size(list) + 1) * sizeof *k->words);
    json_array_foreach(list, i, one) {
        k->words[i] = (char *)(uintptr_t)whole_text(one);
        if (!k->words[i]) return refuse(k, "an id contains a byte 0");
    }
    k->o->args.words = k->words;
    k->o->args.n_words = (int)json_array_size(list);
    return true;
}

static bool take_ids(struct api_call *k, const struct api_work *w) {
    const json_t *ids = json_object_get(k->body, "ids"), *one;
    size_t i;
    if (!w->keys) return take_words(k, ids);
    if (!take_words(k, json_object_get(k->body, "messages"))) return false;
    if (k->o->args.n_keys && ids) return refuse(k, "use either ids or the filter's key");
    struct lw_err err = {0};
    if (!fits(k, ids)) return false;
    json_array_foreach(ids, i, one)
        if (take_member(k, "key", one, &err)) return refuse(k, err.text);
    return true;
}

static bool take_numbers(struct api_call *k) {
    struct ops_args *a = &k->o->args;
    const json_t *limit = json_object_get(k->body, "limit"),
                 *rate = json_object_get(k->body, "rate_per_s");
    if (limit && json_integer_value(limit) < 1) return refuse(k, "limit: expected at least 1");
    if (rate && !(json_number_value(rate) > 0))
        return refuse(k, "rate_per_s: expected more than 0");
    if (limit) a->limit = json_integer_value(limit);
    a->rate = json_number_value(rate);
    a->execute = k->execute;
    a->again = json_is_true(json_object_get(k->body, "again"));
    a->stop_on_error = json_is_true(json_object_get(k->body, "stop_on_error"));
    a->no_backup = json_is_false(json_object_get(k->body, "backup"));
    return true;
}

int api_bulk(struct api_call *k) {
    const struct api_work *w = k->route->work;
    if (!take_filter(k) || !take_ids(k, w) || !take_numbers(k) || !api_filter_ok(k)) return 0;
    if (!ops_has_filter(k->o)) {
        lw_http_error(k->a, 400,
                      "expected \"ids\" or a \"filter\"; {\"filter\":{\"match\":\"*\"}} means all");
        return 0;
    }
    return k->execute || w->slow_dry_run ? api_job_start(k, w) : api_job_dry(k, w);
}
