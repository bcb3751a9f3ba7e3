/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verb `latchwork queue audit`, which shows what operators did. */
#include "ops/queue/audit.h"

#include "ops/queue/queue.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { AUDIT_LIMIT = 50, ENTRIES_MAX = 10100 };

/* Describes an entry of a shard's stream `audit`. The fields point into the reply, which must
 * outlive the entry. */
struct entry {
    int64_t ms, nth; /* the two numbers of the entry's id, which has the form MS-NTH */
    int shard;
    const redisReply *fields;
};

struct entries {
    redisReply **reply; /* the replies of all shards, one per shard */
    struct entry *at;
    size_t n;
};

static const char *field(const struct entry *e, const char *name) {
    for (size_t i = 0; i + 1 < e->fields->elements; i += 2)
        if (strcmp(e->fields->element[i]->str, name) == 0) return e->fields->element[i + 1]->str;
    return NULL;
}

/* Reads at most `most` entries of a shard, from the id `from` backward. If `from` is "+", the
 * newest entry is read first. The stream `audit` keeps about 10,000 entries. */
static int read_shard(struct ops *o, struct entries *es, int shard, const char *from,
                      int64_t most) {
    struct ops_shard *sh = &o->shards[shard];
    ops_begin(o, "XREVRANGE"), ops_keys(o, sh, "audit");
    ops_words(o, from, "-", "COUNT"), lw_arg_i64(&o->cmd, most);
    redisReply *r = es->reply[shard] = ops_ask_entries(o, sh);
    if (!r) return -1;
    es->at = lw_realloc(es->at, (es->n + r->elements + 1) * sizeof *es->at);
    for (size_t i = 0; i < r->elements; i++) {
        char *dash;
        struct entry e = {.ms = strtoll(r->element[i]->element[0]->str, &dash, 10),
                          .shard = shard,
                          .fields = r->element[i]->element[1]};
        e.nth = *dash ? strtoll(dash + 1, NULL, 10) : 0;
        es->at[es->n++] = e;
    }
    return 0;
}

static int by_time(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->ms != y->ms) return x->ms < y->ms ? -1 : 1;
    if (x->shard != y->shard) return x->shard - y->shard;
    return x->nth < y->nth ? -1 : x->nth > y->nth;
}

/* Returns the value of the field `name` or, if there is none, of the field `other`, or "" if both
 * are missing. Entries of jobs and of single actions have the fields "event" and "who"; entries of
 * `lock break` have the fields "did" and "by". */
static const char *either(const struct entry *e, const char *name, const char *other) {
    const char *v = field(e, name);
    if (!v) v = field(e, other);
    return v ? v : "";
}

static bool is_number(const char *name) {
    static const char *const numbers[] = {"job", "done", "taken", "asked_ms", "fence"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i], name) == 0) return true;
    return false;
}

static json_t *entry_json(const struct entry *e) {
    json_t *j = json_object();
    const char *words = field(e, "words");
    json_object_set_new(j, "at_ms", json_integer(e->ms));
    json_object_set_new(j, "shard", json_integer(e->shard));
    for (size_t i = 0; i + 1 < e->fields->elements; i += 2) {
        const redisReply *name = e->fields->element[i], *value = e->fields->element[i + 1];
        const char *as = strcmp(name->str, "did") == 0  ? "event"
                         : strcmp(name->str, "by") == 0 ? "who"
                                                        : name->str;
        /* the field at_ms is left out, because the entry's id already contains the time */
        if (strcmp(as, "at_ms") == 0) continue;
        if (is_number(as))
            json_object_set_new(j, as, json_integer(strtoll(value->str, NULL, 10)));
        else
            ops_set_bytes(j, as, lw_bytes(value->str, value->len));
    }
    json_t *parsed = words ? json_loads(words, 0, NULL) : NULL;
    if (parsed) json_object_set_new(j, "words", parsed);
    return j;
}

static void add(struct lw_buf *out, const char *before, const char *text) {
    if (!text || !*text) return;
    lw_buf_addf(out, "%s", before);
    ops_text(out, lw_bytes_of(text), 200);
}

/* Appends the options of a job in the form of a command line, such as "dead replay --key a". */
static void add_words(struct lw_buf *out, const char *words) {
    static const char *const options[][2] = {{"match", " --match "},      {"topic", " --topic "},
                                             {"reason", " --reason "},    {"error", " --error "},
                                             {"from", " --from "},        {"to", " --to "},
                                             {"to_topic", " --to-topic "}};
    json_t *j = words ? json_loads(words, 0, NULL) : NULL, *v;
    size_t i;
    if (!j) return;
    add(out, "", json_string_value(json_object_get(j, "noun")));
    add(out, " ", json_string_value(json_object_get(j, "verb")));
    json_array_foreach(json_object_get(j, "words"), i, v) add(out, " ", json_string_value(v));
    json_array_foreach(json_object_get(j, "keys"), i, v) add(out, " --key ", json_string_value(v));
    json_array_foreach(json_object_get(j, "where"), i, v)
        add(out, " --where ", json_string_value(v));
    for (i = 0; i < sizeof options / sizeof *options; i++)
        add(out, options[i][1], json_string_value(json_object_get(j, options[i][0])));
    int64_t partition = json_integer_value(json_object_get(j, "partition")),
            attempts = json_integer_value(json_object_get(j, "attempts"));
    int64_t older_ms = json_integer_value(json_object_get(j, "older_ms"));
    if (partition >= 0) lw_buf_addf(out, " --partition %" PRId64, partition);
    if (attempts >= 0) lw_buf_addf(out, " --attempts %" PRId64, attempts);
    if (older_ms >= 0) lw_buf_addf(out, " --older-than %" PRId64 "ms", older_ms);
    if (json_is_true(json_object_get(j, "again"))) add(out, "", " --again");
    json_decref(j);
}

