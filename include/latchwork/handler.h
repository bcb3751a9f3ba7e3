/* SPDX-License-Identifier: Apache-2.0 */
/* Latchwork handler plugins: the one header that a handler written in C (or C++) needs.
 *
 * A plugin is a shared object that exports one object named `latchwork_handler`. The smallest whole one:
 *
 *     #include <latchwork/handler.h>
 *     #include <stdio.h>
 *     #include <unistd.h>
 *
 *     static int handle(void *self, const struct latchwork_message *m, char *reason, size_t reason_size) {
 *         char line[4096];
 *         const char *payload = m->payload;
 *         int most = sizeof line - 1;
 *         int n = snprintf(line, sizeof line, "%s %.*s", m->identity, (int)m->payload_len, payload);
 *         if (n > most) n = most;
 *         line[n++] = '\n';
 *         return write(STDOUT_FILENO, line, n) == n ? LATCHWORK_DONE : LATCHWORK_RETRY;
 *     }
 *     LATCHWORK_EXPORT const struct latchwork_handler latchwork_handler = {LATCHWORK_HANDLER_INIT, .handle = handle};
 *
 * Build it with `cc -shared -fPIC $(pkg-config --cflags latchwork) -o my.so my.c`, name it in the configuration:
 *
 *     "handler": {"type": "plugin", "path": "./my.so", "config": {"any": "JSON"}, "threads": 8}
 *
 * What Latchwork promises to a handler: while it runs on a message under a live lease, no other handler anywhere runs on that message's
 * key, and messages of a key come in order. Several may run under one lease, one after the other: the next starts when the one before it
 * returned LATCHWORK_DONE, before that is recorded. A message may come again after a crash, and so may the few of its key that were done
 * just before; its identity stays the same, `fence` grows with every message of a key and with every attempt. A store that remembers the
 * largest fence of a key, and refuses smaller ones, is safe even from a process that was frozen past its lease.
 *
 * Life: init (once a worker process) -> handle or handle_batch (on many threads) -> close. A crash of the plugin ends its worker; the
 * message is then run alone, and after `retry.max_attempts` crashes becomes a dead letter.
 *
 * In C++ from C++17 on: LATCHWORK_HANDLER_INIT and designated initializers are C only. Make the table by a function instead, with
 * latchwork_handler_init() as its start; handlers/examples/tally is a whole one. No exception may leave the plugin: catch all of them in
 * each function of the table.
 *
 * What a handler may do.
 *   Threads   `handle` runs on threads of the worker, `threads` of them. A plugin may start threads of its own, in init or later: block
 *             all signals in them, and join them in close. A message and its lease are theirs to read until the call that they were
 *             lent to returns.
 *   Signals   The threads of handlers have all signals blocked but those that a fault raises (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP,
 *             SIGSYS, SIGABRT). The worker reads SIGTERM, SIGINT, SIGHUP and the like from a descriptor, and ignores SIGPIPE: leave
 *             the process' signal actions and the mask of its main thread alone. To be told to stop, ask latchwork_cancelled().
 *   Fork      fork() copies a process with many threads and locks: in the child call only what is safe in a signal handler, and
 *             then exec. posix_spawn() and popen() do that. The child inherits the thread's blocked signals and the ignored SIGPIPE, so
 *             set both back (POSIX_SPAWN_SETSIGMASK, POSIX_SPAWN_SETSIGDEF). Wait for your own children by their pid, never for any
 *             child. The descriptors of the worker close by themselves at exec; open yours with O_CLOEXEC. A child does not end with its
 *             worker by itself: use prctl(PR_SET_PDEATHSIG) in it where it must.
 *   Stack     Threads have the system's default stack (`ulimit -s`, 8 MiB as a rule). Keep large buffers and deep recursion off it:
 *             an overflow is a crash of the worker.
 *   Process   exit(), abort() and a fault end the worker, which counts as a crash of each message that it ran. chdir(), setlocale(),
 *             setenv(), umask() and rlimits change it for all: call them in init at most. Plugins are loaded with RTLD_NOW and
 *             RTLD_LOCAL, and never unloaded.
 *
 * This interface only grows: members are added at the ends of structures, and each carries its size (or its table does), so a plugin built
 * with this header runs in later versions of Latchwork of the same LATCHWORK_ABI. Structures that Latchwork fills and hands over in
 * arrays are handed over as arrays of pointers, so that they may grow as well; struct latchwork_header alone is an element itself, and
 * frozen: its members will not change while LATCHWORK_ABI is 2. */
#ifndef LATCHWORK_HANDLER_H
#define LATCHWORK_HANDLER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LATCHWORK_ABI 2

/* Makes the symbol visible however the plugin is compiled. */
#ifdef __cplusplus
#define LATCHWORK_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define LATCHWORK_EXPORT __attribute__((visibility("default")))
#endif

/* The outcome of a message. */
enum latchwork_outcome {
    LATCHWORK_DONE = 0,  /* the effect has happened, now or earlier under the same identity; the key's next message may start at once */
    LATCHWORK_RETRY = 1, /* try again after a backoff; counts an attempt */
    LATCHWORK_DEAD = 2,  /* never try again: a dead letter */
    LATCHWORK_BACK = 3   /* nothing was done because the lease ended: whoever holds the key next runs it; counts no attempt */
};

enum latchwork_level { LATCHWORK_LOG_DEBUG = 0, LATCHWORK_LOG_INFO = 1, LATCHWORK_LOG_WARN = 2, LATCHWORK_LOG_ERROR = 3 };

