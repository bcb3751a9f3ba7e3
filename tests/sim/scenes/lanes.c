/* SPDX-License-Identifier: Apache-2.0 */
/* Scenes about one lane: chains in a handler's thread, the window, and how a lane goes on when a
 * settle fails or the worker stops. */
#include "tests/sim/scenes/scene.h"

/* Ends the first job of key K in its thread, which continues with the next job of the local chain.
 * Returns the ended job, which the worker has not been told of yet. */
static struct lw_job *end_one_of_k(void) {
    struct lw_job *job = scene.job[0];
    job->outcome = LW_DONE;
    scene.job[0] = lw_job_end(job);
    if (!scene.job[0]) scene.n_job = 0;
    return job;
}

static int chain_of_k(void) {
    int n = 0;
    for (struct lw_job *job = scene.n_job == 1 ? scene.job[0] : NULL; job;
         job = atomic_load(&job->then))
        n++;
    return n;
}

/* Redis grants four messages of key K when the handler thread has already ended the message before
 * them, but the worker does not know that yet. So they cannot be linked to that message. When the
 * first of the four starts, the other three must be linked to it. Otherwise a hot key would run one
 * message per turn for as long as messages come. */
bool a_chain_that_was_cut_is_linked_again(void) {
    scene.k_lingers = true;
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    arrive_k(0, 1);
    rounds(20);
    arrive_k(1, 3);
    finish_k();
    rounds(20);
    bool two = chain_of_k() == 2;
    arrive_k(3, 7);
    if (two) lw_worker_finished(scene.lw, end_one_of_k());
    round_of_all(); /* sends the settle that requests the four messages */
    struct lw_job *last = two ? end_one_of_k() : NULL;
    bool over = two && !scene.n_job;
    round_of_all(); /* in this round Redis grants the four messages */
    if (over) lw_worker_finished(scene.lw, last);
    round_of_all();
    int n = chain_of_k();
    if (n != 4)
        printf("%d of 4 messages are in the chain%s\n", n,
               over ? "" : ", and the situation was not built");
    scene.k_lingers = scene.x_lingers = false;
    rounds(20);
    end_worker();
    return over && n == 4;
}

/* Twenty messages of key K end within one turn. They ran one after the other, so they show no need
 * for a wider window: it must stay at its minimum, twice the number of handlers. In a wider window
 * the worker would take locks of other keys, and K would wait behind their messages. */
bool a_long_chain_leaves_the_window_as_it_is(void) {
    scene.k_lingers = true;
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    arrive_k(0, 20);
    rounds(20);
    bool built = chain_of_k() == 20;
    finish_k();
    size_t widest = 0;
    for (int i = 0; i < 10; i++) {
        round_of_all();
        if (scene.lw->window > widest) widest = scene.lw->window;
    }
    if (!built || widest != 8)
        printf("the window grew to %zu%s\n", widest,
               built ? "" : ", and the situation was not built");
    end_worker();
    return built && widest == 8;
}

/* Ends the first job of each key in its thread, which continues with the next job of the key, as a
 * handler of batches does. Reports all ended jobs to the worker. */
static void end_first_of_each(void) {
    struct lw_job *ended[JOBS];
    int n = 0, left = 0;
    for (int i = 0; i < scene.n_job; i++) {
        ended[n] = scene.job[i];
        ended[n]->outcome = LW_DONE;
        struct lw_job *next = lw_job_end(ended[n++]);
        if (next) scene.job[left++] = next;
    }
    scene.n_job = left;
    for (int i = 0; i < n; i++) lw_worker_finished(scene.lw, ended[i]);
}

/* A handler of batches ends one message of each of the eight keys that the window allows, and every
 * key has another message. The window must widen so that the next batch gets more keys. Otherwise
 * batches would stay small for as long as these keys have messages. */
bool a_batch_of_many_keys_widens_the_window(void) {
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"};
    enum { NAMES = sizeof names / sizeof names[0] };
    scene.all_linger = true;
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    for (int i = 0; i < 3 * NAMES; i++) arrive_one(1, i, names[i % NAMES]);
    rounds(20);
    bool built = scene.n_job == 8;
    end_first_of_each();
    rounds(1);
    size_t window = scene.lw->window;
    if (!built || window < 16)
        printf("the window is %zu after a batch of %s\n", window,
               built ? "eight keys" : "another size, so the situation was not built");
    scene.all_linger = scene.x_lingers = false;
    rounds(20);
    end_worker();
    return built && window >= 16;
}

