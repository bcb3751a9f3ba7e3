/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/job.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RENEW_MS = 5000, BATCH_BYTES = 128 << 10 };

static volatile sig_atomic_t interrupted;
static void on_signal(int sig) {
    (void)sig;
    interrupted = 1;
}

static const struct lw_bytes none = {"", 0};

static bool is_cancelled(const struct ops *o) { return o->watch && atomic_load(&o->watch->cancel); }
bool ops_job_interrupted(const struct ops_job *j) { return interrupted || is_cancelled(j->o); }

/* --- the watch, and the lease ----------------------------------------------------------------- */

static void publish(const struct ops *o) {
    struct ops_watch *w = o->watch;
    atomic_store(&w->scanned, o->scanned);
    atomic_store(&w->to_scan, o->to_scan);
    if (!o->job) return;
    atomic_store(&w->number, o->job->number);
    atomic_store(&w->taken, o->job->taken);
    atomic_store(&w->done, ops_job_done_count(o->job));
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
    return j && lw_boot_ms() > j->renewed_ms + RENEW_MS ? ops_job_record(j, "renew", "running") : 0;
}

/* --- the backup of what is dropped ------------------------------------------------------------ */

enum { APPEND = O_WRONLY | O_NOFOLLOW | O_APPEND | O_CLOEXEC };

