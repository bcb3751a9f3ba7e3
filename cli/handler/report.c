/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the results of the deliveries of a plan, and counts the results that differ from the
 * expected ones. */
#include "cli/handler/private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEY_COLUMN = 16, CANCEL_GRACE_MS = 500 };

static const char *const titles[ROUNDS] = {
    [ROUND_FIRST] = "",
    [ROUND_AGAIN] = "again, as after a crash: same identity, larger fence",
    [ROUND_CANCEL] = "cancelled after 20 ms, as if the lease were lost",
    [ROUND_AFTER] = "once more after the cancellation",
    [ROUND_STALE] = "new messages with a stale fence, as from a holder that was frozen",
};
static const char *const names[ROUNDS] = {"first", "again", "cancel", "after", "stale"};

/* --- judging ---------------------------------------------------------------------------------- */

static enum handler_result first_time(const struct handler_plan *plan,
                                      const struct handler_delivery *d) {
    return (enum handler_result)atomic_load(&plan->d[(size_t)(d - plan->d) % plan->n].result);
}

/* Returns the result that a delivery must have, or RESULT_NONE if no particular result is required.
 * If the first delivery of a message ended as retry, later deliveries of the message may end in any
 * way, because a service that was down may work again. */
static enum handler_result wanted(const struct handler_plan *plan,
                                  const struct handler_delivery *d) {
    if (d->round == ROUND_CANCEL || d->round == ROUND_STALE) return RESULT_NONE;
    if (d->m->expect || d->round == ROUND_FIRST) return d->m->expect;
    enum handler_result first = first_time(plan, d);
    return first == RESULT_RETRY ? RESULT_NONE : first;
}

static bool is_right(const struct handler_plan *plan, const struct handler_delivery *d) {
    enum handler_result got = (enum handler_result)atomic_load(&d->result), want = wanted(plan, d);
    if (got == RESULT_CRASHED || got == RESULT_STUCK) return false;
    if (want && got != want) return false;
    return d->round != ROUND_FIRST || !d->m->expect_reason ||
           strstr(d->reason, d->m->expect_reason);
}

/* Returns a comment on a delivery of the rounds ROUND_CANCEL and ROUND_STALE, in which no
 * particular result is required: whether the handler stopped, or whether its store refused the
 * stale fence. Returns "" for other deliveries. */
static const char *remark(const struct handler_delivery *d) {
    bool back = atomic_load(&d->result) == RESULT_BACK;
    if (d->round == ROUND_CANCEL && back)
        return d->took_us >= CANCEL_GRACE_MS * 1000
                   ? "stopped only when it was ended, 500 ms after the cancellation"
                   : "stopped";
    if (d->round == ROUND_STALE)
        return back ? "refused" : "not refused: the handler or its store does not compare fences";
    return "";
}

/* Writes when a retry comes back and whether it counts, as far as the handler has said so. */
static void asked(const struct handler_delivery *d, char *out, size_t size) {
    char wait[48] = "";
    if (d->wait_ms > 0) snprintf(wait, sizeof wait, "  after %.1f s", (double)d->wait_ms / 1000);
    snprintf(out, size, "%s%s", wait, d->uncounted ? "  counts no attempt" : "");
}

/* --- printing --------------------------------------------------------------------------------- */

static void print_text(const struct handler_report *r, const struct handler_delivery *d,
                       bool right) {
    char key[LW_KEY_TEXT] = "-", took[32] = "-", when[80];
    enum handler_result want = wanted(r->plan, d);
    if (!d->m->decided) lw_key_plain(d->m->key, key);
    if (d->took_us) snprintf(took, sizeof took, "%.1f ms", (double)d->took_us / 1000);
    const char *why = d->reason[0] ? d->reason : remark(d);
    asked(d, when, sizeof when);
    printf("%-20s %-*.60s %-8s %9s%s%s%s", d->identity, KEY_COLUMN, key,
           handler_result_words[atomic_load(&d->result)], took, when, *why ? "  " : "", why);
    if (!right && want) {
        printf("\n    %s:%zu: expected %s", r->messages, d->m->line, handler_result_words[want]);
        if (d->round == ROUND_FIRST && d->m->expect_reason)
            printf(", with a reason that contains \"%s\"", d->m->expect_reason);
        if (d->round != ROUND_FIRST && first_time(r->plan, d) == want)
            printf(": a message that comes again must have the outcome of the first time");
    }
    putchar('\n');
}

