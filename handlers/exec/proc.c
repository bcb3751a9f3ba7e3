/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/exec/proc.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "handlers/exec/private.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utlist.h>

enum { LAST_WORDS_MS = 200, BACKOFF_MS = 100, BACKOFF_MAX_MS = 5000 };

/* --- starting and ending ---------------------------------------------------------------------- */

static void reset(struct proc *p) {
    lw_buf_clear(&p->said.text);
    lw_buf_clear(&p->side.text);
    lw_buf_clear(&p->out);
    p->said.scanned = p->side.scanned = p->out_at = 0;
    p->hello = p->answered = p->deaf = p->polled = false;
    p->sent = 0;
    p->n_ended = 0;
    p->blamed = NULL;
    p->innocent = p->own_fault = false;
    p->reason[0] = p->how[0] = p->last_words[0] = '\0';
}

int proc_spawn(struct proc *p, struct lw_err *err) {
    struct lw_handler *h = p->h;
    if (lw_child_spawn(&p->child, h->argv, h->envp, &h->warden.groups[p->index], err)) return -1;
    char label[48];
    snprintf(label, sizeof label, "handler %d[%d]", p->index, (int)p->child.pid);
    lw_last_words_drop(p->words);
    p->words = lw_stderr_log_add(h->log, p->child.err, label);
    p->child.err = -1;
    reset(p);
    return 0;
}

void proc_read_last_words(struct proc *p) {
    p->last_words[0] = '\0';
    if (p->words) lw_last_words_get(p->words, LAST_WORDS_MS, p->last_words, sizeof p->last_words);
}

void proc_add_last_words(const struct proc *p, char *text, size_t size) {
    size_t n = strlen(text);
    if (p->last_words[0] && n < size) snprintf(text + n, size - n, ": %s", p->last_words);
}

static void end_child(struct proc *p) {
    lw_child_end(&p->child, p->end_by_ms, p->how, sizeof p->how);
    if (p->n_requests && p->why != END_WRONG) proc_read_last_words(p);
}

static void run_errand(struct proc *p) {
    if (p->state == PROC_STARTING)
        proc_spawn(p, &p->failed);
    else
        end_child(p);
    atomic_store(&p->errand_over, true);
    /* The write fails only if the counter of the eventfd is full, and then the eventfd is readable
     * anyway. */
    if (write(p->h->errands, &(uint64_t){1}, 8) < 0) lw_debug("exec: eventfd is full");
}

static void *errand_main(void *arg) {
    run_errand(arg);
    return NULL;
}

static void send_errand(struct proc *p) {
    atomic_store(&p->errand_over, false);
    p->failed = (struct lw_err){0};
    p->threaded = lw_thread_start(&p->errand, errand_main, p) == 0;
    if (!p->threaded) run_errand(p);
}

void proc_start(struct proc *p) {
    assert(p->state == PROC_NONE && p->child.pid <= 0);
    p->state = PROC_STARTING;
    send_errand(p);
}

static void unwatch(struct proc *p) {
    const int fds[] = {p->child.out, p->child.side, p->child.in};
    for (size_t i = 0; i < 3; i++)
        if (fds[i] >= 0) epoll_ctl(p->h->epoll, EPOLL_CTL_DEL, fds[i], NULL);
}

/* With until_ms = 0 the process gets no time to end in an orderly way. This function then kills the
 * group at once, so that many processes die in parallel, and the errand only waits until the group
 * is gone. */
void proc_end(struct proc *p, int64_t until_ms) {
    assert(p->state == PROC_UP && p->child.pid > 0);
    p->has_read = proc_has_read(p);
    p->state = PROC_ENDING;
    p->end_by_ms = until_ms;
    unwatch(p);
    if (!until_ms) kill(-p->child.pid, SIGKILL);
    send_errand(p);
}

/* Sets the earliest time of the next start: at once, or later if several processes in a row have
 * ended without an answer. */
static void rest(struct proc *p) {
    p->useless = p->answered ? 0 : p->useless + 1;
    /* Besides an answer, three other cases reset the count of useless processes. A process that was
     * ended because of a time limit might still have answered. If the command itself is at fault,
     * the whole handler pauses, so no further delay is needed. If a message is known to be at
     * fault, it has a backoff of its own, and others must not wait for it. */
    if (p->why == END_TIME || p->innocent || p->own_fault) p->useless = 0;
    p->start_ms = 0;
    if (p->useless < 2) return;
    int shift = p->useless - 2;
    int64_t wait = shift > 10 ? BACKOFF_MAX_MS : (int64_t)BACKOFF_MS << shift;
    if (wait > BACKOFF_MAX_MS) wait = BACKOFF_MAX_MS;
    p->start_ms = lw_boot_ms() + wait;
    lw_warn("handler %d: %d processes in a row ended without an answer; the next starts in %" PRId64
            " ms",
            p->index, p->useless, wait);
}

