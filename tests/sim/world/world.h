/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated world of the lane protocol: the real worker logic (consumer/) and the real scripts over fake Redis servers (store.h) and a
 * fake Kafka, under a virtual clock, with faults at random and oracles that look at everything. The port of model/lanes_full.py: same
 * faults, same oracles.
 *
 * One seed is one run, the same on every machine. A violation ends the run with a text (world_bad). */
#ifndef LW_SIM_WORLD_H
#define LW_SIM_WORLD_H

#include "config/config.h"
#include "consumer/worker/worker.h"
#include "base/redis/script.h"
#include "queue/nodes.h"
#include "tests/sim/redis/store.h"

#include <setjmp.h>

enum { SHARDS = 2, PARTS = 3, KEYS = 4, WORKERS = 3, TTL_MS = 1000, MAX_RECORDS = 400, PIPES = 512, SERVERS = 4096, NODES = 3 };

struct faults {
    const char *name;
    double crash, pause, wipe, failover, loss, clock;
    double vanish;           /* a lane's list and the states of what waits in it */
    double unlist;           /* a lane's list alone: the states still say that it waits */
    double attach, failback; /* of replicas: harmless; there and back again: as a failover */
    bool back;               /* the clock may jump back, too */
    int split_ms;
    /* How the world runs; 0: the usual. */
    int pace;           /* how many times faster time goes, so that calls, handlers and renewals come late for a TTL */
    int idle;           /* how many of ten chances to end a handler or to renew are missed */
    int sparse;         /* how many offsets lie between two records: segments end, and are deleted, all the time */
    double churn;       /* how many times more often rebalances come */
    bool deaf;          /* a worker hears late that it lost a partition */
    bool lag;           /* replicas are far behind */
    int burst;          /* how many more records come in one poll */
    bool pool;          /* a follower may have to wait in the pool's queue before it starts */
    bool big;           /* now and then a large message, so that few are granted at once and more are asked for often */
    bool tight;         /* bounds in bytes that messages of some thousand bytes reach (bytes.h) */
    bool prompt;        /* a handler is stopped at its deadline, as those are that can be: then no key's last effect is excused */
    int max_run;        /* lock.max_run; 0: the usual 3 */
    bool trials;        /* the operator only tries: a wipe takes what it moved along, and no oracle knows what then */
    bool drop;          /* queue.on_busy drop; records are written in the course of the run */
    bool dedup;         /* business ids, most of which several messages of a key have */
    bool skip;          /* retry.order skip */
    bool poison;        /* some messages crash their worker, whose supervisor makes suspects of what was in its handlers */
    bool stubborn;      /* some messages are given back under a live lease, for a while */
    double operate;     /* an operator pauses, breaks, drops, replays, tries: so often (operator.h) */
    int ttl_ms;         /* lock.ttl_ms; 0: TTL_MS. A longer one makes quarantines in which much happens */
    int longer;         /* how many times the lock.ttl_ms of the others worker 1 has; 0: the same */
    int repairs;        /* how many ranges a repair call has; 0: as many as the program sends */
    int linger;         /* records whose offset is a multiple of it keep their handler busy for long; 0: none */
    int meta_max;       /* the most bytes of commit metadata that the broker takes; 0: any number */
    double commits;     /* Kafka's coordinator goes away for a while, so often */
    double seeks;       /* seeks fail, so often */
    double cut_repairs; /* connections break under a repair, so often */
    double errors;      /* error replies to single commands, so often (errors.c) */
    double refusals;    /* rate of periods in which a server refuses nearly every command */
    double full;        /* periods at maxmemory */
    double torn;        /* scripts fail in the middle */
    bool fresh;         /* Kafka takes hardly any commit for the first seconds */
    double move;        /* a cluster: slots move from node to node, so often (cluster.c) */
    bool planned;       /* moves are all that happens, with a TTL between two of them: then no epoch may end */
    double restart;     /* nodes of it restart with less than they had */
    double disaster;    /* most workers die and most shards are wiped at once, so often */
};

struct options {
    int records; /* a partition */
    int steps;
    bool skip_order; /* retry.order skip: no order is promised then */
    bool dead_topic;
    bool trace;
};

struct mutation { /* of a script's text, as the worker loads it */
    const char *script, *from, *to;
};

/* One seeded run. Returns NULL when nothing was violated, else the text (static). */
const char *world_run(uint64_t seed, const struct faults *f, const struct options *o, const struct mutation *m, struct lw_counts *totals);

/* --- between the files of the world --- */

struct pipe { /* commands under way on one connection */
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
    int64_t skew_ms, until_ms; /* until: an old master serves on until then; -1 while it is the master */
    int shard;
    char id[41]; /* of a node of a cluster */
    int config_epoch;
    bool slave;
};

