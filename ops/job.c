/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/job.h"

#include "base/clock.h"
#include "base/host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    JOB_TTL_MS = 30000,
    RENEW_MS = 5000,
    TOLD_MS = 200,
    LINES_MAX = 20,
    BAR = 20,
    BATCH_BYTES = 128 << 10,
    AUDIT_MAX = 10000
};

static volatile sig_atomic_t interrupted;
static void on_signal(int sig) {
    (void)sig;
    interrupted = 1;
}

static const struct lw_bytes none = {"", 0};

static bool is_cancelled(const struct ops *o) { return o->watch && atomic_load(&o->watch->cancel); }
static bool is_interrupted(const struct ops_job *j) { return interrupted || is_cancelled(j->o); }

/* --- its record ------------------------------------------------------------------------------- */

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
    ops_begin(o, "XADD"), ops_key(o, &o->shards[0], "audit", none);
    lw_arg_text(&o->cmd, "MAXLEN"), lw_arg_text(&o->cmd, "~"), lw_arg_i64(&o->cmd, AUDIT_MAX),
        lw_arg_text(&o->cmd, "*");
    lw_arg_text(&o->cmd, "event"), lw_arg_text(&o->cmd, did), lw_arg_text(&o->cmd, "who"),
        lw_arg_text(&o->cmd, user);
    lw_arg_text(&o->cmd, "words"), lw_arg_text(&o->cmd, words), lw_arg_text(&o->cmd, "done"),
        lw_arg_i64(&o->cmd, n);
    redisReply *r = ops_ask(o, &o->shards[0]);
    if (r) freeReplyObject(r);
    free(words);
    return r ? 0 : -1;
}

static void job_script(struct ops_job *j, const char *what, int64_t number) {
    struct ops *o = j->o;
    struct ops_shard *sh = &o->shards[0];
    char name[32];
    snprintf(name, sizeof name, "%" PRId64, number);
    ops_script(o, &lw_op_job, 5);
    ops_key(o, sh, "epoch", none), ops_key(o, sh, "job", none), ops_key(o, sh, "replays", none);
    ops_key(o, sh, "job:", lw_bytes_of(name)), ops_key(o, sh, "audit", none);
    lw_arg_text(&o->cmd, what), lw_arg_text(&o->cmd, j->token), lw_arg_i64(&o->cmd, JOB_TTL_MS);
}

/* Reads the highest job number that any shard stores, so that no number is used twice even if a
 * shard was emptied. */
static int last_number(struct ops *o, int64_t *out) {
    *out = 0;
    for (int s = 0; s < o->c->redis.shards; s++) {
        ops_begin(o, "GET"), ops_key(o, &o->shards[s], "replays", none);
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
        ops_begin(j->o, "SET"), ops_key(j->o, &j->o->shards[s], "replays", none),
            lw_arg_i64(&j->o->cmd, j->number);
        redisReply *r = ops_ask(j->o, &j->o->shards[s]);
        if (!r) return -1;
        freeReplyObject(r);
    }
    return 0;
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
    lw_arg_text(&o->cmd, "words"), lw_arg_text(&o->cmd, "asked_ms");
    redisReply *r = ops_ask_for(o, &o->shards[0], REDIS_REPLY_ARRAY);
    if (!r) return -1;
    bool known = r->elements == 2 && r->element[0]->type == REDIS_REPLY_STRING &&
                 r->element[1]->type == REDIS_REPLY_STRING;
    int bad = known ? adopt(o, name, r->element[0]->str, r->element[1]->str)
                    : lw_fail(&o->err, "there is no job %s (jobs are kept for six days)", name);
    freeReplyObject(r);
    return bad;
}

/* --- beginning -------------------------------------------------------------------------------- */

