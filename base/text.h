/* SPDX-License-Identifier: Apache-2.0 */
/* A text that grows, for code that must not abort when memory runs out, because the lock library is
 * part of other people's programs.
 *
 * After a failed allocation, `failed` is set and everything added later is ignored. So a text can
 * be built in any number of steps, and `failed` is checked once at the end. The worker uses struct
 * lw_buf (base/bytes.h) instead, which aborts the process. */
#ifndef LW_BASE_TEXT_H
#define LW_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct lw_text {
    char *p; /* NULL while the text is empty */
    size_t n, cap;
    bool failed;
};

void lw_text_add(struct lw_text *t, const void *p, size_t n);
void lw_text_addf(struct lw_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Returns the text with a NUL at its end, or NULL if an allocation failed. The caller frees the
 * text. The struct lw_text is empty afterwards. */
char *lw_text_take(struct lw_text *t);
void lw_text_free(struct lw_text *t);

/* Sets *to to a copy of `from`, which may be NULL. If the allocation fails, sets *to to NULL and
 * returns false. */
bool lw_text_copy(char **to, const char *from);

#endif