/* A dead worker still holds the lock of record 0, which has no key, so the record waits in Redis
 * until the lock ends. The worker that claims the record then knows only its envelope. It must make
 * the record a dead letter without giving it to a handler. */
bool a_record_without_a_key_waits_in_redis(void) {
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    const char *lock[] = {"SET", "lw:{t.0}:lock:\001none:t:0:0", "1:1", "PX", "10000"};
    freeReplyObject(store_call(scene.store, 5, lock, NULL));
    lw_worker_arrived(
        scene.lw, 1,
        &(struct lw_arrival){.record = {.payload = lw_bytes_of("{}")}, .timestamp_ms = 1});
    rounds(400);
    bool built = count_of("LLEN", "lw:{t.0}:wait:\001none:t:0:0") == 1;
    rounds(2 * QUARANTINE);
    long long buried = count_of("XLEN", "lw:{t.0}:dead");
    if (!built || scene.n_effects || buried != 1)
        printf("waited: %d; runs of the handler: %d; dead letters: %lld\n", built, scene.n_effects,
               buried);
    end_worker();
    return built && !scene.n_effects && buried == 1;
}

/* Two records of key K wait in Redis until the lock of a dead worker ends. The worker claims them
 * one by one, and the first one is with its handler when this function returns. */
static bool two_heads_of_k(void) {
    scene.k_lingers = true;
    scene.run_ahead = 1;
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    const char *lock[] = {"SET", "lw:{t.0}:lock:K", "1:1", "PX", "10000"};
    freeReplyObject(store_call(scene.store, 5, lock, NULL));
    arrive_k(0, 2);
    rounds(2 * QUARANTINE);
    return count_of("LLEN", "lw:{t.0}:wait:K") == 2 && has_k();
}

/* Waits for the next settle. Returns true if it asks for no head. */
static bool asks_for_nothing(void) {
    int before = scene.settles;
    for (int i = 0; i < 500 && scene.settles == before; i++) round_of_all();
    return scene.settles > before && scene.go == LW_GO_DROP;
}

/* A settle is answered with an error after it executed, because its slot is being moved. The settle
 * that is sent again meets its own effects, so it must not ask for the next head. Nor may the one
 * that follows because the server lacks the script: it says nothing about the first one. */
bool a_settle_that_failed_in_the_middle(void) {
    bool built = two_heads_of_k() && finish_k();
    scene.fail_settle = true;
    round_of_all();
    built = built && !scene.fail_settle && scene.go == LW_GO_NEXT;
    command("SCRIPT", "FLUSH", NULL);
    bool good = built && asks_for_nothing() && asks_for_nothing();
    if (!good)
        printf("%s\n", built ? "the settle was not sent again as it should"
                             : "the situation was not built");
    scene.k_lingers = false;
    rounds(20);
    end_worker();
    return good;
}

/* Records of key K wait in Redis, and one of them is settled. Redis hands over the next one with
 * its answer, but meanwhile the worker has been told to stop. It must give the lane back, and not
 * leave it locked for a TTL. */
bool a_stop_while_the_next_head_comes(void) {
    scene.k_lingers = true;
    scene.x_lingers = false;
    scene.run_ahead = 1;
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    set_lock_of_k(true);
    arrive(1, 0, RECORDS);
    rounds(100);
    set_lock_of_k(false);
    for (int i = 0; i < 2 * QUARANTINE && !has_k(); i++) round_of_all();
    bool built = finish_k();
    int before = scene.n_reply;
    for (int i = 0; i < 50 && scene.n_reply == before; i++)
        scene.now_ms += 2, lw_worker_turn(scene.lw);
    built = built && scene.n_reply > before && k_is_locked();
    lw_worker_stop(scene.lw);
    rounds(300);
    bool locked = k_is_locked();
    if (!built || locked) printf("%s\n", built ? "the lane is still locked" : "it was not built");
    end_worker();
    return built && !locked;
}

/* A message of key K ends. Nobody waits for that, so the worker tells Redis of it later, together
 * with others. But if the next message of K comes meanwhile, it must run at once, and if none
 * comes, the lock must be given back before long. */
