/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated world of the lane protocol: the real worker logic (consumer/) and the real scripts
 * on fake Redis servers (store.h) and a fake Kafka, under a virtual clock, with random faults, and
 * with oracles that see everything. The world began as a port of tests/model/lanes_full.py, and has
 * the same faults and oracles.
 *
 * One seed is one run, the same on every machine. A violation ends the run with a text that
 * describes it (world_bad). */
#ifndef LW_SIM_WORLD_H
#define LW_SIM_WORLD_H

#include "config/config.h"
#include "consumer/worker/worker.h"
#include "base/redis/script.h"
#include "tests/sim/redis/store.h"

#include <setjmp.h>

enum {
    SHARDS = 2,
    PARTS = 3,
    KEYS = 4,
    WORKERS = 3,
    TTL_MS = 1000,
    LIMIT_BURST = 2, /* limits.burst, also of groups */
    GROUPS = 2,
    MAX_RECORDS = 400,
    PIPES = 512,
    SERVERS = 4096,
    NODES = 3
};

struct faults {
    const char *name;
    double crash, pause, wipe, failover, loss, clock;
    /* Rate at which a lane loses its waiting list, together with the states of the messages in that
     * list. */
    double vanish;
    /* Rate at which a lane loses only its waiting list, while the states still say that its
     * messages wait. */
    double unlist;
    /* `attach` is the rate at which harmless replicas are attached to servers. `failback` is the
     * rate of failovers to a replica and back. */
    double attach, failback;
    bool back; /* the clock of a server may also jump back */
    int split_ms;
    /* In each of the following options of a world, 0 stands for the usual value. */
    /* Factor by which the world's clock advances further per step. With a larger factor, calls,
     * handlers and renewals take longer compared with the TTL. */
    int pace;
    bool fine; /* the clock advances by a tenth of that, so that tokens reach a worker in time */
    /* Of ten chances to end a handler or to renew leases, this number is left unused on average. */
    int idle;
    /* Average difference between the offsets of neighbouring records. If it is large, the records
     * are spread over many segments. */
    int sparse;
    double churn; /* factor by which rebalances are more frequent */
    bool deaf;    /* a worker learns late that it has lost a partition */
    bool lag;     /* replicas lack many of the last writes */
    int burst;    /* number of additional records per poll */
    bool pool;    /* a follower may have to wait in the pool's queue before it starts */
    /* Some messages are large, so few are granted at once, and workers often ask for more. */
    bool big;
    /* The bounds in bytes are so low that messages of some thousand bytes reach them (bytes.h). */
    bool tight;
    /* Handlers always stop when their lease ends, so the oracles check the last effects of every
     * key. Otherwise a key with an effect after the end of a lease is not checked. */
    bool prompt;
    int max_run; /* lock.max_run; 0 stands for 3 */
    /* The operator only makes trials, because after a wipe no oracle can check replays and
     * drops. */
    bool trials;
    /* Messages have business ids, most of which belong to several messages of a key. */
    bool dedup;
    bool skip;   /* retry.order is skip */
    bool latest; /* queue.on_busy is latest */
    /* Some messages crash their worker. The supervisor then makes suspects of the messages that
     * were in the handlers of this worker. A suspect's crash is a failed attempt instead. */
    bool poison;
    /* Each message of some keys fails each time, with long backoffs. Messages of the other keys
     * succeed, and must not wait for those. */
    bool refused;
    bool stubborn; /* for a while, some messages are given back under a live lease */
    /* Handlers say when a retry comes back. For a while, those of some messages ask for retries
     * that count no attempt. */
    bool later;
    /* Rate of an operator's actions: to pause or break a lane, to drop or replay messages, or to
     * make a trial (operator.h). */
    double operate;
    /* The value of lock.ttl_ms; 0 stands for TTL_MS. With a long TTL, much happens during a
     * quarantine. */
    int ttl_ms;
    int longer;  /* factor by which lock.ttl_ms of worker 1 is longer; 0: no difference */
    int repairs; /* maximum number of ranges per repair call; 0: the usual maximum */
    /* Records whose offset is a multiple of this number keep their handler busy for a long time. If
     * the number is 0, there are no such records. */
    int linger;
    int running, per_second; /* limits.running and limits.per_second; 0 means no limit */
    /* limits.group.running and limits.group.per_second. If one of them is not 0, each record names
     * a group: mostly that of its key, sometimes another one. */
    int group_running, group_per_second;
    bool groups;        /* true: each record names a group, and nothing is limited */
    bool one_free;      /* true: these limits do not hold for the second group, which has none */
    double retune;      /* rate at which an operator changes limits in force, pauses and resumes */
    double commits;     /* rate at which Kafka's coordinator goes away for a while */
    double seeks;       /* rate at which seeks fail */
    double cut_repairs; /* rate at which connections break during a repair */
    double errors;      /* rate of error replies to individual commands (errors.c) */
    double refusals;    /* rate of periods in which a server refuses nearly every command */
    double full;        /* rate of periods in which a server is at maxmemory */
    double torn;        /* rate at which scripts fail in the middle */
    bool fresh;         /* in the first 2 to 27 s of a run, nearly every commit is refused */
    /* Rate at which slots of a cluster move between nodes (cluster.c). If it is 0, there is no
     * cluster. */
    double move;
    /* If `planned` is true, each slot moves at most once per TTL, as in a planned migration. Then
     * no epoch may end. */
    bool planned;
    double restart;  /* rate at which nodes of a cluster restart with less data than they had */
    double disaster; /* rate at which most workers die and most shards are wiped at once */
};

