/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/page.h"

#include <string.h>

const struct lw_page_file *lw_page_find(const char *path) {
    for (size_t i = 0; i < lw_page_n_files; i++)
        if (!strcmp(path, lw_page_files[i].path)) return &lw_page_files[i];
    return NULL;
}
