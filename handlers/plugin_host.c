/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/plugin_host.h"

#include "base/clock.h"
#include "base/log.h"
#include "handlers/reason.h"
#include "queue/envelope.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHARED_FD = 3, NAP_MS = 5, PAUSE_MS = 1000 };

enum step { STARTING, RUNNING, OVERDUE, ANSWERED };

/* The memory that both processes share. The texts follow the structure: the handler's section as
 * JSON, and the message as an envelope. */
struct shared {
    pid_t worker;
    enum lw_log_level log_level;
    bool log_json;
    size_t n_section, n_envelope;
    char identity[LW_IDENTITY_MAX];
    int attempt;
    uint64_t fence;
    int64_t give_up_ms;
    struct lw_job_lease lease; /* the worker keeps it up to date */
    _Atomic int step;          /* enum step; the new process sets it */
    /* the answer, valid once `step` is ANSWERED */
    enum lw_outcome outcome;
    int64_t wait_ms;
    bool uncounted;
    char reason[LW_REASON_MAX];
};

static struct shared *map(int fd, size_t size) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return NULL;
    return at;
}

/* --- the worker's side ------------------------------------------------------------------------ */

static void renew(struct shared *to, const struct lw_job *job) {
    atomic_store(&to->lease.deadline_ms, atomic_load(&job->lease->deadline_ms));
    atomic_store(&to->lease.cancelled, atomic_load(&job->lease->cancelled));
}

static struct shared *share(const struct lw_config *c, const struct lw_job *job, int *fd,
                            size_t *size) {
    struct lw_buf envelope = {0};
    lw_envelope_encode(&(struct lw_envelope){.topic = lw_bytes_of(job->topic),
                                             .key = job->key,
                                             .payload = job->payload,
                                             .partition = job->partition,
                                             .offset = job->offset,
                                             .timestamp_ms = job->timestamp_ms,
                                             .headers = (struct lw_header *)(uintptr_t)job->headers,
                                             .n_headers = job->n_headers},
                       &envelope);
    char *section = json_dumps(c->handler.json, JSON_COMPACT);
    size_t n_section = section ? strlen(section) + 1 : 0;
    *size = sizeof(struct shared) + n_section + envelope.n;
    *fd = memfd_create("latchwork message", MFD_CLOEXEC);
    bool made = section && *fd >= 0 && !ftruncate(*fd, (off_t)*size);
    struct shared *s = made ? map(*fd, *size) : NULL;
    if (s) {
        s->worker = getpid();
        s->log_level = c->log.level;
        s->log_json = c->log.json;
        s->n_section = n_section;
        s->n_envelope = envelope.n;
        snprintf(s->identity, sizeof s->identity, "%s", job->identity);
        s->attempt = job->attempt;
        s->fence = job->fence;
        s->give_up_ms = job->give_up_ms;
        renew(s, job);
        memcpy((char *)(s + 1), section, n_section);
        memcpy((char *)(s + 1) + n_section, envelope.p, envelope.n);
    }
    free(section);
    lw_buf_free(&envelope);
    return s;
}

/* Starts the process in a group of its own, with default signals. Returns 0 or an errno. */
static int start(int fd, pid_t *pid) {
    char *argv[] = {(char *)(uintptr_t) "latchwork", (char *)(uintptr_t)LW_PLUGIN_HOST, NULL};
    posix_spawnattr_t attr;
    posix_spawn_file_actions_t actions;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETPGROUP);
    int e = posix_spawn_file_actions_adddup2(&actions, fd, SHARED_FD);
    if (!e) e = posix_spawn(pid, "/proc/self/exe", &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return e;
}

/* Waits for the end of the process. Meanwhile, shows it each change of the lease. Then kills what
 * the plugin started and left in its group. */
