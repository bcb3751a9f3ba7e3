/* SPDX-License-Identifier: Apache-2.0 */
/* The last outcomes of all workers, read from the rings on the board (consumer/outcomes.h), newest
 * first. Reading disturbs no worker. */
#ifndef LW_MONITOR_OUTCOME_LIST_H
#define LW_MONITOR_OUTCOME_LIST_H

#include "consumer/board.h"
#include "monitor/http.h"

#include <jansson.h>

struct lw_outcome_query {
    struct lw_bytes key; /* only outcomes of this key; p is NULL: of any */
    unsigned ends;       /* bit mask of enum lw_end: only these; 0: any */
    int64_t after_ms;    /* only outcomes after this wall time */
    size_t limit;
};

/* Reads the query of GET /api/v1/outcomes. Returns false after filling *a if a part of the query is
 * not understood. */
enum { LW_OUTCOMES_LIMIT = 100, LW_OUTCOMES_LIMIT_MAX = 500 };
bool lw_outcome_query(const struct lw_http_request *q, struct lw_outcome_query *out,
                      struct lw_http_answer *a);

struct lw_outcome_found {
    int worker;
    struct lw_outcome_record record;
};

/* Calls each() for the outcomes that match, newest first; at most `limit` times. */
void lw_outcomes_each(const struct lw_board *b, const struct lw_outcome_query *q,
                      void (*each)(void *ctx, const struct lw_outcome_found *f), void *ctx);
/* Return new references: a list of outcomes, and the answer to GET /api/v1/outcomes with that list
 * and how far back it reaches. */
json_t *lw_outcomes_list(const struct lw_board *b, const struct lw_outcome_query *q);
json_t *lw_outcomes_answer(const struct lw_board *b, const struct lw_outcome_query *q);
/* Returns the keys with the most outcomes in the last minute, at most `limit`, as
 * [{"key","outcomes"}]. Looks at the newest LW_HOT_LOOK outcomes only. */
enum { LW_HOT_LOOK = 2048, LW_HOT_MS = 60000 };
json_t *lw_outcomes_hot(const struct lw_board *b, int64_t wall_ms, size_t limit);

#endif