bool proc_errand_over(struct proc *p) {
    bool under_way = p->state == PROC_STARTING || p->state == PROC_ENDING;
    if (!under_way || !atomic_load(&p->errand_over)) return false;
    if (p->threaded) pthread_join(p->errand, NULL);
    p->threaded = false;
    if (p->state == PROC_ENDING) {
        lw_last_words_drop(p->out_words);
        p->out_words = NULL;
        rest(p);
    }
    return true;
}

void proc_await_errand(struct proc *p) {
    if (p->threaded) pthread_join(p->errand, NULL);
    p->threaded = false;
}

void proc_free(struct proc *p) {
    proc_await_errand(p);
    lw_last_words_drop(p->words);
    lw_last_words_drop(p->out_words);
    lw_buf_free(&p->said.text);
    lw_buf_free(&p->side.text);
    lw_buf_free(&p->out);
    free(p->table);
}

uint64_t proc_has_read(const struct proc *p) {
    int left = 0;
    if (p->child.in < 0 || ioctl(p->child.in, FIONREAD, &left) || (uint64_t)left > p->sent)
        return p->sent;
    return p->sent - (uint64_t)left;
}

/* --- requests --------------------------------------------------------------------------------- */

/* Returns the number of buckets of the hash table of requests: a power of two that is at least
 * twice in_flight. */
size_t request_buckets(const struct lw_handler *h) {
    size_t size = 2;
    while (size < 2 * (size_t)h->in_flight) size *= 2;
    return size;
}

/* Returns the FNV-1a hash of an identity. */
static uint64_t hash(const char *id, size_t n) {
    uint64_t v = 0xcbf29ce484222325U;
    for (size_t i = 0; i < n; i++) v = (v ^ (unsigned char)id[i]) * 0x100000001b3U;
    return v;
}

void proc_note_ended(struct proc *p, const struct lw_job *job) {
    p->ended[p->n_ended++ % PROC_ENDED] = hash(job->identity, strlen(job->identity));
}

bool proc_has_ended(const struct proc *p, struct lw_bytes id) {
    uint64_t v = hash(id.p, id.n);
    unsigned n = p->n_ended < PROC_ENDED ? p->n_ended : PROC_ENDED;
    for (unsigned i = 0; i < n; i++)
        if (p->ended[i] == v) return true;
    return false;
}

static struct request **bucket(const struct proc *p, const char *id, size_t n) {
    uint64_t v = hash(id, n);
    return &p->table[(v ^ v >> 32) & (request_buckets(p->h) - 1)];
}

static struct request **bucket_of(const struct request *r) {
    const char *id = r->jobs[r->at]->identity;
    return bucket(r->p, id, strlen(id));
}

static void enter(struct request *r) {
    struct request **b = bucket_of(r);
    r->same = *b;
    *b = r;
}

static void leave(struct request *r) {
    struct request **at = bucket_of(r);
    while (*at != r) at = &(*at)->same;
    *at = r->same;
}

struct request *request_find(const struct proc *p, struct lw_bytes id) {
    struct request *r = *bucket(p, id.p, id.n);
    while (r && !lw_bytes_eq(lw_bytes_of(r->jobs[r->at]->identity), id)) r = r->same;
    return r;
}

struct request *request_new(struct proc *p, struct lw_job *job) {
    struct lw_handler *h = p->h;
    struct request *r = h->free;
    if (r)
        h->free = r->next;
    else
        r = lw_alloc(sizeof *r + (size_t)h->batch * sizeof(struct lw_job *));
    *r = (struct request){.p = p, .n = 1};
    r->jobs[0] = job;
    DL_APPEND(p->first, r);
    atomic_store_explicit(&p->load, (uint32_t)++p->n_requests, memory_order_relaxed);
    enter(r);
    return r;
}

void request_move(struct request *r, int at) {
    leave(r);
    r->at = at;
    enter(r);
}

void request_leave(struct request *r) {
    struct proc *p = r->p;
    leave(r);
    DL_DELETE(p->first, r);
    atomic_store_explicit(&p->load, (uint32_t)--p->n_requests, memory_order_relaxed);
    r->next = r->prev = NULL;
}

void request_free(struct lw_handler *h, struct request *r) {
    r->next = h->free;
    h->free = r;
}