static const struct ops_column columns[] = {{"WHEN", false},  {"WHO", false}, {"JOB", true},
                                            {"EVENT", false}, {"DONE", true}, {"WHAT", false}};

static void add_row(struct ops_table *t, const struct entry *e) {
    char when[32];
    struct lw_buf what = {0};
    const char *job = field(e, "job"), *done = field(e, "done"), *state = field(e, "state"),
               *event = either(e, "event", "did");
    add_words(&what, field(e, "words"));
    add(&what, "key ", field(e, "key"));
    add(&what, ", held by ", field(e, "was"));
    ops_cell(t, "%s", ops_when(e->ms, when));
    ops_cell_bytes(t, lw_bytes_of(either(e, "who", "by")), 40);
    ops_cell(t, "%s", job ? job : "-");
    ops_cell(t, "%s", strcmp(event, "end") == 0 && state ? state : event);
    ops_cell(t, "%s", done ? done : "-");
    ops_cell_bytes(t, lw_bytes(what.p ? what.p : "", what.n), 300);
    lw_buf_free(&what);
}

static void free_entries(const struct ops *o, struct entries *es) {
    for (int s = 0; s < o->c->redis.shards; s++)
        if (es->reply[s]) freeReplyObject(es->reply[s]);
    free(es->reply);
    free(es->at);
}

int queue_audit(struct ops *o) {
    struct entries es = {.reply = lw_alloc((size_t)o->c->redis.shards * sizeof(redisReply *))};
    struct ops_table t = {.columns = columns, .n_columns = sizeof columns / sizeof *columns};
    int64_t most = o->args.limit < 0 ? AUDIT_LIMIT : o->args.limit ? o->args.limit : ENTRIES_MAX;
    int bad = 0;
    for (int s = 0; s < o->c->redis.shards && !bad; s++) bad = read_shard(o, &es, s, "+", most);
    if (!bad && es.n) qsort(es.at, es.n, sizeof *es.at, by_time);
    size_t from = es.n > (size_t)most ? es.n - (size_t)most : 0;
    for (size_t i = from; i < es.n && !bad; i++) {
        if (o->args.json)
            ops_put_json(entry_json(&es.at[i]));
        else
            add_row(&t, &es.at[i]);
    }
    if (!o->args.json && !bad) ops_table_print(&t);
    free_entries(o, &es);
    return bad ? OPS_FAILED : 0;
}

/* --- pages, newest first ---------------------------------------------------------------------- */

/* A place in the audit, after which a page of the list begins: the id and the shard of the last
 * entry of the previous page. Pages list entries from the newest to the oldest. */
struct place {
    long long ms, nth;
    int shard;
};

/* Writes the id from which a shard must be read backward to find exactly the entries that the list
 * shows after the place `p`. The list is sorted by the milliseconds of the ids, then by shard, then
 * by the second number of the ids. So the entries of another shard with the same millisecond as `p`
 * are either all before `p` or all after it. */
static const char *first_id(const struct place *p, int shard, char out[64]) {
    if (!p) return "+";
    if (shard < p->shard)
        snprintf(out, 64, "%lld", p->ms);
    else if (shard == p->shard)
        snprintf(out, 64, "(%lld-%lld", p->ms, p->nth);
    else
        snprintf(out, 64, "(%lld-0", p->ms);
    return out;
}

static int parse_place(const struct ops *o, const char *text, struct place *p) {
    int end = 0;
    bool good = sscanf(text, "%18lld-%18lld.%4d%n", &p->ms, &p->nth, &p->shard, &end) == 3 &&
                !text[end] && p->ms >= 0 && p->nth >= 0 && p->shard >= 0 &&
                p->shard < o->c->redis.shards;
    return good ? 0 : -1;
}

int queue_audit_page(struct ops *o, const char *cursor, int64_t most, json_t *list,
                     char next[QUEUE_AUDIT_CURSOR]) {
    struct place place;
    char id[64];
    int bad = 0;
    next[0] = 0;
    if (cursor && parse_place(o, cursor, &place)) return 1;
    struct entries es = {.reply = lw_alloc((size_t)o->c->redis.shards * sizeof(redisReply *))};
    /* read one entry more than fits on the page, to learn whether there is a next page */
    for (int s = 0; s < o->c->redis.shards && !bad; s++)
        bad = read_shard(o, &es, s, first_id(cursor ? &place : NULL, s, id), most + 1);
    if (!bad && es.n) qsort(es.at, es.n, sizeof *es.at, by_time);
    for (size_t n = 0; !bad && n < es.n && (int64_t)n < most; n++)
        json_array_append_new(list, entry_json(&es.at[es.n - 1 - n]));
    if (!bad && (int64_t)es.n > most) {
        const struct entry *last = &es.at[es.n - (size_t)most];
        snprintf(next, QUEUE_AUDIT_CURSOR, "%" PRId64 "-%" PRId64 ".%d", last->ms, last->nth,
                 last->shard);
    }
    free_entries(o, &es);
    return bad ? -1 : 0;
}