bool an_end_that_nobody_waits_for(void) {
    scene.k_lingers = true;
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    arrive_k(0, 1);
    rounds(20);
    bool built = finish_k();
    rounds(4);
    bool together = k_is_locked();
    arrive_k(1, 2);
    rounds(4);
    bool at_once = finish_k();
    rounds(20);
    bool locked = k_is_locked();
    if (!built || !together || !at_once || locked)
        printf("%s\n", !built      ? "it was not built"
                       : !together ? "the end was told by itself"
                       : !at_once  ? "the next message of the key waited"
                                   : "the lane is still locked");
    scene.k_lingers = false;
    end_worker();
    return built && together && at_once && !locked;
}

/* With queue.on_busy `latest`. Record 0 of key K is done, and not committed. Record 1 waits in
 * Redis. While the worker claims it, record 0 is read again. It is no newer message, so record 1
 * must run. */
bool an_older_record_is_read_again(void) {
    scene.k_lingers = true;
    begin_worker("a-1");
    scene.config->queue.on_busy = LW_BUSY_LATEST;
    assign(1);
    rounds(QUARANTINE);
    arrive_k(0, 1);
    rounds(20);
    bool built = finish_k();
    rounds(50);
    set_lock_of_k(true);
    arrive_k(1, 2);
    rounds(100);
    built = built && count_of("LLEN", "lw:{t.0}:wait:K") == 1;
    lw_worker_revoke(scene.lw, &(uint32_t){1}, 1, true);
    scene.committed = -1; /* the commit is lost */
    assign(2);
    set_lock_of_k(false);
    for (int i = 0; i < 2 * QUARANTINE && !scene.lw->shards[0].claim.n; i++) round_of_all();
    built = built && scene.lw->shards[0].claim.n == 1;
    arrive_one(2, 0, "K");
    rounds(4);
    bool runs = has_k() && !scene.counts.dropped;
    if (!built || !runs) printf("%s\n", built ? "record 1 does not run" : "it was not built");
    scene.k_lingers = false;
    rounds(20);
    end_worker();
    return built && runs;
}

/* Returns true if a settle is under way that names one message, and Redis answers that the message
 * is done. */
static bool named_is_done(void) {
    for (int i = 0; i < scene.n_reply; i++) {
        const redisReply *r = scene.reply[i];
        if (r->type != REDIS_REPLY_ARRAY || r->elements != 7 || !r->element[2]->str) continue;
        return r->element[2]->len == 1 && *r->element[2]->str == LW_NAMED_FINISHED;
    }
    return false;
}

/* Record 0 of partition 0 is with its handler while the partition goes and comes back. The worker
 * looks at its state, then the record ends, and then it is read again. It waits behind a record of
 * the same key of partition 1, and another one of partition 1 waits behind it. A settle names
 * record 0 as the next one, and Redis answers that it is done. But meanwhile partition 0 has been
 * taken away, so the chain begins with another record than the named one. This record is not done,
 * and must run. */
bool a_named_record_is_taken_away(void) {
    scene.k_lingers = true;
    scene.run_ahead = 1;
    begin_worker("a-1");
    lw_worker_assign(
        scene.lw,
        &(struct lw_assigned){
            .topic = "t", .partition = 1, .gen = OTHER, .committed = -1, .log_end = RECORDS});
    assign(1);
    rounds(QUARANTINE);
    arrive_k(0, 1);
    rounds(20);
    lw_worker_revoke(scene.lw, &(uint32_t){1}, 1, true);
    assign(2);
    rounds(20);
    bool built = finish_k();
    rounds(20);
    arrive_one(OTHER, 5, "K");
    rounds(20);
    arrive_one(2, 0, "K");
    arrive_one(OTHER, 6, "K");
    built = built && finish_k();
    round_of_all(); /* sends the settle that names record 0 */
    built = built && scene.go == LW_GO_KEEP && named_is_done();
    lw_worker_revoke(scene.lw, &(uint32_t){2}, 1, true);
    rounds(20);
    bool runs = finish_k() && scene.effect[scene.n_effects - 1] == 6;
    if (!built || !runs)
        printf("%s\n", built ? "record 6 of partition 1 does not run" : "it was not built");
    scene.k_lingers = false;
    rounds(20);
    end_worker();
    return built && runs;
}
