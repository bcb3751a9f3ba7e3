/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the handler type exec with many messages in flight and real processes. One script plays
 * every kind of handler, and the payload says which kind. */
#include "tests/support/feed_fixture.h"

/* The script answers no message while further messages arrive. After 100 ms without input, it
 * answers its messages, newest first, except those with the payload "keep" or "polite". */
static const char script[] =
    "import sys, json, os, select, time\n"
    "here, mode = sys.argv[1], sys.argv[2]\n"
    "out, kept, text = 1, [], b''\n"
    "def note(name, line):\n"
    "    with open(here + '/' + name, 'a') as f: f.write(line + '\\n')\n"
    "def say(x): os.write(out, (x if isinstance(x, str) else json.dumps(x)).encode() + b'\\n')\n"
    "def await_go():\n"
    "    note('waits', '')\n"
    "    while not os.path.exists(here + '/go'): time.sleep(0.01)\n"
    "def answer(m):\n"
    "    what, i = m.get('payload') or '', m['id']\n"
    "    if what == 'retry': return {'id': i, 'outcome': 'retry', 'reason': 'no'}\n"
    "    if what == 'odd': return {'id': i, 'outcome': 'perhaps'}\n"
    "    if what == 'pair': say('{\"id\":\"%s\",\"outcome\":\"dead\",\"reason\":\"\\\\ud83d x\"}' % i); "
    "return None\n"
    "    if what == 'twice': say({'id': i, 'outcome': 'done'})\n"
    "    if what == 'late':\n"
    "        if m['attempt'] == 2: say({'id': i, 'attempt': 1, 'outcome': 'done'})\n"
    "        return {'id': i, 'attempt': m['attempt'], 'outcome': 'retry', 'reason': "
    "'of %d' % m['attempt']}\n"
    "    if what == 'foreign': return {'id': 'x/9/9', 'outcome': 'done'}\n"
    "    if what == 'big': return {'id': i, 'outcome': 'retry', 'reason': 'r' * 900000}\n"
    "    if what == 'die': os._exit(3)\n"
    "    if what == 'die later': await_go(); os._exit(3)\n"
    "    if what == 'half': os.write(out, ('{\"id\": \"%s\", \"outc' % i).encode()); os._exit(4)\n"
    "    return {'id': i, 'outcome': 'done'}\n"
    "def batch(all):\n"
    "    answers = []\n"
    "    for m in all:\n"
    "        answers.append(answer(m))\n"
    "        if answers[-1]['outcome'] != 'done': break\n"
    "    if mode == 'lines': [say(a) for a in answers]\n"
    "    else: say({'batch': answers})\n"
    "def take(m):\n"
    "    if 'cancel' in m:\n"
    "        note('cancelled', m['cancel'])\n"
    "        for k in [k for k in kept if k['id'] == m['cancel'] and k['payload'] == 'polite']:\n"
    "            kept.remove(k); say({'id': k['id'], 'outcome': 'retry'})\n"
    "    elif 'batch' in m: note('requests', 'batch %d' % len(m['batch'])); batch(m['batch'])\n"
    "    elif m['payload'] == 'leave': say({'id': m['id'], 'outcome': 'done'}); await_go(); "
    "os._exit(3)\n"
    "    else: note('requests', m['id']); kept.append(m)\n"
    "if mode == 'fds':\n"
    "    os.write(4, b'{\"hello\":1}\\n'); out = 4\n"
    "    print('a stray word behind it', flush=True)\n"
    "if mode == 'future': os.write(4, b'{\"hello\":2}\\n')\n"
    "while True:\n"
    "    if not select.select([3 if mode == 'fds' else 0], [], [], 0.1)[0]:\n"
    "        note('together', str(len(kept)))\n"
    "        for m in [m for m in reversed(kept) if m['payload'] not in ('keep', 'polite')]: "
    "kept.remove(m); a = answer(m); a and say(a)\n"
    "        continue\n"
    "    chunk = os.read(3 if mode == 'fds' else 0, 1 << 20)\n"
    "    if not chunk: break\n"
    "    *lines, text = (text + chunk).split(b'\\n')\n"
    "    for line in lines: take(json.loads(line))\n";

