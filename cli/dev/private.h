/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what the parts of `latchwork dev` share. The coordinator (cli/dev/dev.c) has no threads
 * and starts everything else as a process:
 *
 *     cmd_dev ──┬── redis-server          dev_redis      on a unix socket in the folder, nothing
 *                                                        saved
 *               ├── broker                dev_broker     the mock Kafka has threads, so it runs in
 *                                                        its own process
 *               ├── traffic               dev_traffic    produces the orders and reads the group's
 *                                                        commits
 *               ├── service               dev_service    with --faults and --tenants only: the
 *                                                        workers call it for each order
 *               └── supervisor ── workers dev_fleet      the same code as in `run`
 *
 * Each child ends when its parent ends, even if the parent was killed. Each child has its own
 * process group, so that Ctrl-C reaches only the coordinator, and writes to the log file in the
 * folder. */
#ifndef LW_CLI_DEV_PRIVATE_H
#define LW_CLI_DEV_PRIVATE_H

#include "cli/dev/audit.h"
#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { DEV_TOPICS = 2, DEV_PARTITIONS = 4, DEV_WORKERS = 64 };
enum { DEV_ODD_ORDERS = 10 }; /* number of orders that the service of --faults refuses */
#define DEV_STUCK_CUSTOMER "customer-7"
#define DEV_NAME "dev"                   /* name of the application and of its group */
enum { DEV_TENANTS = 3, DEV_FLOOD = 0 }; /* number of tenants of --tenants; the one that floods */
extern const char *const dev_topics[DEV_TOPICS], *const dev_tenants[DEV_TENANTS];

struct dev_options {
    int workers;
    int64_t rate; /* number of messages that are produced per second; each contains an order */
    /* `messages` is the number of messages to produce (0: no limit). One message in `every` is a
     * new order; the others repeat earlier orders. */
    int64_t messages, every;
    /* time between two bursts; messages are sent in bursts, so that several workers get messages of
     * the same key at once */
    int64_t burst_ms;
    bool keep, demo;
    bool faults;  /* true: the workers call a service that misbehaves on purpose */
    bool tenants; /* true: orders have tenants, whose calls of the service are limited */
};

struct dev_worker {
    _Atomic int32_t pid; /* process id of the worker; 0: not running */
    atomic_bool ready;
};

/* Shared memory through which the coordinator, its children and the demo exchange figures and
 * flags. */
struct dev_shared {
    char brokers[128];
    int service_port; /* port of the service on 127.0.0.1; 0: there is none */
    /* number of orders of each tenant that were produced, and that the service has answered */
    _Atomic int64_t tenant_sent[DEV_TENANTS], tenant_done[DEV_TENANTS];
    atomic_bool go;   /* the coordinator sets this flag when the traffic may begin */
    atomic_bool last; /* the demo sets this flag when the last burst may be produced */
    /* The traffic process writes `produced`, `orders`, `ends` and `committed`. */
    _Atomic int64_t produced; /* number of messages that the broker has acknowledged */
    /* number of different orders (order-0, order-1, …) in the produced messages */
    _Atomic int64_t orders;
    _Atomic int64_t ends[DEV_TOPICS][DEV_PARTITIONS], committed[DEV_TOPICS][DEV_PARTITIONS];
    /* The fleet process writes the members from `done` on. */
    _Atomic uint64_t done, dead, parked, drained;
    struct dev_worker workers[DEV_WORKERS];
};

/* The folder of `latchwork dev` and the files in it, and the port and token of the web page. */
struct dev_home {
    char folder[64];
    char socket[96], database[96], config[96], log[96], journal[96];
    int page_port; /* port of the web page on 127.0.0.1 */
    /* value of the setting http.token; only requests with this token may change something */
    char token[33];
};
int dev_home_make(struct dev_home *h, struct lw_err *err);
void dev_home_remove(const struct dev_home *h);
/* Writes the configuration of the workers to its file. *text becomes a copy of the configuration's
 * text, which the caller frees. */
int dev_home_configure(const struct dev_home *h, const struct dev_options *o,
                       const struct dev_shared *shared, char **text, struct lw_err *err);

/* --- children --------------------------------------------------------------------------------- */

struct dev_child {
    const char *name;
    pid_t pid; /* process id of the child; 0: the child was not started */
    int status;
};

/* The main function of a child. The function calls dev_child_ready() when the child is ready or has
 * failed. The return value of the function becomes the exit status of the child. */
typedef int dev_child_main(void *ctx, int ready_fd);
/* Starts a child and waits until it reports that it is ready. A child that becomes another program
 * by exec() counts as ready. Returns -1 with *err if the child fails, or reports nothing within
 * 20 s. */
