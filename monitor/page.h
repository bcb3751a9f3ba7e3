/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the page that the exporter serves at `/`. The build embeds them from monitor/page
 * (scripts/embed-files.sh). The page refers to other files only by relative URLs, so that it also
 * works behind a proxy that serves it below a path. */
#ifndef LW_MONITOR_PAGE_H
#define LW_MONITOR_PAGE_H

#include <stddef.h>

struct lw_page_file {
    const char *path; /* URL path: "/" for index.html, or "/NAME" */
    const char *type; /* content type for HTTP */
    struct lw_page_form {
        const unsigned char *bytes;
        size_t n;
        const char *tag; /* header ETag, which changes with the file */
    } form[2];           /* the file as it is, and the file compressed by gzip */
};

extern const struct lw_page_file lw_page_files[];
extern const size_t lw_page_n_files;

/* Content security policy: the page may load only files of this server, and no other page may embed
 * it. A value from a message can therefore not run as a script. */
#define LW_PAGE_CSP                                                                                \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' " \
    "data:; "                                                                                      \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/* Returns the file with this path, or NULL. */
const struct lw_page_file *lw_page_find(const char *path);

#endif
