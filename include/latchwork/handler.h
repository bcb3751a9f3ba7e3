/* SPDX-License-Identifier: Apache-2.0 */
/* Latchwork handler plugins: the only header that a handler written in C or C++ needs.
 *
 * A plugin is a shared object that exports one object named `latchwork_handler`. The smallest
 * complete example:
 *
 *     #include <latchwork/handler.h>
 *     #include <stdio.h>
 *     #include <unistd.h>
 *
 *     static int handle(void *self, const struct latchwork_message *m, char *reason,
 *                       size_t reason_size) {
 *         char line[4096];
 *         const char *payload = m->payload;
 *         int most = sizeof line - 1;
 *         int n = snprintf(line, sizeof line, "%s %.*s", m->identity, (int)m->payload_len,
 *                          payload);
 *         if (n > most) n = most;
 *         line[n++] = '\n';
 *         return write(STDOUT_FILENO, line, n) == n ? LATCHWORK_DONE : LATCHWORK_RETRY;
 *     }
 *     LATCHWORK_EXPORT const struct latchwork_handler latchwork_handler = {
 *         LATCHWORK_HANDLER_INIT, .handle = handle};
 *
 * Build it with `cc -shared -fPIC $(pkg-config --cflags latchwork) -o my.so my.c`, and name it in
 * the configuration:
 *
 *     "handler": {"type": "plugin", "path": "./my.so", "config": {"any": "JSON"}, "threads": 8}
 *
 * What Latchwork promises to a handler: while it runs on a message under a live lease, no other
 * handler anywhere runs on the key of that message, and the messages of a key come in order.
 * Several messages may run under one lease, one after the other: each starts as soon as the one
 * before it has returned LATCHWORK_DONE, even if Redis has not recorded that yet. So after a crash
 * a message may come again, together with the few messages of its key that were done just before.
 * The identity of a message stays the same, and `fence` grows with every message and every attempt
 * of a key. A store that remembers the largest fence of a key, and refuses smaller ones, is safe
 * even from a process that was frozen past its lease.
 *
 * Life: init (once per worker process) -> handle or handle_batch (on many threads) -> close. A
 * crash of the plugin ends its worker. Each message that the plugin was running then runs in a
 * process of its own (init -> handle -> close), and becomes a dead letter after
 * `retry.max_attempts` crashes there.
 *
 * C++ needs C++17 or later. LATCHWORK_HANDLER_INIT and designated initializers are for C only. In
 * C++, let a function make the table, beginning with latchwork_handler_init();
 * handlers/examples/tally is a complete example. No exception may leave the plugin, so catch all
 * exceptions in each function of the table.
 *
 * What a handler may do.
 *   Threads   `handle` runs on `threads` threads of the worker. A plugin may start more threads, in
 *             init or later. Block all signals in them, and join them in close. They may read the
 *             message and the lease of a call until that call returns.
 *   Signals   All signals are blocked in the threads of handlers, except those that a fault raises
 *             (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT). The worker reads
 *             SIGTERM, SIGINT, SIGHUP and similar signals from a descriptor, and ignores SIGPIPE.
 *             So do not change the signal actions of the process or the signal mask of its main
 *             thread. To find out whether to stop, call latchwork_cancelled().
 *   Fork      fork() copies a process with many threads and locks. In the child, call only
 *             functions that are safe in a signal handler, and then exec; posix_spawn() and popen()
 *             do so too. The child inherits the thread's blocked signals and the ignored SIGPIPE,
 *             so reset both (POSIX_SPAWN_SETSIGMASK, POSIX_SPAWN_SETSIGDEF). Wait for your own
 *             children by their pids, and never call wait() or waitpid(-1), which could collect a
 *             child of other code. The descriptors of the worker are closed at exec; open yours
 *             with O_CLOEXEC. A child does not end when its worker ends, unless the child has
 *             called prctl(PR_SET_PDEATHSIG).
 *   Stack     Threads have the system's default stack (`ulimit -s`, usually 8 MiB). Do not keep
 *             large buffers on it, and avoid deep recursion, because an overflow crashes the
 *             worker.
 *   Process   exit(), abort() and a fault end the worker, which counts as a crash of each message
 *             that it ran. chdir(), setlocale(), setenv(), umask() and rlimits change the whole
 *             process, so call them only in init. Plugins are loaded with RTLD_NOW and RTLD_LOCAL,
 *             and never unloaded.
 *
 * This interface only grows: members are added at the ends of structures, and each structure except
 * struct latchwork_header contains its size. So a plugin built with this header runs in later
 * versions of Latchwork with the same LATCHWORK_ABI. Latchwork passes messages and answers as
 * arrays of pointers, so that their structures can grow as well. Only struct latchwork_header is
 * itself the element of an array, so its members will not change while LATCHWORK_ABI is 2. */
#ifndef LATCHWORK_HANDLER_H
#define LATCHWORK_HANDLER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LATCHWORK_ABI 2