static void wait_for(pid_t pid, struct shared *s, const struct lw_job *job, siginfo_t *end) {
    do {
        renew(s, job);
        lw_sleep_ms(NAP_MS);
        end->si_pid = 0;
    } while ((waitid(P_PID, (id_t)pid, end, WEXITED | WNOHANG | WNOWAIT) && errno == EINTR) ||
             end->si_pid == 0);
    kill(-pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
}

static void judge(struct lw_job *job, const struct shared *s, const siginfo_t *end) {
    char how[128];
    if (end->si_code == CLD_EXITED)
        snprintf(how, sizeof how, "the plugin ended its process with status %d", end->si_status);
    else
        snprintf(how, sizeof how, "the plugin died of signal %d (%s)", end->si_status,
                 strsignal(end->si_status));
    switch (atomic_load(&s->step)) {
    case ANSWERED:
        job->outcome = s->outcome;
        job->wait_ms = s->wait_ms;
        job->uncounted = s->uncounted;
        memcpy(job->reason, s->reason, sizeof job->reason);
        break;
    case OVERDUE:
        if (lw_lease_over(job->lease, lw_boot_ms()))
            lw_job_answer(job, LW_BACK, "");
        else
            lw_job_answer(job, LW_RETRY, "timed out");
        break;
    case RUNNING: lw_job_answer(job, LW_RETRY, how); break;
    default: /* the plugin did not see the message */
        lw_warn_some(20, "%s: not run: %s before it had the message", job->identity, how);
        lw_job_answer(job, LW_BACK, "");
        job->wait_ms = PAUSE_MS;
    }
}

void lw_plugin_host_run(const struct lw_config *config, struct lw_job *job) {
    int fd = -1;
    size_t size = 0;
    pid_t pid = 0;
    struct shared *s = share(config, job, &fd, &size);
    int e = s ? start(fd, &pid) : errno;
    if (fd >= 0) close(fd);
    if (e) {
        lw_warn_some(20, "%s: not run: a process for the plugin cannot be started: %s",
                     job->identity, strerror(e));
        lw_job_answer(job, LW_BACK, "");
        job->wait_ms = PAUSE_MS;
    } else {
        siginfo_t end = {0};
        wait_for(pid, s, job, &end);
        judge(job, s, &end);
    }
    if (s) munmap(s, size);
}

/* --- the side of the new process -------------------------------------------------------------- */

/* Ends the process and its group when the time of the message is over. */
static void *watch(void *arg) {
    struct shared *s = arg;
    for (;;) {
        int64_t now = lw_boot_ms();
        int running = RUNNING;
        if ((now >= s->give_up_ms || lw_lease_over(&s->lease, now)) &&
            (atomic_compare_exchange_strong(&s->step, &running, OVERDUE) || running == ANSWERED))
            kill(0, SIGKILL);
        lw_sleep_ms(NAP_MS);
    }
    return NULL;
}

/* The signals that handlers' threads of a worker do not see (include/latchwork/handler.h). */
static void block_signals(void) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        sigdelset(&set, faults[i]);
        signal(faults[i], SIG_DFL); /* a sanitizer may have set handlers of its own */
    }
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* Maps the shared memory, and checks that it is what share() made. */
static struct shared *look(void) {
    struct stat st;
    if (fstat(SHARED_FD, &st) || (size_t)st.st_size < sizeof(struct shared)) return NULL;
    size_t size = (size_t)st.st_size;
    struct shared *s = map(SHARED_FD, size);
    if (!s) return NULL;
    size -= sizeof *s;
    bool fits = s->n_section && s->n_section <= size && s->n_envelope == size - s->n_section;
    return fits && !((char *)(s + 1))[s->n_section - 1] ? s : NULL;
}

static int run(struct shared *s, struct lw_err *err) {
    struct lw_config c = {.handler.json = json_loads((char *)(s + 1), 0, NULL)};
    struct lw_envelope e;
    if (!c.handler.json) return lw_fail(err, "the section handler is not JSON");
    if (lw_envelope_decode(lw_bytes((char *)(s + 1) + s->n_section, s->n_envelope), &e, err))
        return -1;
    const struct lw_handler_type *plugin = &lw_handler_plugin;
    struct lw_handler *h = plugin->open(&c, 0, err);
    if (!h) return -1;
    struct lw_slot *slot = plugin->slot_open(h, 0, err);
    char *topic = lw_memdup(e.topic.p, e.topic.n);
    struct lw_job job = {.topic = topic,
                         .partition = e.partition,
                         .offset = e.offset,
                         .timestamp_ms = e.timestamp_ms,
                         .key = e.key,
                         .payload = e.payload,
                         .headers = e.headers,
                         .n_headers = e.n_headers,
                         .attempt = s->attempt,
                         .fence = s->fence};
    snprintf(job.identity, sizeof job.identity, "%s", s->identity);
    lw_job_begin(&job, &s->lease);
    job.give_up_ms = s->give_up_ms;
    pthread_t thread;
    int step = STARTING, bad = pthread_create(&thread, NULL, watch, s);
    if (bad) return lw_fail(err, "cannot start a thread: %s", strerror(bad));
    atomic_compare_exchange_strong(&s->step, &step, RUNNING);
    plugin->run(h, slot, &(struct lw_job *){&job}, 1);
    s->outcome = job.outcome;
    s->wait_ms = job.wait_ms;
    s->uncounted = job.uncounted;
    memcpy(s->reason, job.reason, sizeof s->reason);
    step = RUNNING;
    if (atomic_compare_exchange_strong(&s->step, &step, ANSWERED)) {
        plugin->slot_close(h, slot);
        plugin->close(h);
    }
    return 0;
}

int lw_plugin_host_main(void) {
    struct shared *s = look();
    if (!s) {
        fprintf(stderr, "latchwork: " LW_PLUGIN_HOST " is started by workers only\n");
        return 2;
    }
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != s->worker) return 1;
    /* what the worker inherited from whoever started it, without O_CLOEXEC */
    close_range(SHARED_FD, ~0U, 0);
    lw_log_setup(s->log_level, s->log_json, LW_PLUGIN_HOST);
    block_signals();
    struct lw_err err = {0};
    if (run(s, &err)) {
        lw_warn("%s: not run: %s", s->identity, err.text);
        _exit(1);
    }
    _exit(0);
}
