/* SPDX-License-Identifier: Apache-2.0 */
/* Scenes about messages that do not end at once: suspects, and retries that come later. */
#include "tests/sim/scenes/scene.h"

/* Three messages are suspects. They run beside messages of other keys, and only they are marked. */
bool suspects_run_beside_others(void) {
    enum { SUSPECTS = 3 };
    struct lw_err err = {0};
    scene.board = lw_board_open(1, &err);
    scene.all_linger = true;
    char text[32], key[8];
    for (int i = 0; i < SUSPECTS; i++) {
        snprintf(text, sizeof text, "t/0/%d", i);
        lw_seat_take(&scene.board->workers[0].seats[i], text, lw_bytes_of("k"), 1);
    }
    lw_board_suspect(scene.board, 0);
    begin_worker("a-1");
    assign(1);
    rounds(QUARANTINE);
    for (int i = 0; i < SUSPECTS + 2; i++) {
        snprintf(key, sizeof key, "s%d", i);
        arrive_one(1, i, key);
    }
    rounds(100);
    int marked = 0;
    bool right = scene.n_job == SUSPECTS + 2;
    for (int i = 0; i < scene.n_job; i++) {
        marked += scene.job[i]->suspect;
        if (scene.job[i]->suspect != (scene.job[i]->offset < SUSPECTS)) right = false;
    }
    if (!right) printf("%d messages run, %d of them as suspects\n", scene.n_job, marked);
    for (int i = 0; i < scene.n_job; i++) finish(scene.job[i]);
    scene.n_job = 0;
    rounds(100);
    bool forgotten = scene.board->n_suspects == 0;
    end_worker();
    lw_board_close(scene.board);
    return right && forgotten;
}

/* The handler of record 1 (key X) asks for a retry that comes later and counts no attempt. The
 * other keys of the partition must run meanwhile, and record 1 must run at its time, not before,
 * and when the next tend has seen its lane. */
bool what_comes_back_later_holds_no_other_key(void) {
    enum { LATER_MS = 20000 };
    first_life();
    struct lw_job *x = scene.job[0];
    bool built = scene.n_job == 1 && has_key(x, 'X');
    scene.n_job = 0;
    if (built) {
        x->outcome = LW_RETRY;
        x->wait_ms = LATER_MS;
        x->uncounted = true;
        lw_job_end(x);
        lw_worker_finished(scene.lw, x);
    }
    int64_t due_ms = scene.now_ms + LATER_MS;
    arrive(1, 5, RECORDS);
    rounds(400);
    bool others = last_of_k(6) && scene.n_effects == RECORDS - 1;
    while (scene.now_ms < due_ms + LATER_MS && !scene.n_job) rounds(1);
    bool back = scene.n_job == 1 && scene.job[0]->offset == 1 && scene.job[0]->attempt == 1,
         in_time = scene.now_ms >= due_ms && scene.now_ms < due_ms + scene.ttl_ms / 4 + 200;
    scene.x_lingers = false;
    rounds(1000);
    if (!built || !others || !back || !in_time || scene.committed != RECORDS)
        printf("%s%s%s%s committed %lld\n", built ? "" : "the situation was not built;",
               others ? "" : "others waited;", back ? "" : "it did not come back as attempt 1;",
               in_time ? "" : "not at its time;", (long long)scene.committed);
    end_worker();
    return built && others && back && in_time && scene.committed == RECORDS;
}

/* Record 1 comes back without an attempt for longer than retry.max_age_s, first because nothing of
 * it could be sent, then because its handler says so. Only the latter may count in the end. */
bool an_outage_counts_no_attempt(void) {
    enum { LATER_MS = 20000, TIMES = 5 };
    first_life();
    bool right = scene.n_job == 1 && has_key(scene.job[0], 'X');
    for (int i = 0; i <= TIMES && right; i++) {
        struct lw_job *x = scene.job[0];
        scene.n_job = 0;
        x->outcome = LW_RETRY;
        x->wait_ms = LATER_MS;
        x->uncounted = true;
        x->unsent = i < TIMES;
        lw_job_end(x);
        lw_worker_finished(scene.lw, x);
        for (int64_t due_ms = scene.now_ms + 2 * LATER_MS; scene.now_ms < due_ms && !scene.n_job;)
            rounds(1);
        int attempt = i < TIMES ? 1 : 2;
        right = scene.n_job == 1 && scene.job[0]->attempt == attempt;
        if (!right) printf("time %d: %d runs, not one as attempt %d\n", i, scene.n_job, attempt);
    }
    scene.x_lingers = false;
    rounds(1000);
    end_worker();
    return right;
}