/* Makes the symbol visible outside of the plugin, whichever options the plugin is compiled with. */
#ifdef __cplusplus
#define LATCHWORK_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define LATCHWORK_EXPORT __attribute__((visibility("default")))
#endif

/* The outcome of a message, which a handler returns. */
enum latchwork_outcome {
    /* the effect has happened, now or earlier under the same identity; the next message of the key
     * may start at once */
    LATCHWORK_DONE = 0,
    /* try the message again after a backoff, and count an attempt; latchwork_retry_after() says
     * when, and whether it counts */
    LATCHWORK_RETRY = 1,
    LATCHWORK_DEAD = 2, /* never try the message again, and keep it as a dead letter */
    /* nothing was done, because the lease ended or the store refused the fence: the next holder of
     * the key runs the message, and no attempt is counted */
    LATCHWORK_BACK = 3
};

enum latchwork_level {
    LATCHWORK_LOG_DEBUG = 0,
    LATCHWORK_LOG_INFO = 1,
    LATCHWORK_LOG_WARN = 2,
    LATCHWORK_LOG_ERROR = 3
};

/* A header of the record. The bytes are not NUL-terminated, and `value` is NULL for a null value.
 * This structure itself is the element of an array, so its members do not change while
 * LATCHWORK_ABI stays the same. */
struct latchwork_header {
    const char *name;
    size_t name_len;
    const void *value;
    size_t value_len;
};

/* The lease under which a handler runs. Any thread may call its functions during the call of the
 * handler. */
struct latchwork_lease {
    uint32_t size; /* size of this structure in the running version of Latchwork */
    /* number that grows with every message and every attempt of a key; messages of two keys may
     * have the same fence */
    uint64_t fence;
    /* Returns the time by which the handler must be done, in ms of CLOCK_BOOTTIME. This is the end
     * of the lease or, if that comes sooner, the end of `timeout_ms`, counted from the start of
     * this message. The lease may have served earlier messages of the key, so less than a whole TTL
     * may be left at first. Latchwork renews the lease, and the deadline moves, so ask again.
     * INT64_MAX means that there is no deadline. */
    int64_t (*deadline_ms)(const struct latchwork_lease *lease);
    /* Returns non-zero if the handler should stop, because the lease is lost or about to end, or
     * because `timeout_ms` has passed. The function is cheap, so call it in loops. If the lease is
     * lost, Latchwork starts no further message under it. */
    int (*cancelled)(const struct latchwork_lease *lease);
    /* Says when the message of this lease comes back if its outcome is LATCHWORK_RETRY: after_ms
     * from then, at most an hour (longer times are shortened), instead of the backoff. If `counts`
     * is 0, the retry counts no attempt, for at most `retry.max_age_s` after the message first
     * failed. A negative after_ms is a mistake, which the message's reason reports. The last call
     * holds; other outcomes ignore it. This is a later addition: see latchwork_retry_after(). */
    void (*retry_after)(const struct latchwork_lease *lease, int64_t after_ms, int counts);
};

/* A message and its lease. A handler may only read them, and only during its call. */
struct latchwork_message {
    uint32_t size; /* size of this structure in the running version of Latchwork */
    int32_t partition;
    /* "topic/partition/offset", followed by "#n" for a replayed message; the same at every
     * attempt */
    const char *identity;
    const char *topic;
    int64_t offset;
    int64_t timestamp_ms; /* timestamp that Kafka recorded; -1 if it is unknown */
    /* primary key that the rule `key.from` found; it may contain any bytes and is not
     * NUL-terminated */
    const void *key;
    size_t key_len;
    const void *payload; /* NULL for a null payload (a tombstone) */
    size_t payload_len;
    const struct latchwork_header *headers; /* headers in the order of the record */
    size_t n_headers;
    int attempt; /* number of this attempt; the first is 1 */
    const struct latchwork_lease *lease;
};

static inline int latchwork_cancelled(const struct latchwork_message *m) {
    return m->lease->cancelled(m->lease);
}
static inline int64_t latchwork_deadline_ms(const struct latchwork_message *m) {
    return m->lease->deadline_ms(m->lease);
}
/* Says when the message comes back, as latchwork_lease.retry_after explains, and returns
 * LATCHWORK_RETRY. A Latchwork that is too old for this uses its backoff and counts an attempt. */
static inline int latchwork_retry_after(const struct latchwork_message *m, int64_t after_ms,
                                        int counts) {
    if (m->lease->size >= offsetof(struct latchwork_lease, retry_after) + sizeof(void *))
        m->lease->retry_after(m->lease, after_ms, counts);
    return LATCHWORK_RETRY;
}

/* Functions that Latchwork offers to a plugin, until `close` returns. Any thread may call these
 * functions, and none of them keeps a pointer to its arguments. Call functions of Latchwork only
 * through this table: a plugin must not use other symbols of the program. */