struct options {
    int records; /* number of records per partition */
    int steps;
    bool skip_order; /* true if retry.order is skip, which promises no order */
    bool dead_topic;
    bool trace;
};

struct mutation { /* a change to a script's text, made when the script is loaded */
    const char *script, *from, *to;
};

/* Runs one seed. Returns NULL if nothing was violated. Otherwise returns a text in static memory
 * that describes the violation. */
const char *world_run(uint64_t seed, const struct faults *f, const struct options *o,
                      const struct mutation *m, struct lw_counts *totals);

/* --- between the files of the world ----------------------------------------------------------- */

struct pipe { /* the pipeline under way on one connection */
    struct server *srv;
    int worker, shard, conn;
    bool live, busy;
    int n, done, delivered;
    struct pcmd {
        int argc;
        char **argv;
        size_t *len;
    } * cmd;
    redisReply **reply;
};

struct server {
    struct store *store;
    /* until_ms is the time at which an old master stops serving clients, or -1 if no such time is
     * set. */
    int64_t skew_ms, until_ms;
    int shard;
};

struct slot { /* the slot of a shard in a cluster */
    struct server *node[NODES];
    int at, to; /* `at`: index of the slot's owner; `to`: index of the node to which it moves */
    bool moving;
    int64_t came_ms;
};

struct exec { /* a running handler, or a message in the pool's queue */
    struct lw_job *job;
    int worker;
    int key;
    bool queued;
    /* True if the handler ran, or the message was queued, when the present revoke began
     * (revoke.c). */
    bool before_revoke;
};

struct errors { /* how the servers of a shard answer in a period of errors (errors.c) */
    int64_t until_ms, full_until_ms;
    const char *text;
};

struct revoke { /* a worker that gives up partitions and waits for its running handlers */
    bool on, part[PARTS];
    int worker;
    int64_t busy_ms; /* last time at which something of these partitions was at work */
};

struct sim_part {
    int n, key[MAX_RECORDS];
    int64_t offset[MAX_RECORDS];
    int64_t committed; /* offset that the group has committed; -1: none */
    int owner;         /* index of the worker that owns the partition; -1: none */
    uint32_t gen;
    /* done: the record was done at least once. dead: the record became a dead letter. An operator's
     * drop of the record sets `done` and `dead`. */
    bool done[MAX_RECORDS], dead[MAX_RECORDS];
    bool stored[MAX_RECORDS];
};

