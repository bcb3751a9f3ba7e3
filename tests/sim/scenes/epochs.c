/* SPDX-License-Identifier: Apache-2.0 */
/* Scenes about epochs: what is written back to Redis after a wipe, how long a quarantine lasts, and
 * the first run of an application, for which neither Redis nor Kafka knows an earlier worker. */
#include "tests/sim/scenes/scene.h"

/* The first worker learns of a new epoch too late: a second worker has already entered the epoch,
 * and the quarantine of the epoch is over. The records of key K that the first worker had finished
 * must run again before record 5, which has the same key. */
bool a_repair_that_is_late(void) {
    first_life();
    struct scene b = scene_new();
    exchange(&b); /* `b` now holds the first worker, which is cut off */
    store_flushall(scene.store);
    begin_worker("b-2");
    lw_worker_assign(
        scene.lw,
        &(struct lw_assigned){
            .topic = "t", .partition = 1, .gen = OTHER, .committed = 2, .begin = 2, .log_end = 2});
    rounds(QUARANTINE);
    end_worker();
    exchange(&b);
    rounds(600);
    arrive(1, 1, 6);
    rounds(400);
    end_worker();
    begin_worker("c-3");
    assign(2);
    rounds(200);
    arrive(2, 1, 6);
    scene.x_lingers = false;
    rounds(800);
    end_worker();
    return last_of_k(5);
}

/* Partition 1 is repaired first, with one record per call, and is taken away after the first call.
 * The repair of partition 0 must then begin at the first record of partition 0, and not at the
 * position that the repair of partition 1 had reached. Otherwise record 4 would be written back to
 * Redis without record 2, which has the same key. */
bool a_repair_whose_place_moves(void) {
    scene.repair_batch = 1;
    begin_worker("a-1");
    lw_worker_assign(
        scene.lw, &(struct lw_assigned){.topic = "t", .partition = 1, .gen = OTHER, .log_end = 2});
    assign(1);
    rounds(QUARANTINE);
    arrive(1, 0, 5);
    /* Record 0 of partition 1 has the same key as record 1 of partition 0, and waits behind it. */
    arrive_one(OTHER, 0, "X");
    arrive_one(OTHER, 1, "Z");
    rounds(400);
    store_flushall(scene.store);
    scene.repairs = 0;
    for (int i = 0; i < 2000 && !scene.repairs; i++) round_of_all();
    lw_worker_revoke(scene.lw, &(uint32_t){OTHER}, 1, true);
    rounds(100);
    bool several = scene.repairs > 1;
    end_worker();
    begin_worker("b-2");
    assign(2);
    rounds(200);
    arrive(2, 1, 5);
    rounds(QUARANTINE);
    scene.x_lingers = false;
    rounds(400);
    end_worker();
    return several && last_of_k(4);
}

/* Records 2 and 4 of key K wait in Redis. The first worker claims and handles both, but is cut off
 * before it can settle them. Its lease ends, a second worker runs record 2 again, and then Redis is
 * wiped. The first worker may record only record 2 as done. Record 4 must run again, after the
 * second worker's run of record 2. */
bool dones_of_an_ended_lease(void) {
    scene.k_lingers = true;
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    set_lock_of_k(true);
    arrive(1, 0, 5);
    rounds(100);
    set_lock_of_k(false);
    for (int i = 0; i < 2 * QUARANTINE && !has_k(); i++) round_of_all();
    bool both = finish_k() && scene.n_effects >= 2 && scene.effect[scene.n_effects - 2] == 2 &&
                scene.effect[scene.n_effects - 1] == 4;
    struct scene b = scene_new();
    b.k_lingers = true;
    b.run_ahead = 1;
    exchange(&b); /* `b` now holds the first worker, which is cut off */
    begin_worker("b-2");
    for (int i = 0; i < 2 * QUARANTINE && !has_k(); i++) round_of_all();
    bool again = finish_k() && scene.effect[scene.n_effects - 1] == 2;
    end_worker();
    store_flushall(scene.store);
    exchange(&b);
    scene.k_lingers = false;
    rounds(200);
    arrive(1, (int)scene.committed, 5);
    scene.x_lingers = false;
    rounds(2 * QUARANTINE);
    end_worker();
    if (!both || !again) printf("the situation was not built: %d %d\n", both, again);
    return both && again && last_of_k(4);
}

