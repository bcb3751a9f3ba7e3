/* SPDX-License-Identifier: Apache-2.0 */
/* What Redis records: of a job its number, options, state and counts, under a lease that lets one
 * job run at a time, and of every action of an operator an entry in the audit. All of it is in the
 * first shard. */
#include "base/clock.h"
#include "base/host.h"
#include "ops/job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { JOB_TTL_MS = 30000, AUDIT_MAX = 10000 };

/* --- options, and the audit ------------------------------------------------------------------- */

/* Returns the texts as a list, or NULL if one of them is not UTF-8. A list with fewer of them would
 * let a resumed job take more than was asked for. */
static json_t *list_of(const char *const *texts, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(list, json_string(texts[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *limit_of(int64_t n) {
    return n == OPS_NO_LIMIT ? json_null() : json_integer((json_int_t)n);
}

/* Returns the command's options as one canonical text. A job may be resumed only with the same
 * options, which is checked by comparing these texts. */
static char *words_of(const struct ops *o) {
    const struct ops_args *a = &o->args;
    json_t *j = json_pack(
        "{ss ss so so so ss* ss* ss* ss* ss* ss* ss* sI sI sI sb}", "noun", o->noun, "verb",
        o->verb, "words", list_of((const char *const *)a->words, (size_t)a->n_words), "keys",
        list_of(a->keys, a->n_keys), "where", list_of(a->where, a->n_where), "match", a->match,
        "topic", a->topic, "reason", a->reason, "error", a->error, "from", a->from, "to", a->to,
        "to_topic", a->to_topic, "partition", (json_int_t)a->partition, "attempts",
        (json_int_t)a->attempts, "older_ms", (json_int_t)a->older_ms, "again", (int)a->again);
    if (j && a->try_handler) json_object_set_new(j, "try", json_true());
    if (j && a->fleet) json_object_set_new(j, "fleet", json_true());
    if (j && a->each) json_object_set_new(j, "each", json_true());
    if (j && a->running) json_object_set_new(j, "running", limit_of(a->running));
    if (j && a->per_second) json_object_set_new(j, "per_second", limit_of(a->per_second));
    if (j && a->burst) json_object_set_new(j, "burst", limit_of(a->burst));
    char *text = j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(j);
    /* If an option is not UTF-8, the options cannot be written as JSON. Then the text contains no
     * options. */
    return text ? text : lw_strdup("{}");
}

void ops_who(const struct ops *o, char *out, size_t size) {
    if (o->who)
        snprintf(out, size, "%s", o->who);
    else
        lw_who(out, size);
}

/* Adds an entry to the audit in the first shard, which also stores the records of jobs. */
int ops_audit(struct ops *o, const char *did, int64_t n) {
    char user[256], *words = words_of(o);
    ops_who(o, user, sizeof user);
    ops_begin(o, "XADD"), ops_keys(o, &o->shards[0], "audit");
    ops_words(o, "MAXLEN", "~"), lw_arg_i64(&o->cmd, AUDIT_MAX);
    ops_words(o, "*", "event", did, "who", user, "words", words);
    lw_arg_text(&o->cmd, "done"), lw_arg_i64(&o->cmd, n);
    redisReply *r = ops_ask(o, &o->shards[0]);
    if (r) freeReplyObject(r);
    free(words);
    return r ? 0 : -1;
}

/* --- the number, and the record --------------------------------------------------------------- */

static void job_script(struct ops_job *j, const char *what, int64_t number) {
    struct ops *o = j->o;
    struct ops_shard *sh = &o->shards[0];
    char name[32];
    snprintf(name, sizeof name, "%" PRId64, number);
    ops_script(o, &lw_op_job, 5);
    ops_keys(o, sh, "epoch", "job", "replays");
    ops_key(o, sh, "job:", lw_bytes_of(name)), ops_keys(o, sh, "audit");
    ops_words(o, what, j->token), lw_arg_i64(&o->cmd, JOB_TTL_MS);
}

/* Reads the highest job number that any shard stores, so that no number is used twice even if a
 * shard was emptied. */
static int last_number(struct ops *o, int64_t *out) {
    *out = 0;
    for (int s = 0; s < o->c->redis.shards; s++) {
        ops_begin(o, "GET"), ops_keys(o, &o->shards[s], "replays");
        redisReply *r = ops_ask(o, &o->shards[s]);
        if (!r) return -1;
        int64_t n = r->type == REDIS_REPLY_STRING ? strtoll(r->str, NULL, 10) : 0;
        if (n > *out) *out = n;
        freeReplyObject(r);
    }
    return 0;
}

static int tell_number(struct ops_job *j) {
    for (int s = 1; s < j->o->c->redis.shards; s++) {
        ops_begin(j->o, "SET"), ops_keys(j->o, &j->o->shards[s], "replays"),
            lw_arg_i64(&j->o->cmd, j->number);
        redisReply *r = ops_ask(j->o, &j->o->shards[s]);
        if (!r) return -1;
        freeReplyObject(r);
    }
    return 0;
}

static int start(struct ops_job *j, int64_t last) {
    struct ops *o = j->o;
    char resume[32] = "";
    ops_who(o, j->who, sizeof j->who);
    if (o->args.resume) snprintf(resume, sizeof resume, "%" PRId64, o->args.resume);
    job_script(j, "begin", o->args.resume);
    lw_arg_i64(&o->cmd, last + 1), lw_arg_text(&o->cmd, resume);
    ops_words(o, "who", j->who, "words", j->words, "state", "running");
    lw_arg_text(&o->cmd, "at_ms"), lw_arg_i64(&o->cmd, lw_wall_ms());
    lw_arg_text(&o->cmd, "asked_ms"), lw_arg_i64(&o->cmd, o->asked_ms);
    redisReply *r = ops_ask(o, &o->shards[0]);
    if (!r) return -1;
    int bad = 0;
    if (r->type == REDIS_REPLY_ARRAY && r->elements == 2)
        bad = lw_fail_conflict(&o->err,
                               "job %s is under way, and only one job runs at a time; try again "
                               "when it has ended, or in %d s if its command was killed",
                               r->element[1]->str, JOB_TTL_MS / 1000);
    else if (r->type == REDIS_REPLY_ARRAY)
        bad = lw_fail(&o->err, "there is no job %s (jobs are kept for six days)", resume);
    else
        j->number = strtoll(r->str, NULL, 10);
    freeReplyObject(r);
    if (bad) return bad;
    j->renewed_ms = lw_boot_ms();
    o->job = j;
    return tell_number(j);
}

int ops_job_start(struct ops_job *j) {
    struct ops *o = j->o;
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return lw_fail(&o->err, "getrandom failed: %s", strerror(errno));
    snprintf(j->token, sizeof j->token, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    int64_t last;
    if (last_number(o, &last)) return -1;
    j->number = o->args.resume ? o->args.resume : last + 1;
    j->words = words_of(o);
    return j->dry ? 0 : start(j, last);
}

int ops_job_record(struct ops_job *j, const char *what, const char *state) {
    struct ops *o = j->o;
    job_script(j, what, j->number);
    lw_arg_i64(&o->cmd, j->number), ops_words(o, "state", state);
    if (strcmp(what, "end") == 0) ops_words(o, "who", j->who, "words", j->words);
    lw_arg_text(&o->cmd, "done"), lw_arg_i64(&o->cmd, ops_job_done_count(j));
    lw_arg_text(&o->cmd, "taken"), lw_arg_i64(&o->cmd, j->taken);
    long long mine;
    if (ops_ask_int(o, &o->shards[0], &mine)) return -1;
    j->renewed_ms = lw_boot_ms();
    return mine ? 0
                : lw_fail(&o->err,
                          "job %" PRId64 " did not report to Redis for %d s, so another one began; "
                          "continue with --resume %" PRId64,
                          j->number, JOB_TTL_MS / 1000, j->number);
}

/* --- a job that goes on ----------------------------------------------------------------------- */

static const char *text_at(const json_t *j, const char *name) {
    return json_string_value(json_object_get(j, name));
}

static size_t texts_at(const json_t *j, const char *name, const char **out) {
    size_t i, n = 0;
    json_t *v;
    json_array_foreach(json_object_get(j, name), i, v)
        if (n < OPS_LIST_MAX && json_is_string(v)) out[n++] = json_string_value(v);
    return n;
}

/* Sets the options to those with which the job was started, as if the command line had given
 * them. */
static void take_words(struct ops *o) {
    struct ops_args *a = &o->args;
    const json_t *j = o->resumed;
    static const char *words[OPS_LIST_MAX];
    a->n_words = (int)texts_at(j, "words", words);
    a->words = (char **)(uintptr_t)words;
    a->n_keys = texts_at(j, "keys", a->keys);
    a->n_where = texts_at(j, "where", a->where);
    a->match = text_at(j, "match"), a->topic = text_at(j, "topic");
    a->reason = text_at(j, "reason"), a->error = text_at(j, "error");
    a->from = text_at(j, "from"), a->to = text_at(j, "to"), a->to_topic = text_at(j, "to_topic");
    a->partition = json_integer_value(json_object_get(j, "partition"));
    a->attempts = json_integer_value(json_object_get(j, "attempts"));
    a->older_ms = json_integer_value(json_object_get(j, "older_ms"));
    a->again = json_is_true(json_object_get(j, "again"));
}

static int adopt(struct ops *o, const char *name, const char *words, const char *asked_ms) {
    char *ours = words_of(o);
    bool bare = !ops_has_filter(o) && !o->args.to_topic && !o->args.again;
    json_t *j = json_loads(words, 0, NULL);
    const char *noun = text_at(j, "noun"), *verb = text_at(j, "verb");
    bool same_verb = noun && verb && strcmp(noun, o->noun) == 0 && strcmp(verb, o->verb) == 0;
    int bad = !same_verb || (!bare && strcmp(words, ours) != 0)
                  ? lw_fail(&o->err, "job %s belongs to another command or had other options: %s",
                            name, words)
                  : 0;
    if (!bad && (text_at(j, "to_topic") || json_object_get(j, "try")))
        bad = lw_fail(&o->err,
                      "job %s ran with --to-topic or --try, so its progress is not recorded; start "
                      "a new job, with filters for the messages that are left",
                      name);
    free(ours);
    o->asked_ms = strtoll(asked_ms, NULL, 10);
    if (bad || !bare) {
        json_decref(j);
        return bad;
    }
    o->resumed = j;
    take_words(o);
    return 0;
}

int ops_job_adopt(struct ops *o) {
    char name[32];
    snprintf(name, sizeof name, "%" PRId64, o->args.resume);
    ops_begin(o, "HMGET"), ops_key(o, &o->shards[0], "job:", lw_bytes_of(name));
    ops_words(o, "words", "asked_ms");
    redisReply *r = ops_ask_for(o, &o->shards[0], REDIS_REPLY_ARRAY);
    if (!r) return -1;
    bool known = r->elements == 2 && r->element[0]->type == REDIS_REPLY_STRING &&
                 r->element[1]->type == REDIS_REPLY_STRING;
    int bad = known ? adopt(o, name, r->element[0]->str, r->element[1]->str)
                    : lw_fail(&o->err, "there is no job %s (jobs are kept for six days)", name);
    freeReplyObject(r);
    return bad;
}