struct sim_worker {
    struct world *world;
    int index;
    struct lw_worker *lw;
    char id[40];
    int64_t dead_until_ms;
    bool joined;
    int conn[SHARDS]; /* identifies the worker's connection to each shard; 0: none */
    struct server *srv[SHARDS];
    bool connecting[SHARDS], want[SHARDS];
    char ready[SHARDS][80], claimed[SHARDS][160];
    /* Generation of each partition. It is 0 if the worker believes that it does not own the
     * partition. */
    uint32_t gen[PARTS];
    int pos[PARTS]; /* index of the next record that the worker reads */
    bool paused[PARTS];
    int64_t begun[PARTS]; /* the group's committed offset when the assignment began */
    /* True if the partition's states in Redis have been read since the partition was assigned. */
    bool was_read[PARTS];
    bool ending; /* the worker cannot continue, so it will be ended */
    struct {
        uint32_t gen;
        int64_t offset;
        bool ok;
    } commit[64];
    int n_commit;
    /* How far the worker's request for the commits of the group has come: not made, sent, or
     * answered by Kafka. */
    enum { NO_LOOK, LOOK_SENT, LOOK_READ } look;
    bool look_known;
    size_t listed;
    void *letter[64];
    /* never[i] is true if the topic will never accept the dead letter letter[i]. */
    bool never[64];
    int n_letter;
    struct lw_job *ended[64]; /* jobs whose end was not reported to the worker yet */
    int n_ended;
    size_t held_bytes; /* bytes of Kafka's records that the worker has not released yet */
};

struct world {
    uint64_t rng;
    int64_t now_ms, kafka_away_ms, fresh_until_ms;
    bool faults_on;
    const struct faults *f;
    const struct options *o;
    const struct mutation *mutation;
    /* `longer` is the configuration of worker 1 in runs in which the TTL of worker 1 is longer than
     * that of the other workers. */
    struct lw_config config, longer;
    struct lw_counts counts;
    struct sim_worker w[WORKERS];
    struct sim_part part[PARTS];
    struct server *master[SHARDS], *servers[SERVERS];
    struct store *snap[SHARDS];
    int n_servers;
    struct slot slot[SHARDS];
    uint64_t moves;
    uint32_t gens;
    int conns;
    struct pipe *pipe[PIPES];
    int n_pipes;
    struct exec exec[512];
    int n_exec;
    struct revoke revoke;
    struct errors errors[SHARDS];
    /* The following fields are for the oracles. */
    uint64_t fence_seen[KEYS], store_fence[KEYS];
    struct {
        int part, index;
    } order[PARTS * MAX_RECORDS];
    int n_order;
    struct effect {
        int part, index;
        bool below_commit; /* the commit was above it, so that Kafka has it no more */
        int losses;        /* value of `losses` at that time */
    } * effects;
    int losses; /* number of times that a server may have lost data */
    int n_effects, cap_effects;
    bool taint[KEYS], vanished[KEYS];
    struct operator* operator;
    struct rules *rules;
    uint64_t runs, dups, cuts;
    /* The fleet, then each group: its starts in a bucket that loses per_second of them in a second,
     * as of `ms`, and the time since when its messages could start, but none did (limits.c). */
    struct starts {
        double n;
        int64_t ms, idle_ms;
    } starts[1 + GROUPS];
    /* The limits of running in force, and whether they are paused. Workers may go on by `was`, the
     * highest one before, until was_ms, since a place is good for a TTL. */
    struct force {
        int running, was;
        bool paused;
        int64_t was_ms;
    } force[1 + GROUPS];
    int64_t jumped_ms; /* time of the last jump of the home's clock */
    int64_t calm_ms;   /* time at which the faults stopped; 0: they have not */
    char settle_sha[41], repair_sha[41];
    jmp_buf out;
    char bad[512];
};