/* A worker with a TTL of one minute runs a record of key K and is cut off, and Redis is wiped. The
 * next owner has a TTL of 10 s, but learned of the longer TTL before the wipe. So its quarantine
 * must last until the lease of the first worker has ended. */
bool a_wipe_with_two_ttls(void) {
    struct scene b = scene_new();
    scene.k_lingers = b.k_lingers = true;
    scene.ttl_ms = 60000;
    begin_worker("a-1");
    assign(1);
    rounds(6 * QUARANTINE);
    exchange(&b);
    begin_worker("b-2");
    rounds(100);
    exchange(&b);
    arrive(1, 0, 3);
    rounds(100);
    bool runs = has_k();
    int64_t lease_ms = 0;
    for (int i = 0; i < scene.n_job; i++)
        if (scene.job[i]->key.p[0] == 'K')
            lease_ms = atomic_load(&scene.job[i]->lease->deadline_ms);
    b.committed = scene.committed;
    exchange(&b); /* `b` now holds the first worker, which is cut off */
    store_flushall(scene.store);
    assign(2);
    rounds(400);
    arrive(2, 1, 3);
    for (int i = 0; i < 7 * QUARANTINE && !has_k(); i++) round_of_all();
    bool good = runs && has_k() && scene.now_ms >= lease_ms;
    if (!good)
        printf("key K ran %d ms before another's lease of it ended\n",
               (int)(lease_ms - scene.now_ms));
    end_worker();
    exchange(&b);
    end_worker();
    return good;
}

/* Starts a worker and assigns it the partition. Returns true if a record of key K is with a handler
 * long before a quarantine could be over. */
static bool runs_at_once(const char *id, uint32_t gen) {
    begin_worker(id);
    rounds(100);
    assign(gen);
    rounds(200);
    arrive(gen, scene.committed < 0 ? 0 : (int)scene.committed, 3);
    rounds(200);
    return has_k();
}

bool a_first_run(void) {
    scene.can_look = scene.k_lingers = true;
    bool good = runs_at_once("a-1", 1);
    end_worker();
    return good;
}

/* The Redis server is a promoted replica, and its old master may still grant leases. So even the
 * first run of a name must wait for a whole quarantine. */
bool a_first_run_on_a_promoted_replica(void) {
    scene.can_look = scene.k_lingers = true;
    store_promote(scene.store);
    bool early = runs_at_once("a-1", 1);
    rounds(QUARANTINE);
    bool good = !early && has_k();
    end_worker();
    return good;
}

/* Record 1 and a record of key K are with handlers when Redis is wiped. Another fleet knows nothing
 * of these runs, but finds a commit of the group. So it must wait until the quarantine is over. */
bool a_wipe_after_the_first_commit(void) {
    scene.k_lingers = true;
    first_life();
    struct scene a = scene_new();
    a.k_lingers = a.can_look = true;
    a.committed = scene.committed;
    bool runs = has_k();
    exchange(&a); /* `a` now holds the first worker */
    store_flushall(scene.store);
    bool early = runs_at_once("b-2", 2);
    end_worker();
    exchange(&a);
    end_worker();
    return runs && !early;
}

/* Kafka never answers a commit of the first worker. If Redis is wiped, a second worker therefore
 * cannot learn that there was a first one, and runs records at once. So the first worker must not
 * have run anything. */
bool a_wipe_before_the_first_commit(void) {
    scene.can_look = scene.k_lingers = scene.no_commits = true;
    bool early = runs_at_once("a-1", 1);
    rounds(2 * QUARANTINE);
    bool late = has_k();
    struct scene a = scene_new();
    a.k_lingers = a.can_look = true;
    exchange(&a);
    store_flushall(scene.store);
    bool runs = runs_at_once("b-2", 2);
    end_worker();
    exchange(&a);
    end_worker();
    return runs && !early && !late;
}
