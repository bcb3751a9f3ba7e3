/* SPDX-License-Identifier: Apache-2.0 */
/* TLS over a socket of our own, by OpenSSL, whatever hiredis was built with.
 *
 * Files are read anew for each connection, so that a certificate that was replaced is used from the next connection on. The server's
 * certificate is verified, and so is its name: TLS 1.2 at least. Nothing here raises SIGPIPE. */
#ifndef LW_BASE_REDIS_TLS_H
#define LW_BASE_REDIS_TLS_H

#include "base/err.h"

#include <stdbool.h>

struct ssl_st; /* OpenSSL's SSL */

struct lw_tls {
    bool on;
    bool no_verify;    /* accept any certificate */
    char *ca_file;     /* PEM; NULL: the system's CAs */
    char *cert_file;   /* PEM, of the client; NULL: none */
    char *key_file;    /* PEM; NULL: it stands in cert_file */
    char *server_name; /* which the certificate must carry; NULL: the host of the URL */
};

/* A deep copy into *out. -1 when an allocation failed; then *out holds nothing. */
int lw_tls_copy(const struct lw_tls *from, struct lw_tls *out, struct lw_err *err);
void lw_tls_free(struct lw_tls *t);

/* A client's side on fd, which stays the caller's; nothing is sent yet. host: of the URL. NULL with *err, which names a file that can't be
 * used. Free it with SSL_free(). */
struct ssl_st *lw_tls_open(const struct lw_tls *t, const char *host, int fd, struct lw_err *err);

/* What a failed call of OpenSSL means. `result` is what it returned; errno is as it was left. Always returns -1. */
int lw_tls_fail(struct ssl_st *ssl, int result, struct lw_err *err);

#endif
