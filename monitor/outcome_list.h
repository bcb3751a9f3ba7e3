/* SPDX-License-Identifier: Apache-2.0 */
/* The last outcomes of all workers, newest first, read from the rings on the board
 * (consumer/outcomes.h). Reading does not disturb the workers. */
#ifndef LW_MONITOR_OUTCOME_LIST_H
#define LW_MONITOR_OUTCOME_LIST_H

#include "consumer/board.h"
#include "monitor/http.h"

#include <jansson.h>

struct lw_outcome_query {
    struct lw_bytes key;   /* the key whose outcomes are listed; p is NULL: any key */
    struct lw_bytes match; /* glob pattern of the key; p is NULL: any key */
    unsigned ends;         /* bit mask of the wanted values of enum lw_end; 0: all */
    int64_t after_ms;      /* only outcomes after this wall time are listed */
    size_t limit;
};

enum { LW_OUTCOMES_LIMIT = 100, LW_OUTCOMES_LIMIT_MAX = 500 };
/* Parses the query of GET /api/v1/outcomes. If a part of the query is not understood, fills the
 * response *a with an error and returns false. */
bool lw_outcome_query(const struct lw_http_request *q, struct lw_outcome_query *out,
                      struct lw_http_answer *a);

/* lw_outcomes_list() returns a list of outcomes. lw_outcomes_answer() returns the body of the
 * response to GET /api/v1/outcomes, which also says since when the list is complete. Both return
 * new references. */
json_t *lw_outcomes_list(const struct lw_board *b, const struct lw_outcome_query *q);
json_t *lw_outcomes_answer(const struct lw_board *b, const struct lw_outcome_query *q);
enum { LW_HOT_LOOK = 2048, LW_HOT_MS = 60000 };
/* Returns the keys with the most outcomes in the minute before `wall_ms`, at most `limit` keys, as
 * [{"key","outcomes"}], a new reference. Looks only at the newest LW_HOT_LOOK outcomes. */
json_t *lw_outcomes_hot(const struct lw_board *b, int64_t wall_ms, size_t limit);

#endif
