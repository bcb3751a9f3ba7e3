/* SPDX-License-Identifier: Apache-2.0 */
/* The demo kills a worker when half of the messages are done. Afterwards the demo shows and checks
 * figures. If all of them are right, every message was finished although a worker was killed. */
#include "cli/dev/private.h"

#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* --- the plot --------------------------------------------------------------------------------- */

static int victim(const struct dev_view *v) {
    for (int i = 0; i < v->o->workers; i++)
        if (atomic_load(&v->shared->workers[i].pid) > 0) return i;
    return -1;
}

/* Kills a worker when half of the messages are done. At that moment the worker
 * still has messages of a burst, so it leaves leases and unsettled messages behind. */
static void strike(struct dev_demo *d, struct dev_view *v) {
    int64_t done = (int64_t)atomic_load(&v->shared->done);
    int i = victim(v);
    if (done < v->o->messages / 2 || i < 0) return;
    int pid = atomic_load(&v->shared->workers[i].pid);
    int64_t at_us = lw_boot_us();
    if (kill(pid, SIGKILL)) return;
    d->killed = (struct dev_killed){.pid = pid, .at_us = at_us};
    d->worker = i;
    char n[32];
    dev_view_say(v, "worker %d (process %d) was killed with -9 after %s messages", i, pid,
                 dev_count(done, n));
}

static void await_replacement(struct dev_demo *d, struct dev_view *v) {
    int pid = atomic_load(&v->shared->workers[d->worker].pid);
    if (pid <= 0 || pid == d->killed.pid) return;
    d->replaced = true;
    dev_view_say(v,
                 "worker %d was replaced by process %d; the group takes 6 s to miss the dead one",
                 d->worker, pid);
}

static int64_t not_committed(const struct dev_shared *s) {
    int64_t n = 0;
    for (int t = 0; t < DEV_TOPICS; t++)
        for (int p = 0; p < DEV_PARTITIONS; p++) {
            int64_t end = atomic_load(&s->ends[t][p]), committed = atomic_load(&s->committed[t][p]);
            n += end > committed ? end - committed : committed - end;
        }
    return n;
}

/* Does the next step of the demo. The last burst of messages is produced only after a new worker
 * has replaced the killed one and all earlier messages are committed. By then the new worker has
 * partitions, so it gets messages of the last burst. */
void dev_demo_tick(struct dev_demo *d, struct dev_view *v) {
    if (!d->killed.pid)
        strike(d, v);
    else if (!d->replaced)
        await_replacement(d, v);
    else if (not_committed(v->shared) == 0)
        atomic_store(&v->shared->last, true);
}

bool dev_demo_finished(const struct dev_view *v) {
    return atomic_load(&v->shared->produced) == v->o->messages && not_committed(v->shared) == 0;
}

/* --- the table -------------------------------------------------------------------------------- */

enum { ANY = -1 };

struct figure {
    const char *name;
    /* `is` is the measured value, and `must_be` the expected value. If must_be is ANY, the figure
     * is shown but not checked. */
    int64_t is, must_be;
    char note[160];
};

struct facts {
    struct dev_audit audit;
    struct dev_rows rows;
    int64_t missing;
    struct lw_err err;
};

static void gather(struct facts *f, const struct dev_demo *d, const struct dev_view *v) {
    struct dev_end ends[DEV_TOPICS * DEV_PARTITIONS];
    int n = 0;
    for (int t = 0; t < DEV_TOPICS; t++)
        for (int p = 0; p < DEV_PARTITIONS; p++)
            ends[n++] = (struct dev_end){dev_topics[t], p, atomic_load(&v->shared->ends[t][p])};
    if (dev_audit_read(&f->audit, v->home->journal, d->killed, ends, n, &f->err)) return;
    if (dev_rows_read(v->home, &f->rows, &f->err)) return;
    f->missing = dev_rows_missing(v->home, atomic_load(&v->shared->orders), &f->err);
}

static bool wrong(const struct figure *f) { return f->must_be != ANY && f->is != f->must_be; }

/* Returns true if the figure must not be shown. A figure whose name begins with "(" is shown only
 * if its value is wrong. */
static bool hidden(const struct figure *f) { return f->name[0] == '(' && !wrong(f); }

static int print_figures(const struct figure *figures, size_t n) {
    int bad = 0;
    char is[32], must[32];
    putchar('\n');
    for (size_t i = 0; i < n; i++)
        if (!hidden(&figures[i]))
            printf("  %-20s %10s   %s\n", figures[i].name, dev_count(figures[i].is, is),
                   figures[i].note);
    putchar('\n');
    fflush(stdout);
    for (size_t i = 0; i < n; i++) {
        if (!wrong(&figures[i])) continue;
        fprintf(stderr, "WRONG: %s is %s and must be %s\n", figures[i].name,
                dev_count(figures[i].is, is), dev_count(figures[i].must_be, must));
        bad++;
    }
    return bad;
}

static int print_table(const struct facts *f, const struct dev_demo *d, const struct dev_view *v) {
    const struct dev_audit *a = &f->audit;
    int64_t all = v->o->messages, keys = all / v->o->every;
    struct figure figures[] = {
        {"messages produced", atomic_load(&v->shared->produced), all,
         "to two topics of four partitions"},
        {"primary keys", atomic_load(&v->shared->orders), keys,
         "each of them in both topics and any partition"},
        {"rows inserted", f->rows.rows, keys, "one for each primary key"},
        {"duplicates ignored", f->rows.ignored, all - keys,
         "counted in the transactions that met them"},
        {"parked", (int64_t)atomic_load(&v->shared->parked), ANY,
         "came while another worker had their key, and waited in Redis"},
        {"drained", (int64_t)atomic_load(&v->shared->drained), ANY,
         "came from a waiting list, and ended"},
        {"re-runs", a->reruns, ANY, ""},
        {"overlaps", a->overlaps, 0, "two handlers at work on one key at the same time"},
        {"lost", f->missing + a->unfinished + not_committed(v->shared), 0,
         "keys without a row, messages not done, offsets not committed"},
        {"misordered", a->misordered, 0, "messages of a key and partition done out of order"},
        {"(inserted, by count)", f->rows.inserted, keys, ""},
        {"(workers killed)", d->killed.pid != 0, 1, ""},
        {"(workers replaced)", d->replaced, 1, ""},
        {"(dead letters)", (int64_t)atomic_load(&v->shared->dead), 0, ""},
        {"(failed attempts)", a->failed, 0, ""},
        {"(runs without an end)", a->open, 0, ""},
    };
    snprintf(figures[6].note, sizeof figures[6].note,
             "worker %d was killed before it could report them; %" PRId64 " were in its handler",
             d->worker, a->cut);
    return print_figures(figures, sizeof figures / sizeof *figures);
}

int dev_demo_judge(const struct dev_demo *d, const struct dev_view *v) {
    struct facts f = {0};
    gather(&f, d, v);
    int bad = 0;
    if (f.err.text[0]) {
        fprintf(stderr, "WRONG: cannot read the figures: %s\n", f.err.text);
        bad = 1;
    } else {
        bad = print_table(&f, d, v);
        if (bad && f.audit.examples.n) fwrite(f.audit.examples.p, 1, f.audit.examples.n, stderr);
    }
    dev_audit_free(&f.audit);
    return bad;
}