static void open_fx(struct fx *x, const char *mode, int processes, int in_flight, int batch) {
    make_folder(x);
    char path[256];
    snprintf(path, sizeof path, "%s/handler.py", x->folder);
    fx_write(path, script);
    const char *python = access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3";
    x->c = fx_config("{\"command\":[\"%s\",\"%s\",\"%s\",\"%s\"],\"processes\":%d,\"in_flight\":%d,"
                     "\"batch\":%d}",
                     python, path, x->folder, mode, processes, in_flight, batch);
    start_handler(x, &lw_handler_exec);
}

static void close_fx(struct fx *x) {
    stop_handler(x);
    fx_remove(x->folder);
}

static void warm_up(struct fx *x) {
    /* after a process has answered once, each failure counts an attempt of its message */
    submit(x, 0, "ok");
    await(x, 1);
    assert_int_equal(outcome(x, 0), LW_DONE);
}

static void test_as_many_as_in_flight_in_any_order(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "-", 1, 8, 1);
    struct lw_job *jobs[20];
    for (int i = 0; i < 20; i++) jobs[i] = job(&x, i, i == 5 ? "big" : "ok");
    lw_feed_submit(x.feed, jobs, 20);
    wait_for(has_ended(&x, 20));
    /* the newest of the first eight messages is answered first */
    assert_int_equal(x.ended[0]->offset, 7);
    for (int i = 0; i < 20; i++) assert_int_equal(outcome(&x, i), i == 5 ? LW_RETRY : LW_DONE);
    assert_int_equal(strlen(x.j[5].job.reason), LW_REASON_MAX - 1);
    /* the limit of 8 messages in flight was reached at least twice */
    assert_true(count(&x, "together", "8\n") >= 2);
    assert_int_equal(count(&x, "together", "9"), 0);
    close_fx(&x);
}

/* Jobs must go to the process that has the fewest messages in flight. */
static void test_processes_share(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "-", 3, 4, 1);
    struct lw_job *jobs[6];
    uint32_t loads[3];
    for (int i = 0; i < 6; i++) jobs[i] = job(&x, i, "keep");
    lw_feed_submit(x.feed, jobs, 6);
    wait_for(count(&x, "requests", "t/0/") == 6);
    assert_int_equal(lw_handler_exec.loads(x.h, loads, 3), 3);
    for (int i = 0; i < 3; i++) assert_int_equal(loads[i], 2);
    for (int i = 0; i < 6; i++) atomic_store(&x.j[i].lease.cancelled, true);
    await(&x, 6);
    close_fx(&x);
}

/* One of 64 messages kills the process. No attempt may be counted until that message has run
 * alone. */
static void test_a_death_in_company_charges_nobody(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "-", 2, MOST, 1);
    warm_up(&x);
    bool open[MOST];
    int rounds = 0;
    for (int i = 0; i < MOST; i++) open[i] = true;
    for (; open[33] && rounds < 8; rounds++) {
        struct lw_job *jobs[MOST];
        size_t n = 0;
        for (int i = 0; i < MOST; i++)
            if (open[i]) jobs[n++] = job(&x, i, i == 33 ? "die" : "ok");
        lw_feed_submit(x.feed, jobs, n);
        await(&x, n);
        for (int i = 0; i < MOST; i++) {
            if (!open[i]) continue;
            assert_true(outcome(&x, i) == LW_BACK ||
                        outcome(&x, i) == (i == 33 ? LW_RETRY : LW_DONE));
            open[i] = outcome(&x, i) == LW_BACK;
        }
    }
    assert_contains(x.j[33].job.reason, "exited with status 3 before it answered");
    assert_true(rounds >= 2 && rounds <= 5);
    submit(&x, 33, "die"); /* the message stays a suspect, so its next attempt runs alone at once */
    submit(&x, 34, "ok");
    await(&x, 2);
    assert_int_equal(outcome(&x, 33), LW_RETRY);
    assert_int_equal(outcome(&x, 34), LW_DONE);
    close_fx(&x);
}