/* A header of the record. Bytes, not NUL-terminated; value is NULL for a null value. Frozen: an element of an array. */
struct latchwork_header {
    const char *name;
    size_t name_len;
    const void *value;
    size_t value_len;
};

/* The lease under which a handler runs. Its functions may be called from any thread while the call they were lent to lasts. */
struct latchwork_lease {
    uint32_t size;  /* of this structure in the running Latchwork */
    uint64_t fence; /* of this message at this attempt: grows with every message of a key. Messages of two keys may have the same */
    /* When the handler has to be done, in ms of CLOCK_BOOTTIME: the end of the lease, or of `timeout_ms` (which counts from this message's
     * start) if that is sooner. The lease may have served messages of the key before this one, so less than a whole TTL may be left of it
     * at first; it is renewed, and the deadline moves on, so ask again. INT64_MAX: no end. */
    int64_t (*deadline_ms)(const struct latchwork_lease *lease);
    /* Non-zero once the handler should stop: the lease is lost or about to be, or the time is up. Cheap; ask in loops. When the
     * lease is lost, what was to follow under it is not started. */
    int (*cancelled)(const struct latchwork_lease *lease);
};

/* A message and its lease: lent for the call, read-only. */
struct latchwork_message {
    uint32_t size; /* of this structure in the running Latchwork */
    int32_t partition;
    const char *identity; /* "topic/partition/offset", for a replayed message with "#n": the same at every attempt */
    const char *topic;
    int64_t offset;
    int64_t timestamp_ms; /* Kafka's; -1 unknown */
    const void *key;      /* the primary key, as the rule `key.from` found it. Not NUL-terminated, may hold any bytes */
    size_t key_len;
    const void *payload; /* NULL for a null payload (a tombstone) */
    size_t payload_len;
    const struct latchwork_header *headers; /* in the order of the record */
    size_t n_headers;
    int attempt; /* 1 at first */
    const struct latchwork_lease *lease;
};

static inline int latchwork_cancelled(const struct latchwork_message *m) { return m->lease->cancelled(m->lease); }
static inline int64_t latchwork_deadline_ms(const struct latchwork_message *m) { return m->lease->deadline_ms(m->lease); }

/* What Latchwork does for a plugin. Valid from init until close returns; every function may be called from any thread, and none keeps
 * what it is given. Call through this table only: the plugin must not rely on symbols of the program. */
struct latchwork_host {
    uint32_t abi;
    uint32_t size; /* of this structure in the running Latchwork: a member added later is there only if it lies within */
    /* One line of the log, formatted as by printf; cut at about 2,000 bytes. Never log payloads or secrets. */
    void (*log)(enum latchwork_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
    /* CLOCK_BOOTTIME in ms, the clock of deadlines. */
    int64_t (*now_ms)(void);
    /* A value of the plugin's `config` as text, by JSON pointer ("/database/path", "" for config itself): strings as they are, numbers and
     * booleans as written in JSON. NULL where there is none, or where it is null, an object or an array. The text lives until close
     * returns. */
    const char *(*setting)(const struct latchwork_host *host, const char *pointer);
};

/* An answer of handle_batch, to be filled: `outcome` is LATCHWORK_RETRY, and `reason` a buffer of reason_size bytes that holds "". */
struct latchwork_answer {
    uint32_t size; /* of this structure in the running Latchwork */
    int outcome;
    char *reason;
    size_t reason_size;
};

struct latchwork_handler {
    uint32_t abi;  /* LATCHWORK_ABI */
    uint32_t size; /* sizeof(struct latchwork_handler) */

    /* Once a worker process, on its main thread, before any message; may block for some seconds. `config` is the JSON text of the
     * configuration's handler.config ("null" where there is none), lent for the call. `*self` is handed to all the others; it is NULL
     * unless set. Returns 0, or anything else with a text in error[error_size], which ends the worker. Optional. */
    int (*init)(const struct latchwork_host *host, const char *config, void **self, char *error, size_t error_size);

    /* Runs one message, and returns its latchwork_outcome. Called from `threads` threads at once, never for two messages of one key at a
     * time. May block, but should end soon after latchwork_cancelled() turns true: a call that outlasts `timeout_ms` by
     * far gets its whole worker replaced. `reason`, a buffer of reason_size bytes that holds "", says why for RETRY and DEAD:
     * write a text with its NUL into it, as by snprintf(). Any other number counts as RETRY. Required unless handle_batch is there. */
    int (*handle)(void *self, const struct latchwork_message *message, char *reason, size_t reason_size);

    /* Runs n messages of different keys (1 <= n <= batch_max) and fills *answers[i] for *messages[i]; the next ones of these keys come in
     * a later batch. Threads as for handle. Worth having where the effect is cheaper by the dozen, as one transaction for many rows.
     * Optional; used instead of handle where batch_max > 0. */
    void (*handle_batch)(void *self, const struct latchwork_message *const *messages, struct latchwork_answer *const *answers, size_t n);
    size_t batch_max; /* 0: no batches; at most 1,024 */

    /* Once, on the main thread, after the last handle has returned. Not called where init failed. Optional. */
    void (*close)(void *self);
};

/* Begins the table: in C as {LATCHWORK_HANDLER_INIT, .handle = handle}, in C++ as latchwork_handler_init(). */
#ifndef __cplusplus
#define LATCHWORK_HANDLER_INIT .abi = LATCHWORK_ABI, .size = sizeof(struct latchwork_handler)
#else
constexpr struct latchwork_handler latchwork_handler_init() {
    return {LATCHWORK_ABI, sizeof(struct latchwork_handler), nullptr, nullptr, nullptr, 0, nullptr};
}
#endif

#ifdef __cplusplus
}
#endif

#endif