static void print_json(const struct handler_report *r, const struct handler_delivery *d,
                       bool right) {
    enum handler_result want = wanted(r->plan, d);
    char key[LW_KEY_TEXT] = "";
    json_t *o = json_pack("{ss ss ss si si}", "type", "message", "round", names[d->round], "id",
                          d->identity, "line", (int)d->m->line, "attempt", d->m->attempt);
    if (!d->m->decided) lw_key_plain(d->m->key, key);
    json_object_set_new(o, "key", d->m->decided ? json_null() : json_string(key));
    json_object_set_new(o, "fence", json_integer((json_int_t)d->fence));
    json_object_set_new(o, "outcome", json_string(handler_result_words[atomic_load(&d->result)]));
    json_t *reason = json_string(d->reason);
    json_object_set_new(o, "reason", reason ? reason : json_string("(not UTF-8)"));
    json_object_set_new(o, "took_us", json_integer(d->took_us));
    if (d->wait_ms > 0) json_object_set_new(o, "after_ms", json_integer(d->wait_ms));
    if (d->uncounted) json_object_set_new(o, "counts", json_false());
    if (want) json_object_set_new(o, "expected", json_string(handler_result_words[want]));
    json_object_set_new(o, "ok", json_boolean(right));
    json_dumpf(o, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(o);
}

void handler_report_more(struct handler_report *r) {
    size_t n = r->plan->n * (size_t)r->plan->rounds;
    for (; r->printed < n; r->printed++) {
        const struct handler_delivery *d = &r->plan->d[r->printed];
        enum handler_result got = (enum handler_result)atomic_load(&d->result);
        if (!got) break;
        if (!r->json && r->printed % r->plan->n == 0 && d->round) printf("%s:\n", titles[d->round]);
        if (d->m->decided && d->round) continue;
        bool right = is_right(r->plan, d);
        r->judged++;
        r->wrong += !right;
        if (d->round == ROUND_FIRST) r->counts[got]++;
        (r->json ? print_json : print_text)(r, d, right);
    }
    fflush(stdout);
}

static bool says_what_to_expect(const struct handler_plan *plan) {
    for (size_t i = 0; i < plan->n; i++)
        if (plan->d[i].m->expect) return true;
    return false;
}

static void print_judgement(const struct handler_report *r, bool good) {
    if (r->wrong && r->plan->rounds > 1)
        printf("; %zu of %zu deliveries not as expected\n", r->wrong, r->judged);
    else if (r->wrong)
        printf("; %zu not as expected\n", r->wrong);
    else if (!good)
        puts("; the test did not reach its end");
    else if (!says_what_to_expect(r->plan))
        puts("; no message has an expected outcome (\"expect\")");
    else
        puts("; as expected");
}

bool handler_report_end(struct handler_report *r) {
    const struct handler_plan *plan = r->plan;
    bool good = !r->wrong && !plan->failure[0] && r->printed == plan->n * (size_t)plan->rounds;
    if (r->json) {
        json_t *o = json_pack("{ss si si sb}", "type", "summary", "messages", (int)plan->n, "wrong",
                              (int)r->wrong, "ok", (int)good);
        for (int i = RESULT_DONE; i < RESULT_N; i++)
            if (r->counts[i])
                json_object_set_new(o, handler_result_words[i],
                                    json_integer((json_int_t)r->counts[i]));
        json_dumpf(o, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(o);
        return good;
    }
    printf("%zu message%s", plan->n, plan->n == 1 ? "" : "s");
    const char *comma = ":";
    for (int i = RESULT_DONE; i < RESULT_N; i++) {
        if (!r->counts[i]) continue;
        printf("%s %zu %s", comma, r->counts[i], handler_result_words[i]);
        comma = ",";
    }
    print_judgement(r, good);
    return good;
}