/* If a process ends within an answer that contains the id of its message, an attempt must be
 * counted for that message alone. */
static void test_the_one_that_is_named_is_charged(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "-", 1, 8, 1);
    warm_up(&x);
    struct lw_job *jobs[4];
    for (int i = 0; i < 4; i++) jobs[i] = job(&x, i, i == 2 ? "half" : "keep");
    lw_feed_submit(x.feed, jobs, 4);
    await(&x, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(outcome(&x, i), i == 2 ? LW_RETRY : LW_BACK);
    assert_contains(x.j[2].job.reason, "exited with status 4");
    close_fx(&x);
}

/* A malformed answer that names its message must fail only this message. The process goes on, and
 * its other messages are done. */
static void test_a_malformed_answer_fails_only_its_message(void **state) {
    (void)state;
    static const struct {
        const char *payload, *reason;
        enum lw_outcome outcome;
    } cases[] = {{"odd", "unknown outcome \"perhaps\"", LW_RETRY},
                 {"pair", "\xef\xbf\xbd x", LW_DEAD}};
    for (size_t k = 0; k < 2; k++) {
        struct fx x;
        open_fx(&x, "-", 1, 8, 1);
        warm_up(&x);
        struct lw_job *jobs[4];
        for (int i = 0; i < 4; i++) jobs[i] = job(&x, i, i == 2 ? cases[k].payload : "ok");
        lw_feed_submit(x.feed, jobs, 4);
        await(&x, 4);
        for (int i = 0; i < 4; i++)
            assert_int_equal(outcome(&x, i), i == 2 ? cases[k].outcome : LW_DONE);
        assert_contains(x.j[2].job.reason, cases[k].reason);
        /* none was sent a second time */
        assert_int_equal(count(&x, "requests", "t/0/"), 5);
        close_fx(&x);
    }
}

/* An answer to an attempt that has ended must not end the attempt that is under way, and costs
 * nobody anything. */
static void test_late_answers_are_ignored(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "-", 1, 8, 1);
    warm_up(&x);
    submit(&x, 1, "twice");
    submit(&x, 2, "late");
    await(&x, 2);
    assert_int_equal(outcome(&x, 1), LW_DONE);
    assert_int_equal(outcome(&x, 2), LW_RETRY);
    assert_string_equal(x.j[2].job.reason, "of 1");
    struct lw_job *again = job(&x, 2, "late");
    again->attempt = 2;
    lw_feed_submit(x.feed, &again, 1);
    submit(&x, 3, "ok");
    await(&x, 2);
    assert_int_equal(outcome(&x, 2), LW_RETRY);
    assert_string_equal(x.j[2].job.reason, "of 2");
    assert_int_equal(outcome(&x, 3), LW_DONE);
    close_fx(&x);
}

static bool has_load(const struct fx *x, uint32_t load) {
    uint32_t loads[1] = {0};
    return lw_handler_exec.loads(x->h, loads, 1) == 1 && loads[0] == load;
}

static void let_it_die(const struct fx *x) {
    char path[256];
    snprintf(path, sizeof path, "%s/go", x->folder);
    fx_write(path, "");
}

/* A process dies after it has read one of its three messages. An attempt must be counted for that
 * message alone. */
static void test_what_was_not_read_is_not_charged(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "-", 1, 8, 1);
    warm_up(&x);
    submit(&x, 1, "die later");
    wait_for(count(&x, "waits", "\n") == 1);
    for (int i = 2; i <= 3; i++) submit(&x, i, "ok");
    wait_for(has_load(&x, 3));
    let_it_die(&x);
    await(&x, 3);
    for (int i = 1; i <= 3; i++) assert_int_equal(outcome(&x, i), i == 1 ? LW_RETRY : LW_BACK);
    assert_contains(x.j[1].job.reason, "exited with status 3 before it answered");
    close_fx(&x);
}

/* A process ends after an answer, before it has read its next messages. No attempt may be counted
 * for these messages, even if there is only one, and they must not become suspects. */
