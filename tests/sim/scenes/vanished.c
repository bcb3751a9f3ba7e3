/* SPDX-License-Identifier: Apache-2.0 */
/* Scenes about waiting lists that vanish from Redis, and the stream that names them. */
#include "tests/sim/scenes/scene.h"

static void set_vanished(bool broken) {
    const char *set[] = {"SET", "lw:{t.0}:vanished", "x"}, *del[] = {"DEL", "lw:{t.0}:vanished"};
    freeReplyObject(broken ? store_call(scene.store, 3, set, NULL)
                           : store_call(scene.store, 2, del, NULL));
}

/* The worker cannot read the Redis stream that names vanished waiting lists. It must report the
 * error and continue, and stop reporting it once the stream can be read again. */
bool an_unreadable_stream_of_vanished_lists(void) {
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    bool good = !scene.lw->shards[0].vanished.failed_ms;
    set_vanished(true);
    rounds(2 * LOOK);
    good = good && scene.lw->shards[0].vanished.failed_ms && scene.lw->shards[0].phase == READY;
    set_vanished(false);
    rounds(2 * LOOK);
    good = good && !scene.lw->shards[0].vanished.failed_ms;
    end_worker();
    return good;
}

/* Somebody else has added more entries to the stream of vanished lists than one call reads, and
 * none of them can be read. An entry behind them must still be noticed. */
bool unreadable_entries_before_a_vanished_list(void) {
    begin_worker("a-1");
    command("SADD", "lw:{t.0}:paused", "P");
    lw_worker_assign(scene.lw, &(struct lw_assigned){.topic = "t", .gen = 1, .committed = -1});
    rounds(QUARANTINE);
    arrive_one(1, 0, "P");
    rounds(LOOK);
    for (int i = 0; i < 100; i++) {
        const char *words[] = {"XADD", "lw:{t.0}:vanished", "*", "a", "b", "c", "d"};
        freeReplyObject(store_call(scene.store, 7, words, NULL));
    }
    scene.sought = -1;
    command("DEL", "lw:{t.0}:wait:P", NULL);
    for (int i = 0; i < 2 * QUARANTINE && scene.sought < 0; i++) rounds(1);
    bool good = scene.sought == 0;
    if (!good) printf("record 0 was not read again\n");
    end_worker();
    return good;
}

/* Keys P and Q are paused, so their records wait in Redis. The waiting list of Q is deleted, and
 * the worker begins to read the partition from Kafka again. When it has read only record 0 again,
 * the waiting list of P is deleted too, and a record of another partition begins a new list of P.
 * Records 1 and 2 of P were in the deleted list. They must be read once more, although the worker
 * had not reached them yet when their list was deleted. */
bool a_list_vanishes_while_records_are_read_again(void) {
    begin_worker("a-1");
    command("SADD", "lw:{t.0}:paused", "P");
    command("SADD", "lw:{t.0}:paused", "Q");
    /* At the assignment both partitions are empty (log_end is 0), and the group has no commit. */
    lw_worker_assign(scene.lw, &(struct lw_assigned){.topic = "t", .gen = 1, .committed = -1});
    lw_worker_assign(scene.lw, &(struct lw_assigned){
                                   .topic = "t", .partition = 1, .gen = OTHER, .committed = -1});
    rounds(QUARANTINE);
    arrive_one(1, 0, "Q"), arrive_one(1, 1, "P"), arrive_one(1, 2, "P");
    rounds(LOOK);
    scene.sought = -1;
    command("DEL", "lw:{t.0}:wait:Q", NULL);
    for (int i = 0; i < QUARANTINE && scene.sought < 0; i++) rounds(1);
    bool built = scene.sought == 0;
    arrive_one(1, 0, "Q");
    command("DEL", "lw:{t.0}:wait:P", NULL);
    arrive_one(OTHER, 0, "P");
    rounds(LOOK);
    scene.sought = -1;
    arrive_one(1, 1, "P"), arrive_one(1, 2, "P");
    rounds(QUARANTINE);
    bool good = built && scene.sought == 0;
    if (!good)
        printf("%s\n",
               built ? "records 1 and 2 were not read again" : "the situation was not built");
    end_worker();
    return good;
}