/* Opens the file of an earlier run of this job. */
static int open_old(const char *name) {
    struct stat st;
    int fd = open(name, APPEND | O_NONBLOCK);
    if (fd < 0 || (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid())) return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

/* Opens a file that must not exist yet: a file or a link that somebody else has put there could
 * make the program append messages to any file, or show them to others. */
static int open_new(const char *name) { return open(name, APPEND | O_CREAT | O_EXCL, 0600); }

static int open_backup(struct ops_job *j) {
    const struct ops_args *a = &j->o->args;
    char *name = j->backup_name;
    size_t size = sizeof j->backup_name;
    if (a->backup)
        snprintf(name, size, "%s", a->backup);
    else
        snprintf(name, size, "latchwork-%s-drop-%" PRId64 ".jsonl", j->o->noun, j->number);
    int fd = a->resume ? open_old(name) : -1;
    if (!a->resume || (fd < 0 && errno == ENOENT)) fd = open_new(name);
    if (fd < 0 && errno == EEXIST && !a->backup) {
        /* Jobs are numbered from 1 again after Redis has lost its data. */
        snprintf(name, size, "latchwork-%s-drop-%" PRId64 "-%" PRId64 ".jsonl", j->o->noun,
                 j->number, lw_wall_ms());
        fd = open_new(name);
    }
    if (fd >= 0 && (j->backup = fdopen(fd, "a"))) return 0;
    return lw_fail(&j->o->err,
                   "%s: cannot open the backup: %s; it must be a new file, or with --resume the "
                   "file of that job; nothing was dropped",
                   name, strerror(errno));
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

/* --- beginning -------------------------------------------------------------------------------- */

/* Returns how many messages one call of a script gets. With --rate, a batch is at most a quarter of
 * a second. With --stop-on-error it is one message, so that none is processed after the first
 * failure. */
static int batch_of(const struct ops_args *a) {
    if (a->stop_on_error) return 1;
    if (a->rate <= 0 || a->rate >= 4.0 * OPS_BATCH) return OPS_BATCH;
    return a->rate < 8 ? 1 : (int)(a->rate / 4);
}

static bool shows_progress(const struct ops *o) {
    const char *term = getenv("TERM");
    return !o->quiet && isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

static void catch_signals(void) {
    struct sigaction act = {.sa_handler = on_signal};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
}

int ops_job_begin(struct ops *o, struct ops_job *j, enum ops_do what) {
    *j = (struct ops_job){.o = o,
                          .what = what,
                          .dry = !o->args.execute,
                          .any = o->args.again,
                          .begun_ms = lw_boot_ms(),
                          .batch = batch_of(&o->args),
                          .progress = shows_progress(o)};
    bool backup = !j->dry && what != OPS_PUT && !o->args.no_backup;
    int bad = ops_job_start(j);
    if (!o->quiet) catch_signals();
    if (!bad && backup && (bad = open_backup(j))) ops_job_record(j, "end", "failed");
    if (bad) {
        o->job = NULL;
        free(j->words);
        j->words = NULL;
    } else if (o->watch) {
        o->job = j; /* in a dry run, too, so that the watch can show the job's counts */
    }
    return bad;
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
        ops_job_count(j, &j->item[i], j->item[i].letter = letter);
    }
    return 0;
}

static void build_put(struct ops_job *j, struct ops_shard *sh, int n) {
    struct ops *o = j->o;
    ops_script(o, &lw_op_put, 5 + n);
    ops_keys(o, sh, "epoch", "lanes", "floor", "ready", "dead");
    for (int i = 0; i < j->n; i++)
        if (is_open(&j->item[i], sh)) ops_key(o, sh, "lock:", j->item[i].lane);
    lw_arg_i64(&o->cmd, o->c->lock.ttl_ms / 2),
        ops_words(o, j->any ? "any" : "undone", j->dry ? "dry" : "");
    for (int i = 0; i < j->n; i++)
        if (is_open(&j->item[i], sh)) {
            lw_arg(&o->cmd, lw_bytes(j->item[i].envelope.p, j->item[i].envelope.n));
            ops_words(o, j->item[i].tp, j->item[i].entry);
        }
}

static void build_drop(struct ops_job *j, struct ops_shard *sh, int n) {
    struct ops *o = j->o;
    ops_script(o, &lw_op_drop, 3 + n);
    ops_keys(o, sh, "epoch", "lanes", "floor");
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
        ops_begin(j->o, "XDEL"), ops_keys(j->o, sh, "dead"),
            lw_arg_text(&j->o->cmd, j->item[i].entry);
        if (!j->dry && ops_ask_int(j->o, sh, &gone)) return -1;
        ops_job_count(j, &j->item[i], j->item[i].letter = gone ? 'X' : 'G');
    }
    return 0;
}

static void pace(struct ops_job *j) {
    if (j->o->args.rate <= 0 || j->dry) return;
    int64_t due = j->begun_ms + (int64_t)((double)j->taken / j->o->args.rate * 1000);
    while (lw_boot_ms() < due && !ops_job_interrupted(j)) {
        int64_t left = due - lw_boot_ms();
        lw_sleep_ms(left < 100 ? left : 100);
        if (ops_tick(j->o)) return;
    }
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
    ops_job_progress(j, false);
    if (!bad) bad = ops_tick(j->o);
    if (!bad) pace(j);
    if (!bad && j->o->err.text[0]) bad = -1;
    return bad ? bad : j->stopped || ops_job_interrupted(j);
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
    int stop = j->n == j->batch || j->bytes > BATCH_BYTES || enough || ops_job_interrupted(j)
                   ? flush(j)
                   : 0;
    return stop ? stop : enough;
}

int ops_job_take(struct ops_job *j) {
    j->taken++;
    pace(j);
    if (ops_tick(j->o) || j->o->err.text[0]) return -1;
    return (j->o->args.limit > 0 && j->taken >= j->o->args.limit) || ops_job_interrupted(j);
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

static const char *end_state(const struct ops_job *j, int failed) {
    if (is_cancelled(j->o)) return "cancelled";
    if (failed < 0) return "failed";
    if (interrupted) return "interrupted";
    return j->stopped ? "stopped at an error" : "finished";
}

/* Writes the end to the job's record, unless the record belongs to another job by now. The first
 * error stays the error of the command. */
static int record_end(struct ops_job *j, const char *state, int failed) {
    if (failed < 0 && strstr(j->o->err.text, "another one began")) return 0;
    struct lw_err first = j->o->err;
    int bad = ops_job_record(j, "end", state);
    if (first.text[0]) j->o->err = first;
    return bad;
}

int ops_job_end(struct ops_job *j, int failed) {
    struct ops *o = j->o;
    if (failed >= 0 && j->n) failed = flush(j) < 0 ? -1 : failed;
    free_items(j);
    if (failed == 0 && !ops_job_interrupted(j) && !j->stopped) ops_job_tell_missing(j);
    if (o->watch) publish(o);
    o->job = NULL;
    const char *state = end_state(j, failed);
    if (j->taken && j->progress) ops_job_progress(j, true);
    if (!j->dry && record_end(j, state, failed)) failed = -1;
    ops_job_summary(j, state);
    bool resumable = !j->dry && !o->quiet && !o->args.to_topic && !o->args.try_handler;
    if (resumable && strcmp(state, "finished") != 0)
        fprintf(stderr, "to continue, repeat the command with --resume %" PRId64 "\n", j->number);
    if (j->backup && fclose(j->backup)) failed = -1;
    free(j->words);
    return failed < 0 || j->problems || ops_job_interrupted(j) ? OPS_FAILED : 0;
}