/* world.c defines the following functions. */
void trace(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void world_bad(struct world *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
uint64_t rnd(struct world *w);
int rnd_below(struct world *w, int n);
double rnd_unit(struct world *w);
/* Advances the clock and lets one event happen somewhere in the world. */
void world_step(struct world *w);
/* Kills a worker. A new worker takes its place after `ms` milliseconds. */
void world_kill(struct world *w, struct sim_worker *me, int ms);
void world_wipe(struct world *w, int shard);
/* Makes the shard's replica a copy of its master. A later failover continues with this copy. */
void world_snapshot(struct world *w, int shard);
const struct lw_config *world_config(const struct world *w, const struct sim_worker *me);
/* Returns true while the worker gives partitions up (revoke.c). */
bool world_revoking(const struct world *w, const struct sim_worker *me);

/* trouble.c defines the following functions. */
bool trouble_begin(struct world *w);
bool trouble_commit(struct world *w, bool *taken);
bool trouble_look(struct world *w);
bool trouble_cut_repair(struct world *w);
bool trouble_disaster(struct world *w);
bool trouble_seek(struct world *w, struct sim_worker *me);
bool trouble_lingers(struct world *w, const struct exec *x);

/* errors.c defines the following functions. */
bool errors_begin(struct world *w);
/* Returns true if errors.c made this error reply on purpose. */
bool errors_meant(const char *text);
bool errors_full(const struct world *w, int shard);
/* Returns an error reply if the server refuses the command, or NULL if the server runs the
 * command. */
redisReply *errors_refuse(struct world *w, const struct server *s, const char *command);
/* Takes over the reply of a command that has executed. Returns it, or sometimes a malformed reply
 * in its place. */
redisReply *errors_malform(struct world *w, const struct server *s, const char *command,
                           redisReply *r);
void errors_tear(struct world *w, struct server *s);
/* Checks a shard after a script failed in the middle. This function is in torn.c. */
void torn_look(struct world *w, const struct server *s);

/* cluster.c defines the following functions. */
void cluster_open(struct world *w);
/* Returns true if the error reply says that the slot or a key is on another node. */
bool cluster_meant(const char *text);
void cluster_failed_over(struct world *w, struct server *old, struct server *fresh);
bool cluster_fault(struct world *w);
void cluster_rest(struct world *w);
/* Checks at the end of a run that slots have moved, and that planned moves ended an epoch. */
void cluster_judge(struct world *w);
struct server *cluster_find(struct world *w, int shard);

/* vanish.c defines the following function. */
void lane_vanishes(struct world *w, int shard, int key, bool marks);

/* limits.c defines the following functions. limits_start() checks a start, before the message is
 * among those that run. limits_jump() notes a jump of a shard's clock. limits_idle() checks, after
 * the faults have stopped, that no messages wait that may start. limits_payload() returns a payload
 * that names the record's group, or NULL if there are no groups. */
void limits_configure(struct world *w);
void limits_idle(struct world *w);
/* limits_retune() changes a limit in force, or pauses or resumes what it is for, and
 * limits_resume() resumes all. */
void limits_retune(struct world *w);
void limits_resume(struct world *w);
const char *limits_payload(const struct world *w, int part, int index);
void limits_start(struct world *w, const struct exec *x);
void limits_jump(struct world *w, int shard);
void limits_end(struct world *w);

/* dump.c defines the following function. */
void world_dump(const struct world *w);

/* wire.c defines the following functions, which simulate servers, pipelines and connections. Each
 * function whose name begins with step_ does one thing for a worker, except that step_wire() does
 * one thing for a pipeline. */
/* Creates a server for the shard. The server takes ownership of the store `st`. */
struct server *server_new(struct world *w, struct store *st, int shard);
/* Returns false if the server is an old master that no longer serves clients. */
bool serves(struct world *w, const struct server *s);
redisReply *server_call(struct world *w, struct server *s, int argc, const char *const *argv,
                        const size_t *len);
/* Returns the mark of an offset, which is 0 if the message is unseen. */
int state_in(const struct server *s, const char *tp, int64_t offset);
bool finished_in(const struct server *s, const char *tp, int64_t offset);
/* Returns the text of a script, changed by the mutation of this run if the mutation belongs to this
 * script. The text is valid until the next call. */
const char *wire_mutated(struct world *w, const char *text);
/* Returns the worker's pipeline that is under way to the shard, or NULL if there is none. */
struct pipe *wire_open(struct world *w, int worker, int shard);
/* Breaks the worker's connection to the shard. The worker notices this at once. */
void wire_cut(struct world *w, struct sim_worker *me, int shard);
/* Ends all connections of a dead worker. */
void wire_drop(struct world *w, struct sim_worker *me);
/* Discards the commands of broken connections to a server, so that they are never executed. */
void wire_refuse(struct world *w, const struct server *srv);
/* Discards all pipelines at the end of the run. */
void wire_close(struct world *w);
/* wire_send(), wire_connect() and wire_hints() implement functions of lw_io. */
void wire_send(void *ctx, int shard, const struct lw_commands *c);
void wire_connect(void *ctx, int shard);
void wire_hints(void *ctx, int shard, const char *ready, const char *claimed, bool want);
void step_connect(struct world *w, struct sim_worker *me);
void step_deliver(struct world *w, struct sim_worker *me);
void step_renew(struct world *w, struct sim_worker *me);
void step_hints(struct world *w, struct sim_worker *me);
/* Executes one command on some server. Returns false if no command was under way. */
bool step_wire(struct world *w);

/* kafka.c defines the following functions. */
/* Returns the number of the key, or -1 if no record has this key. */
int key_of_name(struct lw_bytes key);
void kafka_assign(struct world *w, struct sim_worker *me, int p);
void kafka_rebalance(struct world *w);
void step_poll(struct world *w, struct sim_worker *me);
/* Answers the commits that the worker has sent. */
void step_commits(struct world *w, struct sim_worker *me);
/* Gives the worker the list of the group's commits, if the worker has requested this list. */
void step_look(struct world *w, struct sim_worker *me);
/* The following functions of kafka.c implement functions of lw_io. */
bool kafka_look(void *ctx);
void kafka_pause(void *ctx, uint32_t gen, bool pause);
int kafka_seek(void *ctx, uint32_t gen, int64_t offset, struct lw_err *err);
int kafka_commit(void *ctx, const struct lw_commit *c, size_t n, struct lw_err *err);
bool kafka_commit_busy(void *ctx);
int kafka_commit_sync(void *ctx, const struct lw_commit *c, size_t n, bool *ok, struct lw_err *err);
int kafka_committed(void *ctx, const char *topic, int32_t partition, int64_t *offset,
                    struct lw_err *err);

/* revoke.c defines the following functions. */
void revoke_parts(struct world *w, struct sim_worker *me, const bool *part, bool lost);
void revoke_started(struct world *w, int worker, const struct lw_job *job);

/* oracle.c defines the following functions. */
void oracle_start(struct world *w, struct exec *x);
/* Returns what becomes of the run: the outcome that the handler wants (`wish`), or LW_BACK if the
 * store refuses the run's fence. */
enum lw_outcome oracle_finish(struct world *w, struct exec *x, enum lw_outcome wish);
/* Checks that no handler runs in the last third of its lease, because the worker must have
 * cancelled such a handler. The world calls this function after each check of a worker's leases. */
void oracle_fenced(struct world *w, const struct sim_worker *me);
void oracle_died(struct world *w, int part, int64_t offset);
void oracle_commit(struct world *w, int part, int64_t offset);
void oracle_end(struct world *w);
/* Returns the index of the record at an offset, or -1 if no record has this offset. */
int record_at(const struct sim_part *p, int64_t offset);
bool below(const struct sim_part *p, int index, int64_t offset);

#endif