struct slot { /* of a shard, in a cluster */
    struct server *node[NODES];
    int at, to; /* who has it, and where it moves */
    bool moving;
    int64_t came_ms;
};

struct exec { /* a handler at work, or a follower in the pool's queue */
    struct lw_job *job;
    int worker;
    int key;
    bool queued;
    bool before_revoke; /* it was there when the revoke began that is under way (revoke.c) */
};

struct errors { /* of a shard: what its servers answer in a period (errors.c) */
    int64_t until_ms, full_until_ms;
    const char *text;
};

struct revoke { /* partitions that leave a worker, while it waits for what had started */
    bool on, part[PARTS];
    int worker, idle_steps;
};

struct sim_part {
    int n, key[MAX_RECORDS];
    int64_t offset[MAX_RECORDS];
    int64_t committed; /* -1 none */
    char meta[4200];
    int owner; /* worker, -1 none */
    uint32_t gen;
    bool done[MAX_RECORDS], dead[MAX_RECORDS]; /* first completions; the store's identities */
    bool stored[MAX_RECORDS];
};

struct sim_worker {
    struct world *world;
    int index;
    struct lw_worker *lw;
    char id[40];
    int64_t dead_until_ms;
    bool joined;
    int conn[SHARDS]; /* generation of the connection; 0: none */
    struct server *srv[SHARDS];
    bool connecting[SHARDS], want[SHARDS];
    char ready[SHARDS][80], claimed[SHARDS][160];
    uint32_t gen[PARTS]; /* what it believes to own; 0 none */
    int pos[PARTS];      /* index of the next record */
    bool hold[PARTS];
    int64_t begun[PARTS]; /* where the group's commit stood when it was assigned */
    bool was_read[PARTS]; /* since it was assigned: its states, in Redis */
    bool ending;          /* it said that it can't go on */
    struct {
        uint32_t gen;
        int64_t offset;
        bool ok;
    } commit[64];
    char commit_meta[64][4200];
    int n_commit;
    enum { NO_LOOK, LOOK_SENT, LOOK_READ } look; /* at all commits of the group */
    bool look_known;
    size_t listed;
    void *letter[64];
    bool never[64]; /* its topic will never take it */
    int n_letter;
    struct lw_job *ended[64]; /* by the handlers, not reaped yet */
    int n_ended;
    size_t held_bytes; /* of Kafka's records, not released yet */
};

struct world {
    uint64_t rng;
    int64_t now_ms, kafka_away_ms, fresh_until_ms;
    bool faults_on;
    const struct faults *f;
    const struct options *o;
    const struct mutation *mutation;
    struct lw_config config, longer; /* longer: of worker 1, where it has a TTL of its own */
    struct lw_counts counts;
    struct sim_worker w[WORKERS];
    struct sim_part part[PARTS];
    struct server *master[SHARDS], *servers[SERVERS];
    struct store *snap[SHARDS];
    int n_servers, config_epochs;
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
    /* oracles */
    uint64_t fence_seen[KEYS], store_fence[KEYS];
    struct {
        int part, index;
    } order[PARTS * MAX_RECORDS];
    int n_order;
    struct effect {
        int part, index;
    } * effects;
    int n_effects, cap_effects;
    bool taint[KEYS], vanished[KEYS];
    struct operator* operator;
    struct rules *rules;
    uint64_t runs, dups, cuts;
    char settle_sha[41], repair_sha[41];
    jmp_buf out;
    char bad[512];
};

