/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/codes.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

static const struct {
    enum lw_outcome outcome;
    const char *word;
} outcomes[] = {{LW_DONE, LW_WORD_DONE}, {LW_RETRY, LW_WORD_RETRY}, {LW_DEAD, LW_WORD_DEAD},
                {LW_BACK, LW_WORD_BACK}, {LW_DEAD_SENT, "sent"},    {LW_LATER, "later"}};

enum { N_OUTCOMES = sizeof outcomes / sizeof outcomes[0] };

const char *lw_outcome_word(enum lw_outcome outcome) {
    int i = 0;
    while (i < N_OUTCOMES && outcomes[i].outcome != outcome) i++;
    assert(i < N_OUTCOMES);
    return outcomes[i].word;
}

bool lw_outcome_of(const char *word, enum lw_outcome *outcome) {
    for (int i = 0; i < N_OUTCOMES; i++)
        if (strcmp(word, outcomes[i].word) == 0) return *outcome = outcomes[i].outcome, true;
    return false;
}