static int start(struct ops_job *j, const char *words, int64_t last) {
    struct ops *o = j->o;
    char resume[32] = "";
    ops_who(o, j->who, sizeof j->who);
    if (o->args.resume) snprintf(resume, sizeof resume, "%" PRId64, o->args.resume);
    job_script(j, "begin", o->args.resume);
    lw_arg_i64(&o->cmd, last + 1), lw_arg_text(&o->cmd, resume);
    lw_arg_text(&o->cmd, "who"), lw_arg_text(&o->cmd, j->who);
    lw_arg_text(&o->cmd, "at_ms"), lw_arg_i64(&o->cmd, lw_wall_ms());
    lw_arg_text(&o->cmd, "asked_ms"), lw_arg_i64(&o->cmd, o->asked_ms);
    lw_arg_text(&o->cmd, "words"), lw_arg_text(&o->cmd, words), lw_arg_text(&o->cmd, "state"),
        lw_arg_text(&o->cmd, "running");
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

/* Returns the number of messages that were put, dropped, sent to a topic or tried. In a dry run,
 * returns the number of messages that would have been put, dropped, sent or tried. */
static int64_t done_count(const struct ops_job *j) {
    return j->count['P'] + j->count['X'] + j->count['T'] + j->count['R'];
}

static int record(struct ops_job *j, const char *what, const char *state) {
    struct ops *o = j->o;
    job_script(j, what, j->number);
    lw_arg_i64(&o->cmd, j->number), lw_arg_text(&o->cmd, "state"), lw_arg_text(&o->cmd, state);
    if (strcmp(what, "end") == 0)
        lw_arg_text(&o->cmd, "who"), lw_arg_text(&o->cmd, j->who), lw_arg_text(&o->cmd, "words"),
            lw_arg_text(&o->cmd, j->words);
    lw_arg_text(&o->cmd, "done"), lw_arg_i64(&o->cmd, done_count(j));
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

static void publish(const struct ops *o) {
    struct ops_watch *w = o->watch;
    atomic_store(&w->scanned, o->scanned);
    atomic_store(&w->to_scan, o->to_scan);
    if (!o->job) return;
    atomic_store(&w->number, o->job->number);
    atomic_store(&w->taken, o->job->taken);
    atomic_store(&w->done, done_count(o->job));
    atomic_store(&w->problems, o->job->problems);
}

/* Reports the progress of the command to the watch. Returns -1 if the command has to stop. */
static int heed_watch(struct ops *o) {
    struct ops_watch *w = o->watch;
    publish(o);
    if (is_cancelled(o)) return lw_fail(&o->err, "cancelled");
    w->ran_out = w->until_ms && lw_boot_ms() >= w->until_ms;
    return w->ran_out ? lw_fail(&o->err, "timed out; narrow the filter") : 0;
}

int ops_tick(struct ops *o) {
    struct ops_job *j = o->job;
    if (o->watch && heed_watch(o)) return -1;
    if (j && j->dry) return 0;
    return j && lw_boot_ms() > j->renewed_ms + RENEW_MS ? record(j, "renew", "running") : 0;
}

/* The file must not exist yet, unless the job is resumed: a file or a link that somebody else has
 * put there could make the program append messages to any file, or show them to others. */
static int open_backup(struct ops_job *j) {
    enum { OLD = O_WRONLY | O_NOFOLLOW | O_APPEND | O_CLOEXEC, NEW = OLD | O_CREAT | O_EXCL };
    struct stat st;
    int fd = -1, why = 0;
    if (j->o->args.backup)
        snprintf(j->backup_name, sizeof j->backup_name, "%s", j->o->args.backup);
    else
        snprintf(j->backup_name, sizeof j->backup_name, "latchwork-%s-drop-%" PRId64 ".jsonl",
                 j->o->noun, j->number);
    if (j->o->args.resume) fd = open(j->backup_name, OLD | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid())) {
        close(fd);
        fd = -1, why = EPERM;
    } else if (fd < 0 && (!j->o->args.resume || errno == ENOENT)) {
        fd = open(j->backup_name, NEW, 0600);
    }
    if (fd < 0 && !why && errno == EEXIST && !j->o->args.backup) {
        /* Jobs are numbered from 1 again after Redis has lost its data. */
        snprintf(j->backup_name, sizeof j->backup_name,
                 "latchwork-%s-drop-%" PRId64 "-%" PRId64 ".jsonl", j->o->noun, j->number,
                 lw_wall_ms());
        fd = open(j->backup_name, NEW, 0600);
    }
    if (fd < 0 && !why) why = errno;
    if (fd >= 0 && (j->backup = fdopen(fd, "a"))) return 0;
    return lw_fail(&j->o->err,
                   "%s: cannot open the backup: %s; it must be a new file, or with --resume the "
                   "file of that job; nothing was dropped",
                   j->backup_name, strerror(why ? why : ENOMEM));
}

int ops_job_begin(struct ops *o, struct ops_job *j, enum ops_do what) {
    *j = (struct ops_job){.o = o,
                          .what = what,
                          .dry = !o->args.execute,
                          .any = o->args.again,
                          .begun_ms = lw_boot_ms(),
                          .batch = OPS_BATCH};
    if (o->args.rate > 0 && o->args.rate < 4.0 * OPS_BATCH)
        j->batch = o->args.rate < 8 ? 1 : (int)(o->args.rate / 4);
    /* with --stop-on-error each batch has one message, so that no message is processed after the
     * first failure */
    if (o->args.stop_on_error) j->batch = 1;
    const char *term = getenv("TERM");
    j->progress = !o->quiet && isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return lw_fail(&o->err, "getrandom failed: %s", strerror(errno));
    snprintf(j->token, sizeof j->token, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    int64_t last;
    if (last_number(o, &last)) return -1;
    j->number = o->args.resume ? o->args.resume : last + 1;
    j->words = words_of(o);
    int bad = j->dry ? 0 : start(j, j->words, last);
    /* o->job is also set in a dry run, so that the watch can show the job's counts */
    if (o->watch && !bad) o->job = j;
    struct sigaction act = {.sa_handler = on_signal};
    if (!o->quiet) {
        sigaction(SIGINT, &act, NULL);
        sigaction(SIGTERM, &act, NULL);
    }
    bool backup = what != OPS_PUT && !o->args.no_backup;
    if (!bad && !j->dry && backup && (bad = open_backup(j))) record(j, "end", "failed");
    if (!bad) return 0;
    o->job = NULL;
    free(j->words);
    j->words = NULL;
    return bad;
}

/* --- what became of each ---------------------------------------------------------------------- */

static const char *word(const struct ops_job *j, char letter) {
    switch (letter) {
    case 'P': return j->dry ? "would be put" : "put";
    case 'A': return j->o->verb[0] == 'i' ? "there or finished already" : "put already";
    case 'D':
        return j->what == OPS_PUT ? "left out: done (--again takes it)"
                                  : "left out: finished before";
    case 'E': return "left out: replayed or edited before (--again takes it)";
    case 'U': return "left out: not finished yet; it runs without a replay";
    case 'G': return "left out: its dead letter no longer exists";
    case 'B': return "not put: a name in Redis holds another type";
    case 'X': return j->dry ? "would be dropped" : "dropped";
    case 'N': return "left out: it no longer waits";
    case 'T': return j->dry ? "would be sent" : "sent";
    case 'R': return j->dry ? "would be tried" : "tried";
    case 'H':
        return "not dropped: its lane is held, so a handler may have it; try again, or pause the "
               "lane first";
    default: return "?";
    }
}

static bool is_problem(char letter) { return letter == 'B' || letter == 'H'; }

static void tell(struct ops_job *j, const char *identity, const char *what, bool line,
                 bool problem) {
    const struct ops_watch *w = j->o->watch;
    if (w) {
        if (w->told) w->told(w->ctx, identity, what, problem);
    } else if (j->o->args.json) {
        json_t *o = json_pack("{ss ss}", "identity", identity, "result", what);
        if (o && !j->dry) json_object_set_new(o, "job", json_integer(j->number));
        if (o) ops_put_json(o);
    } else if (line) {
        printf("%s: %s\n", identity, what);
    }
}

static const char *did_word(const struct ops_job *j) {
    return j->what != OPS_PUT       ? "dropped"
           : j->o->args.try_handler ? "tried"
           : j->o->args.to_topic    ? "sent"
                                    : "put";
}

/* Returns the progress of the job, from 0 to 1. There are two measures: the fraction of the
 * messages that was read, and the fraction of --limit that was reached. The larger one is
 * returned. */
static double part_done(const struct ops_job *j) {
    const struct ops *o = j->o;
    double read = o->to_scan > 0 ? (double)o->scanned / (double)o->to_scan : 0;
    double taken = o->args.limit > 0 ? (double)j->taken / (double)o->args.limit : 0;
    double part = read > taken ? read : taken;
    return part < 1 ? part : 1;
}

static void progress(struct ops_job *j, bool last) {
    int64_t now = lw_boot_ms();
    if (!j->progress || (now < j->told_ms + TOLD_MS && !last)) return;
    j->told_ms = now;
    double seconds = (double)(now - j->begun_ms) / 1000, part = last ? 1 : part_done(j);
    int64_t did = done_count(j);
    char age[16], bar[BAR + 1];
    for (int i = 0; i < BAR; i++) bar[i] = i < (int)(part * BAR) ? '#' : '.';
    bar[BAR] = 0;
    fprintf(stderr, "\r[%s] %3d %%  %" PRId64 " %s%s, %" PRId64 " not, %.0f/s", bar,
            (int)(part * 100), did, j->dry ? "would be " : "", did_word(j), j->taken - did,
            seconds > 0 ? (double)j->taken / seconds : 0);
    if (!last && part > 0.01)
        fprintf(stderr, ", %s to go", ops_age((int64_t)(seconds * 1000 * (1 - part) / part), age));
    fputs(last ? "\033[K\n" : "\033[K", stderr);
}

/* Counts one more line about a message, and returns true if the number of lines is still below the
 * limit. With --json or a watch, tell() ignores the result and reports each message. */
static bool has_line(struct ops_job *j) {
    if (j->lines == LINES_MAX) return false;
    if (++j->lines == LINES_MAX && !j->o->args.json && !j->o->watch)
        puts("... (use --json to see all)");
    return j->lines < LINES_MAX;
}

static int count(struct ops_job *j, const struct ops_item *it, char letter) {
    j->count[(unsigned char)letter & 127]++;
    bool line = (j->dry || (letter != 'P' && letter != 'X')) && has_line(j);
    tell(j, it->identity, word(j, letter), line, is_problem(letter));
    if (!is_problem(letter)) return 0;
    j->problems++;
    if (j->o->args.stop_on_error) j->stopped = true;
    return 0;
}

int ops_job_problem(struct ops_job *j, const char *identity, const char *why) {
    j->problems++;
    if (j->o->args.json)
        tell(j, identity, why, true, true);
    else
        fprintf(stderr, "%s: %s\n", identity, why);
    return j->o->args.stop_on_error ? 1 : 0;
}

int ops_job_done(struct ops_job *j, const char *identity, char letter, const char *more) {
    char text[800];
    snprintf(text, sizeof text, "%s%s%s", word(j, letter), more[0] ? ": " : "", more);
    j->count[(unsigned char)letter & 127]++;
    tell(j, identity, text, letter != 'T' || has_line(j), false);
    progress(j, false);
    return j->stopped || is_interrupted(j);
}

/* --- batches ---------------------------------------------------------------------------------- */

static bool is_open(const struct ops_item *it, const struct ops_shard *sh) {
    return it->shard == sh && !it->letter;
}

static int items_of(const struct ops_job *j, const struct ops_shard *sh) {
    int n = 0;
    for (int i = 0; i < j->n; i++) n += is_open(&j->item[i], sh);
    return n;
}

static int letters(struct ops_job *j, struct ops_shard *sh, const redisReply *r) {
    int n = items_of(j, sh);
    if (strcmp(r->str, "NOEPOCH") == 0)
        return lw_fail(&j->o->err,
                       "shard %d is empty: no worker has joined it yet, so it is not known which "
                       "messages are done; start the workers first",
                       sh->index);
    if (strcmp(r->str, "QUARANTINE") == 0)
        return lw_fail(
            &j->o->err,
            "shard %d is in quarantine after a new epoch began; try again in some seconds",
            sh->index);
    if ((int)r->len != n || !strpbrk(r->str, "PADEUGBXNH"))
        return ops_malformed(j->o, sh, r, "%d letters, not all of them '-'", n);
    n = 0;
    for (int i = 0; i < j->n; i++) {
        if (!is_open(&j->item[i], sh)) continue;
        char letter = r->str[n++];
        /* the script did not examine this message, so the next call sends the message again */
        if (letter == '-') continue;
        count(j, &j->item[i], j->item[i].letter = letter);
    }
    return 0;
}

static void build_put(struct ops_job *j, struct ops_shard *sh, int n) {
    struct ops *o = j->o;
    ops_script(o, &lw_op_put, 5 + n);
    ops_key(o, sh, "epoch", none), ops_key(o, sh, "lanes", none), ops_key(o, sh, "floor", none),
        ops_key(o, sh, "ready", none);
    ops_key(o, sh, "dead", none);
    for (int i = 0; i < j->n; i++)
        if (is_open(&j->item[i], sh)) ops_key(o, sh, "lock:", j->item[i].lane);
    lw_arg_i64(&o->cmd, o->c->lock.ttl_ms / 2), lw_arg_text(&o->cmd, j->any ? "any" : "undone"),
        lw_arg_text(&o->cmd, j->dry ? "dry" : "");
    for (int i = 0; i < j->n; i++)
        if (is_open(&j->item[i], sh)) {
            lw_arg(&o->cmd, lw_bytes(j->item[i].envelope.p, j->item[i].envelope.n));
            lw_arg_text(&o->cmd, j->item[i].tp), lw_arg_text(&o->cmd, j->item[i].entry);
        }
}

static void build_drop(struct ops_job *j, struct ops_shard *sh, int n) {
    struct ops *o = j->o;
    ops_script(o, &lw_op_drop, 3 + n);
    ops_key(o, sh, "epoch", none), ops_key(o, sh, "lanes", none), ops_key(o, sh, "floor", none);
    for (int i = 0; i < j->n; i++)
        if (is_open(&j->item[i], sh)) ops_key(o, sh, "lock:", j->item[i].lane);
    lw_arg_i64(&o->cmd, OPS_AHEAD), lw_arg_text(&o->cmd, j->dry ? "dry" : "");
    for (int i = 0; i < j->n; i++)
        if (is_open(&j->item[i], sh))
            lw_arg_text(&o->cmd, j->item[i].tp), lw_arg_i64(&o->cmd, j->item[i].offset);
}

static int send_script(struct ops_job *j, struct ops_shard *sh, int n) {
    if (j->what == OPS_PUT)
        build_put(j, sh, n);
    else
        build_drop(j, sh, n);
    redisReply *r = ops_ask_for(j->o, sh, REDIS_REPLY_STRING);
    if (!r) return -1;
    int bad = letters(j, sh, r);
    freeReplyObject(r);
    return bad;
}

/* Deletes dead letters one by one, because XDEL with a single ID says whether this dead letter
 * existed. A dry run deletes nothing. */
static int send_remove(struct ops_job *j, struct ops_shard *sh) {
    for (int i = 0; i < j->n; i++) {
        if (!is_open(&j->item[i], sh)) continue;
        long long gone = 1;
        ops_begin(j->o, "XDEL"), ops_key(j->o, sh, "dead", none),
            lw_arg_text(&j->o->cmd, j->item[i].entry);
        if (!j->dry && ops_ask_int(j->o, sh, &gone)) return -1;
        count(j, &j->item[i], j->item[i].letter = gone ? 'X' : 'G');
    }
    return 0;
}

static void pace(struct ops_job *j) {
    if (j->o->args.rate <= 0 || j->dry) return;
    int64_t due = j->begun_ms + (int64_t)((double)j->taken / j->o->args.rate * 1000);
    while (lw_boot_ms() < due && !is_interrupted(j)) {
        int64_t left = due - lw_boot_ms();
        lw_sleep_ms(left < 100 ? left : 100);
        if (ops_tick(j->o)) return;
    }
}

/* For each message of the batch for which the script answered `letter` (0: for all messages),
 * writes the message's line to the backup file. Then waits until the lines are on the disk. */
static int put_backup(struct ops_job *j, char letter) {
    bool ok = true;
    for (int i = 0; i < j->n; i++)
        if (!letter || j->item[i].letter == letter)
            ok = ok && fprintf(j->backup, "%s\n", j->item[i].backup) >= 0;
    if (ok && !fflush(j->backup) && !fsync(fileno(j->backup))) return 0;
    return lw_fail(&j->o->err, "%s: cannot be written; stopped", j->backup_name);
}

/* Removes from the backup those messages of the batch that were not dropped. Such a message has run
 * or will run, and would run a second time if the backup were imported. */
static int correct_backup(struct ops_job *j, off_t from) {
    int n = 0;
    for (int i = 0; i < j->n; i++) n += j->item[i].letter == 'X';
    if (n == j->n) return 0;
    if (ftruncate(fileno(j->backup), from))
        return lw_fail(&j->o->err, "%s: cannot be written; stopped", j->backup_name);
    return put_backup(j, 'X');
}

static void free_items(struct ops_job *j) {
    for (int i = 0; i < j->n; i++) {
        free((void *)(uintptr_t)j->item[i].lane.p);
        lw_buf_free(&j->item[i].envelope);
        free(j->item[i].backup);
    }
    j->n = 0;
    j->bytes = 0;
}

static int flush(struct ops_job *j) {
    int bad = 0;
    off_t backup_end = 0;
    if (j->backup) {
        fseeko(j->backup, 0, SEEK_END);
        backup_end = ftello(j->backup);
        bad = put_backup(j, 0);
    }
    for (int s = 0; !bad && s < j->o->c->redis.shards; s++) {
        for (int n; !bad && (n = items_of(j, &j->o->shards[s])) > 0;)
            bad = j->what == OPS_REMOVE ? send_remove(j, &j->o->shards[s])
                                        : send_script(j, &j->o->shards[s], n);
    }
    if (!bad && j->backup) bad = correct_backup(j, backup_end);
    free_items(j);
    progress(j, false);
    if (!bad) bad = ops_tick(j->o);
    if (!bad) pace(j);
    if (!bad && j->o->err.text[0]) bad = -1;
    return bad ? bad : j->stopped || is_interrupted(j);
}

static struct ops_item *new_item(struct ops_job *j, struct lw_bytes lane) {
    struct ops_item *it = &j->item[j->n++];
    *it = (struct ops_item){.shard = ops_shard_of(j->o, lane),
                            .lane = lw_bytes(lw_memdup(lane.p, lane.n), lane.n)};
    j->taken++;
    return it;
}

static int taken(struct ops_job *j) {
    bool enough = j->o->args.limit > 0 && j->taken >= j->o->args.limit;
    int stop =
        j->n == j->batch || j->bytes > BATCH_BYTES || enough || is_interrupted(j) ? flush(j) : 0;
    return stop ? stop : enough;
}

int ops_job_take(struct ops_job *j) {
    j->taken++;
    pace(j);
    if (ops_tick(j->o) || j->o->err.text[0]) return -1;
    return (j->o->args.limit > 0 && j->taken >= j->o->args.limit) || is_interrupted(j);
}

static void name_part(const struct lw_envelope *e, bool with_replay, char *out, size_t size) {
    int n = snprintf(out, size, "%.*s:%d", (int)e->topic.n, e->topic.p, (int)e->partition);
    if (with_replay && e->replay) snprintf(out + n, size - (size_t)n, "#%" PRId64, e->replay);
}

int ops_job_put(struct ops_job *j, const struct lw_envelope *e, struct lw_bytes lane,
                bool read_again, const struct ops_message *dead) {
    struct ops_item *it = new_item(j, lane);
    lw_envelope_encode(e, &it->envelope);
    j->bytes += it->envelope.n;
    ops_identity(e, it->identity, sizeof it->identity);
    if (read_again) name_part(e, false, it->tp, sizeof it->tp);
    if (dead) ops_dead_entry(dead, it->entry);
    return taken(j);
}

int ops_job_drop(struct ops_job *j, const struct ops_message *m) {
    char *line = NULL;
    if (j->backup) {
        json_t *o = ops_message_json(m, SIZE_MAX);
        line = json_dumps(o, JSON_COMPACT);
        json_decref(o);
        if (!line)
            return lw_fail(&j->o->err, "%s: out of memory for the backup; stopped", j->backup_name);
    }
    struct ops_item *it = new_item(j, m->lane.p ? m->lane : none);
    it->backup = line;
    it->shard = &j->o->shards[m->shard];
    if (m->bad)
        snprintf(it->identity, sizeof it->identity, "%s", m->id[0] ? m->id : "(not a message)");
    else
        ops_identity(&m->e, it->identity, sizeof it->identity);
    if (m->id[0]) {
        ops_dead_entry(m, it->entry);
    } else {
        name_part(&m->e, true, it->tp, sizeof it->tp);
        it->offset = m->e.offset;
    }
    return taken(j);
}

/* --- the end ---------------------------------------------------------------------------------- */

static void summary(struct ops_job *j, const char *state) {
    static const char all[] = "PXTRADEUGNHB";
    if (j->o->watch) return;
    if (j->o->args.json) {
        json_t *counts = json_object();
        for (const char *p = all; *p; p++)
            if (j->count[(int)*p])
                json_object_set_new(counts, word(j, *p), json_integer(j->count[(int)*p]));
        json_t *o = json_pack("{ss sb ss sI sI so}", "type", "summary", "dry_run", (int)j->dry,
                              "state", state, "messages", (json_int_t)j->taken, "problems",
                              (json_int_t)j->problems, "results", counts);
        if (!j->dry) json_object_set_new(o, "job", json_integer(j->number));
        ops_put_json(o);
        return;
    }
    printf("%s%" PRId64 " messages", j->dry ? "dry run: " : "", j->taken);
    for (const char *p = all; *p; p++)
        if (j->count[(int)*p]) printf("; %" PRId64 " %s", j->count[(int)*p], word(j, *p));
    if (j->dry)
        puts(done_count(j) ? "; use --execute to apply" : "; nothing to do");
    else
        printf("; job %" PRId64 ": %s\n", j->number, state);
    if (j->backup) printf("backup of the dropped messages: %s\n", j->backup_name);
}

/* Reports the messages that the command line names and that were not found. Call this function only
 * after everything was read. If a limit or an error has ended the search, a message may exist
 * without having been reached. */
static void tell_missing(struct ops_job *j) {
    bool dead = strcmp(j->o->noun, "dead") == 0, kafka = j->what == OPS_PUT && !dead;
    int n = ops_tell_missing(j->o, dead ? OPS_NO_LETTER : kafka ? OPS_NO_RECORD : OPS_NOT_WAITING);
    j->problems += n;
    for (int i = 0; n && j->o->args.json && i < j->o->args.n_words; i++)
        if (j->o->met[i] != OPS_MET) tell(j, j->o->args.words[i], "not found", false, true);
}

int ops_job_end(struct ops_job *j, int failed) {
    if (failed >= 0 && j->n) failed = flush(j) < 0 ? -1 : failed;
    free_items(j);
    if (failed == 0 && !is_interrupted(j) && !j->stopped) tell_missing(j);
    if (j->o->watch) publish(j->o);
    j->o->job = NULL;
    const char *state = is_cancelled(j->o) ? "cancelled"
                        : failed < 0       ? "failed"
                        : interrupted      ? "interrupted"
                        : j->stopped       ? "stopped at an error"
                                           : "finished";
    if (j->taken && j->progress) progress(j, true);
    if (!j->dry && !(failed < 0 && strstr(j->o->err.text, "another one began"))) {
        struct lw_err first = j->o->err;
        if (record(j, "end", state) && failed >= 0) failed = -1;
        if (first.text[0]) j->o->err = first;
    }
    summary(j, state);
    bool resumable = !j->o->args.to_topic && !j->o->args.try_handler;
    if (!j->dry && !j->o->quiet && resumable && strcmp(state, "finished") != 0)
        fprintf(stderr, "to continue, repeat the command with --resume %" PRId64 "\n", j->number);
    if (j->backup && fclose(j->backup)) failed = -1;
    free(j->words);
    return failed < 0 || j->problems || is_interrupted(j) ? OPS_FAILED : 0;
}