/* world.c */
void trace(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void world_bad(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
uint64_t rnd(struct world *w);
int rnd_below(struct world *w, int n);
double rnd_unit(struct world *w);
void world_step(struct world *w);                                /* something happens somewhere */
void world_kill(struct world *w, struct sim_worker *me, int ms); /* another one takes its place after that time */
void world_wipe(struct world *w, int shard);
void world_snapshot(struct world *w, int shard); /* what a replica of its master has now */
const struct lw_config *world_config(const struct world *w, const struct sim_worker *me);
bool world_revoking(const struct world *w, const struct sim_worker *me); /* its thread is in the middle of it */

/* trouble.c */
bool trouble_begin(struct world *w);
bool trouble_commit(struct world *w, bool *taken);
bool trouble_look(struct world *w);
bool trouble_metadata(struct sim_worker *me, const struct lw_commit *c);
bool trouble_cut_repair(struct world *w);
bool trouble_disaster(struct world *w);
bool trouble_seek(struct world *w, struct sim_worker *me);
bool trouble_lingers(struct world *w, const struct exec *x);

/* errors.c */
bool errors_begin(struct world *w);
bool errors_meant(const char *text); /* an error reply made by chance, not by the fake server */
bool errors_full(const struct world *w, int shard);
redisReply *errors_refuse(struct world *w, const struct server *s, const char *command); /* NULL: it runs */
void errors_tear(struct world *w, struct server *s);
void torn_look(struct world *w, const struct server *s); /* torn.c: after a script that failed in the middle */

/* cluster.c */
void cluster_open(struct world *w);
redisReply *cluster_nodes(struct world *w, const struct server *s);
bool cluster_meant(const char *text); /* an error that says that the slot or a key is elsewhere */
void cluster_failed_over(struct world *w, struct server *old, struct server *fresh);
bool cluster_fault(struct world *w);
void cluster_rest(struct world *w);
void cluster_judge(struct world *w); /* at the end of a run */
struct server *cluster_find(struct world *w, int shard);

/* vanish.c */
void lane_vanishes(struct world *w, int shard, int key, bool marks);

/* dump.c */
void world_dump(const struct world *w);

/* wire.c: servers, pipelines, connections. step_…: something that happens to a worker, or (step_wire) on the way */
struct server *server_new(struct world *w, struct store *st, int shard); /* takes the store */
bool serves(struct world *w, const struct server *s);                    /* an old master does so for a while */
redisReply *server_call(struct world *w, struct server *s, int argc, const char *const *argv, const size_t *len);
int state_in(const struct server *s, const char *tp, int64_t offset); /* two bits of a state segment; 0 where there is none */
bool finished_in(const struct server *s, const char *tp, int64_t offset);
const char *wire_mutated(struct world *w, const char *text);      /* a script's, with the mutation that is asked for; until the next call */
struct pipe *wire_open(struct world *w, int worker, int shard);   /* the pipeline under way; NULL none */
void wire_cut(struct world *w, struct sim_worker *me, int shard); /* the worker's connection breaks, and it hears of it */
void wire_drop(struct world *w, struct sim_worker *me);           /* the worker is dead */
void wire_refuse(struct world *w, const struct server *srv);      /* what was left of broken connections never executes */
void wire_close(struct world *w);                                 /* the end of the run */
void wire_send(void *ctx, int shard, const struct lw_commands *c); /* of lw_io, as the next two */
void wire_connect(void *ctx, int shard);
void wire_hints(void *ctx, int shard, const char *ready, const char *claimed, bool want);
void step_connect(struct world *w, struct sim_worker *me);
void step_deliver(struct world *w, struct sim_worker *me);
void step_renew(struct world *w, struct sim_worker *me);
void step_hints(struct world *w, struct sim_worker *me);
bool step_wire(struct world *w); /* a command executes somewhere; false: nothing was under way */

/* kafka.c */
int key_of_name(struct lw_bytes key); /* -1: of no record */
void kafka_assign(struct world *w, struct sim_worker *me, int p);
void kafka_rebalance(struct world *w);
void step_poll(struct world *w, struct sim_worker *me);
void step_commits(struct world *w, struct sim_worker *me); /* answers to what was committed */
void step_look(struct world *w, struct sim_worker *me);    /* and to what was asked of the group */
bool kafka_look(void *ctx);                                /* of lw_io, as all below */
void kafka_hold(void *ctx, uint32_t gen, bool hold);
int kafka_seek(void *ctx, uint32_t gen, int64_t offset, struct lw_err *err);
int kafka_commit(void *ctx, const struct lw_commit *c, size_t n, struct lw_err *err);
bool kafka_commit_busy(void *ctx);
int kafka_commit_sync(void *ctx, const struct lw_commit *c, size_t n, bool *ok, struct lw_err *err);
int kafka_committed(void *ctx, const char *topic, int32_t partition, int64_t *offset, struct lw_err *err);

/* revoke.c */
void revoke_parts(struct world *w, struct sim_worker *me, const bool *part, bool lost);
void revoke_pump(void *ctx, int64_t max_ms); /* of lw_io */
void revoke_started(struct world *w, int worker, const struct lw_job *job);

/* oracle.c */
void oracle_start(struct world *w, struct exec *x);
/* The outcome a handler gives now: what it did to the fenced store decides. */
enum lw_outcome oracle_finish(struct world *w, struct exec *x, enum lw_outcome wish);
/* The leases of a worker were looked at: none of its handlers goes on uncancelled in the last third of its lease. */
void oracle_fenced(struct world *w, const struct sim_worker *me);
void oracle_died(struct world *w, int part, int64_t offset);
void oracle_commit(struct world *w, int part, int64_t offset);
void oracle_end(struct world *w);
int record_at(const struct sim_part *p, int64_t offset); /* its index; -1 a gap */
bool below(const struct sim_part *p, int index, int64_t offset);

#endif