static void test_a_process_that_has_read_nothing_more(void **state) {
    (void)state;
    for (int n = 1; n <= 2; n++) {
        struct fx x;
        open_fx(&x, "-", 1, 8, 1);
        submit(&x, 0, "leave");
        await(&x, 1);
        wait_for(count(&x, "waits", "\n") == 1);
        for (int i = 1; i <= n; i++) submit(&x, i, "ok");
        wait_for(has_load(&x, (uint32_t)n));
        let_it_die(&x);
        await(&x, (size_t)n);
        for (int i = 1; i <= n; i++) assert_int_equal(outcome(&x, i), LW_BACK);
        struct lw_job *jobs[2] = {NULL};
        for (int i = 1; i <= n; i++) jobs[i - 1] = job(&x, i, "ok");
        lw_feed_submit(x.feed, jobs, (size_t)n);
        await(&x, (size_t)n);
        for (int i = 1; i <= n; i++) assert_int_equal(outcome(&x, i), LW_DONE);
        /* if the two messages were suspects, they would never be in flight together */
        if (n == 2) assert_int_equal(count(&x, "together", "2\n"), 1);
        close_fx(&x);
    }
}

static void test_a_foreign_id_in_company_charges_nobody(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "-", 1, 8, 1);
    warm_up(&x);
    struct lw_job *jobs[3];
    for (int i = 0; i < 3; i++) jobs[i] = job(&x, i, i == 2 ? "foreign" : "keep");
    lw_feed_submit(x.feed, jobs, 3);
    await(&x, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(outcome(&x, i), LW_BACK);
    close_fx(&x);
}

static void test_cancel_one_of_many(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "-", 1, 8, 1);
    submit(&x, 1, "polite");
    submit(&x, 2, "keep");
    wait_for(count(&x, "requests", "t/0/") == 2);
    atomic_store(&x.j[1].lease.cancelled, true);
    await(&x, 1);
    assert_int_equal(outcome(&x, 1), LW_BACK);
    assert_int_equal(count(&x, "cancelled", "t/0/1\n"), 1);
    submit(&x, 3, "ok"); /* the same process still runs, and still has message 2 */
    await(&x, 1);
    assert_int_equal(outcome(&x, 3), LW_DONE);
    /* message 2 ignores its cancellation, so its process is killed */
    atomic_store(&x.j[2].lease.cancelled, true);
    submit(&x, 4, "keep");
    wait_for(count(&x, "requests", "t/0/4") == 1);
    await(&x, 2);
    assert_int_equal(outcome(&x, 2), LW_BACK);
    assert_int_equal(outcome(&x, 4), LW_BACK);
    close_fx(&x);
}

static void test_time_of_one_of_many_is_over(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "-", 1, 8, 1);
    warm_up(&x);
    struct lw_job *jobs[] = {job(&x, 1, "polite"), job(&x, 2, "keep")};
    jobs[0]->give_up_ms = lw_boot_ms() + 300;
    lw_feed_submit(x.feed, jobs, 2);
    await(&x, 1);
    /* message 1 was asked to stop and did so, and message 2 is still running */
    assert_int_equal(outcome(&x, 1), LW_RETRY);
    assert_contains(x.j[1].job.reason, "timed out");
    struct lw_job *deaf = job(&x, 3, "keep");
    deaf->give_up_ms = lw_boot_ms() + 300;
    lw_feed_submit(x.feed, &deaf, 1);
    await(&x, 2);
    assert_int_equal(outcome(&x, 3), LW_RETRY);
    assert_int_equal(outcome(&x, 2), LW_BACK);
    close_fx(&x);
}

/* A batch has five messages of one key. The fourth message is not done, so the fifth must neither
 * run nor be reported. */
static void test_a_batch_of_one_key(void **state) {
    (void)state;
    static const char *const modes[] = {"lines", "-"};
    for (size_t k = 0; k < 2; k++) {
        struct fx x;
        open_fx(&x, modes[k], 1, 8, 3);
        run_chain_of_five(&x, "retry");
        assert_int_equal(count(&x, "requests", "batch 3\n"), 1);
        assert_int_equal(count(&x, "requests", "batch 2\n"), 1);
        close_fx(&x);
    }
}

