/* SPDX-License-Identifier: Apache-2.0 */
/* What a job says: the result for each message, the line that shows the progress, and the summary;
 * to a terminal, as JSON, or to the watch of the API. */
#include "base/clock.h"
#include "ops/job.h"

#include <inttypes.h>
#include <string.h>

enum { TOLD_MS = 200, LINES_MAX = 20, BAR = 20 };

int64_t ops_job_done_count(const struct ops_job *j) {
    return j->count['P'] + j->count['X'] + j->count['T'] + j->count['R'];
}

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

void ops_job_progress(struct ops_job *j, bool last) {
    int64_t now = lw_boot_ms();
    if (!j->progress || (now < j->told_ms + TOLD_MS && !last)) return;
    j->told_ms = now;
    double seconds = (double)(now - j->begun_ms) / 1000, part = last ? 1 : part_done(j);
    int64_t did = ops_job_done_count(j);
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

void ops_job_count(struct ops_job *j, const struct ops_item *it, char letter) {
    j->count[(unsigned char)letter & 127]++;
    bool line = (j->dry || (letter != 'P' && letter != 'X')) && has_line(j);
    tell(j, it->identity, word(j, letter), line, is_problem(letter));
    if (!is_problem(letter)) return;
    j->problems++;
    if (j->o->args.stop_on_error) j->stopped = true;
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
    ops_job_progress(j, false);
    return j->stopped || ops_job_interrupted(j);
}

void ops_job_summary(struct ops_job *j, const char *state) {
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
        puts(ops_job_done_count(j) ? "; use --execute to apply" : "; nothing to do");
    else
        printf("; job %" PRId64 ": %s\n", j->number, state);
    if (j->backup) printf("backup of the dropped messages: %s\n", j->backup_name);
}

void ops_job_tell_missing(struct ops_job *j) {
    bool dead = strcmp(j->o->noun, "dead") == 0, kafka = j->what == OPS_PUT && !dead;
    int n = ops_tell_missing(j->o, dead ? OPS_NO_LETTER : kafka ? OPS_NO_RECORD : OPS_NOT_WAITING);
    j->problems += n;
    for (int i = 0; n && j->o->args.json && i < j->o->args.n_words; i++)
        if (j->o->met[i] != OPS_MET) tell(j, j->o->args.words[i], "not found", false, true);
}