struct latchwork_host {
    uint32_t abi;
    /* size of this structure in the running version of Latchwork; a member that was added later
     * exists only if it lies within this size */
    uint32_t size;
    /* Writes one line to the log, formatted as by printf() and cut at about 2,000 bytes. Never log
     * payloads or secrets. */
    void (*log)(enum latchwork_level level, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
    /* Returns the time on CLOCK_BOOTTIME in ms, which is the clock of deadlines. */
    int64_t (*now_ms)(void);
    /* Returns a value of the plugin's `config` as text. A JSON pointer names the value
     * ("/database/path", or "" for the whole config). A string is returned as it is, a number or
     * boolean in its JSON form. Returns NULL if there is no value, or if it is null, an object or
     * an array. The text stays valid until `close` returns. */
    const char *(*setting)(const struct latchwork_host *host, const char *pointer);
};

/* An answer that `handle_batch` fills in. At first `outcome` is LATCHWORK_RETRY, and `reason` is a
 * buffer of reason_size bytes that contains "". */
struct latchwork_answer {
    uint32_t size; /* size of this structure in the running version of Latchwork */
    int outcome;
    char *reason;
    size_t reason_size;
};

/* Says which messages may be together in one batch. */
enum latchwork_batch {
    LATCHWORK_BATCH_KEYS = 0,    /* messages of different keys */
    LATCHWORK_BATCH_ONE_KEY = 1, /* messages of one key, in order */
    /* messages of any keys; messages of the same key stand side by side, in order */
    LATCHWORK_BATCH_ANY = 2,
};

struct latchwork_handler {
    uint32_t abi;  /* must be LATCHWORK_ABI */
    uint32_t size; /* must be sizeof(struct latchwork_handler) */

    /* Optional. Latchwork calls this function once in each worker process, on the main thread,
     * before any message. It may block for some seconds. `config` is the JSON text of
     * handler.config in the configuration, or "null" if there is none; the text is valid during the
     * call. The other functions get `*self`, which is NULL unless this function sets it. Returns 0
     * on success. Any other number, with a text in error[error_size], ends the worker. */
    int (*init)(const struct latchwork_host *host, const char *config, void **self, char *error,
                size_t error_size);

    /* Runs one message and returns its latchwork_outcome. Any other number counts as
     * LATCHWORK_RETRY. Latchwork calls this function from `threads` threads at once, but never for
     * two messages of one key at the same time. The function may block, but should end soon after
     * latchwork_cancelled() becomes true: if it takes far longer than `timeout_ms`, the whole
     * worker is replaced. `reason` is a buffer of reason_size bytes that contains "". If the
     * outcome is RETRY or DEAD, write the reason into it as a NUL-terminated text, for example by
     * snprintf(). This function is required if there is no handle_batch. */
    int (*handle)(void *self, const struct latchwork_message *message, char *reason,
                  size_t reason_size);

    /* Optional. This function is used instead of `handle` if batch_max > 0. It runs n messages (1
     * <= n <= batch_max) and fills in *answers[i] for *messages[i].
     *
     * `batch_of` chooses which messages a batch has. By default they are of different keys, and the
     * next messages of these keys come in a later batch. If a batch has several messages of one
     * key, the first of them whose outcome is not LATCHWORK_DONE ends the batch for that key: the
     * later messages of the key are given back whatever their answers say, count no attempt, and
     * come again later. So do not begin with a message of a key before the previous one is done,
     * unless the effect can be repeated.
     *
     * Latchwork does not wait for a batch to fill: a batch has the messages that are available when
     * a thread is free, often only one. `timeout_ms` limits the whole batch. The function runs on
     * the same threads as `handle`. Use it if the effect is cheaper for many messages at once, for
     * example as one transaction for many rows. */
    void (*handle_batch)(void *self, const struct latchwork_message *const *messages,
                         struct latchwork_answer *const *answers, size_t n);
    /* maximum number of messages in a batch, up to 1,024; 0 means that `handle` is used */
    size_t batch_max;

    /* Optional. Latchwork calls this function once, on the main thread, after the last call of
     * `handle` or `handle_batch` has returned, but not if `init` failed. */
    void (*close)(void *self);

    uint32_t batch_of; /* which messages a batch has, as an enum latchwork_batch */
};

/* LATCHWORK_HANDLER_INIT sets the first fields of a plugin's table. In C, initialize the table with
 * {LATCHWORK_HANDLER_INIT, .handle = handle}. In C++, call latchwork_handler_init(), and set the
 * other fields of the value that it returns. */
#ifndef __cplusplus
#define LATCHWORK_HANDLER_INIT .abi = LATCHWORK_ABI, .size = sizeof(struct latchwork_handler)
#else
constexpr struct latchwork_handler latchwork_handler_init() {
    return {LATCHWORK_ABI, sizeof(struct latchwork_handler),
            nullptr,       nullptr,
            nullptr,       0,
            nullptr,       LATCHWORK_BATCH_KEYS};
}
#endif

#ifdef __cplusplus
}
#endif

#endif
