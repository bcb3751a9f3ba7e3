/* SPDX-License-Identifier: Apache-2.0 */
/* Answers GET ledger with the newest result of the ledger, and POST ledger by starting a job that
 * runs the ledger: it compares the data of the application in Kafka and Redis. */
#include "ops/ledger/ledger.h"

#include "api/job.h"

static int make(struct ops *o, json_t **result) {
    struct ledger_watch watch = {.cancel = &o->watch->cancel, .scanned = &o->watch->scanned};
    *result = ledger_result(o->c, &watch, &o->err);
    return *result ? 0 : -1;
}

static const struct api_work work_ledger = {.noun = "ledger", .verb = "run", .make = make};

int api_run_ledger(struct api_call *k) {
    k->execute = true; /* The ledger changes nothing, so it has no dry run. */
    return api_job_start(k, &work_ledger);
}

int api_ledger(struct api_call *k) {
    int64_t at_ms = 0;
    json_t *v = api_job_last(k, &work_ledger, &at_ms);
    if (v) {
        /* Add the member at_ms to a copy, because the result that the job keeps must stay
         * unchanged. */
        json_t *copy = json_copy(v);
        json_decref(v);
        json_object_set_new(copy, "at_ms", json_integer(at_ms));
        v = copy;
    }
    api_put(k, json_pack("{s:o}", "ledger", v ? v : json_null()));
    return 0;
}