/* One malformed member of a batch's answer must not discard the members before it. */
static void test_a_malformed_member_of_a_batch(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "-", 1, 8, 3);
    warm_up(&x);
    struct lw_job *jobs[3];
    for (int i = 1; i <= 3; i++) jobs[i - 1] = job(&x, i, i == 2 ? "odd" : "ok");
    for (int i = 0; i < 2; i++) assert_true(lw_job_then(jobs[i], jobs[i + 1]));
    lw_feed_submit(x.feed, jobs, 1);
    await(&x, 2);
    assert_int_equal(outcome(&x, 1), LW_DONE);
    assert_int_equal(outcome(&x, 2), LW_RETRY);
    assert_contains(x.j[2].job.reason, "unknown outcome \"perhaps\"");
    close_fx(&x);
}

/* If a process dies with a batch, no attempt may be counted for any message of the batch, and from
 * then on each of these messages must run alone. */
static void test_a_batch_that_kills(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "-", 1, 8, 4);
    warm_up(&x);
    struct lw_job *jobs[3];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) jobs[i] = job(&x, i, i == 1 ? "die" : "ok");
        for (int i = 0; i < 2; i++) assert_true(lw_job_then(jobs[i], jobs[i + 1]));
        lw_feed_submit(x.feed, jobs, 1);
        await(&x, round ? 2 : 1);
        assert_int_equal(outcome(&x, 0), round ? LW_DONE : LW_BACK);
    }
    assert_int_equal(outcome(&x, 1), LW_RETRY);
    assert_int_equal((int)outcome(&x, 2), 99);
    close_fx(&x);
}

static void test_descriptors_of_its_own(void **state) {
    (void)state;
    char *folder = fx_folder(), log[256];
    snprintf(log, sizeof log, "%s/log", folder);
    int keep = fx_capture(log);
    struct fx x;
    open_fx(&x, "fds", 1, 4, 1);
    for (int i = 0; i < 4; i++) submit(&x, i, "ok");
    wait_for(has_ended(&x, 4));
    enum lw_outcome first = outcome(&x, 0);
    close_fx(&x);
    fx_release(keep);
    char *said = fx_read(log);
    if (first != LW_DONE) fail_msg("%s", said);
    free(said);
    char *text = fx_read(log);
    assert_contains(text, "stdout: a stray word behind it");
    free(text);
    fx_remove(folder);
}

static void test_another_version(void **state) {
    (void)state;
    struct fx x;
    char why[512];
    open_fx(&x, "future", 1, 4, 1);
    wait_for(lw_handler_exec.health(x.h, why, sizeof why) == LW_UNABLE);
    assert_contains(why, "speaks version 2 of the protocol, this Latchwork version 1");
    close_fx(&x);
}

int main(void) {
    lw_log_setup(LW_LOG_INFO, false, "test");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_many_as_in_flight_in_any_order),
        cmocka_unit_test(test_processes_share),
        cmocka_unit_test(test_a_death_in_company_charges_nobody),
        cmocka_unit_test(test_the_one_that_is_named_is_charged),
        cmocka_unit_test(test_a_malformed_answer_fails_only_its_message),
        cmocka_unit_test(test_late_answers_are_ignored),
        cmocka_unit_test(test_what_was_not_read_is_not_charged),
        cmocka_unit_test(test_a_process_that_has_read_nothing_more),
        cmocka_unit_test(test_a_foreign_id_in_company_charges_nobody),
        cmocka_unit_test(test_cancel_one_of_many),
        cmocka_unit_test(test_time_of_one_of_many_is_over),
        cmocka_unit_test(test_a_batch_of_one_key),
        cmocka_unit_test(test_a_malformed_member_of_a_batch),
        cmocka_unit_test(test_a_batch_that_kills),
        cmocka_unit_test(test_descriptors_of_its_own),
        cmocka_unit_test(test_another_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