int dev_child_start(struct dev_child *c, const char *name, const char *log,
                    dev_child_main *child_main, void *ctx, struct lw_err *err);
/* Reports to the parent that the child is ready. If `failure` is not NULL, reports instead that the
 * child has failed for the reason `failure`. */
void dev_child_ready(int ready_fd, const char *failure);
/* Returns true if the child has ended since the last call; then c->status is the child's wait
 * status, and c->pid becomes 0. Returns false if the child still runs or was not started. */
bool dev_child_ended(struct dev_child *c);
/* Describes in words how a child ended. */
void dev_child_describe(const struct dev_child *c, char *out, size_t size);
/* Sends SIGTERM to the child, waits up to limit_ms for its end, and then kills it with SIGKILL if
 * it still runs. */
void dev_child_end(struct dev_child *c, int64_t limit_ms);

int dev_redis_start(struct dev_child *c, const struct dev_home *h, struct lw_err *err);
int dev_broker_start(struct dev_child *c, const struct dev_home *h, struct dev_shared *shared,
                     struct lw_err *err);
int dev_service_start(struct dev_child *c, const struct dev_home *h, struct dev_shared *shared,
                      struct lw_err *err);
int dev_traffic_start(struct dev_child *c, const struct dev_home *h, const struct dev_options *o,
                      struct dev_shared *shared, struct lw_err *err);
int dev_fleet_start(struct dev_child *c, const struct dev_home *h, struct dev_shared *shared,
                    struct lw_err *err);

/* --- looking ---------------------------------------------------------------------------------- */

/* Returns the number of messages in the waiting lists of the private Redis, or -1 if Redis does not
 * reply. At most 256 waiting lists are counted. */
int64_t dev_redis_waiting(const struct dev_home *h);

struct dev_rows {
    /* `inserted` and `ignored` are the numbers of new rows and of duplicate rows, as the inserting
     * transactions counted them. */
    int64_t inserted, ignored;
    int64_t rows; /* number of rows in the table `orders` */
};
/* Fills in *out from the file h->database. All numbers are 0 while its tables do not exist. Returns
 * 0, or -1 with *err if the database cannot be read. */
int dev_rows_read(const struct dev_home *h, struct dev_rows *out, struct lw_err *err);
/* Returns how many of the orders order-0 … order-(orders-1) have no row, or -1 if the database
 * cannot be read. */
int64_t dev_rows_missing(const struct dev_home *h, int64_t orders, struct lw_err *err);

/* --- view.c: the terminal --------------------------------------------------------------------- */

struct dev_view {
    const struct dev_home *home;
    const struct dev_options *o;
    struct dev_shared *shared;
    bool terminal;
    int64_t start_ms, shown_ms;
    /* `last_ms` and `last_done` are the time and the number of done messages at the last
     * measurement. `rate` is in messages per second. */
    int64_t last_ms, last_done, rate;
    struct dev_rows rows; /* the counts of rows that were last read from the database */
    /* `live` is true if the last line on the terminal is a live line, which the next live line
     * overwrites. */
    bool live;
};

void dev_view_init(struct dev_view *v, const struct dev_home *h, const struct dev_options *o,
                   struct dev_shared *shared);
void dev_view_welcome(const struct dev_view *v, const char *config);
/* Prints the live line again if its interval is over. If stdout is not a terminal, prints a new
 * line every two seconds instead. */
void dev_view_tick(struct dev_view *v);
/* Prints a line that no live line overwrites. */
void dev_view_say(struct dev_view *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Formats 1234567 as "1,234,567" into `out`, which has at least 32 bytes. Returns `out`. */
const char *dev_count(int64_t n, char *out);

/* --- demo.c: kills a worker, and judges ------------------------------------------------------- */

struct dev_demo {
    struct dev_killed killed;
    int worker; /* number of the worker that was killed */
    bool replaced;
};

/* Does the next step of the demo if its time has come: kills a worker when half of the messages are
 * done, reports that the worker was replaced, or lets the last burst of messages be produced. Call
 * this function regularly. */
void dev_demo_tick(struct dev_demo *d, struct dev_view *v);
/* Returns true if all messages are produced and the group has committed all of them. */
bool dev_demo_finished(const struct dev_view *v);
/* Prints the table of figures on stdout, and names each wrong figure on stderr. Returns the number
 * of wrong figures. Call this function after the workers have ended. */
int dev_demo_judge(const struct dev_demo *d, const struct dev_view *v);

#endif
