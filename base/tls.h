/* SPDX-License-Identifier: Apache-2.0 */
/* TLS over a socket of our own. The code uses OpenSSL directly, so TLS works whatever hiredis was
 * built with.
 *
 * Files are read for each connection, so a replaced certificate is used from the next connection
 * on. The server's certificate and its name are verified. The version is at least TLS 1.2. Nothing
 * here raises SIGPIPE. */
#ifndef LW_BASE_TLS_H
#define LW_BASE_TLS_H

#include "base/err.h"

#include <stdbool.h>

struct ssl_st; /* the type SSL of OpenSSL */

struct lw_tls {
    bool on;
    bool no_verify;    /* true: accept any certificate */
    char *ca_file;     /* PEM file of the trusted CAs; NULL: those of the system */
    char *cert_file;   /* PEM file of the client's certificate; NULL: none */
    char *key_file;    /* PEM file of the client's key; NULL: the key is in cert_file */
    char *server_name; /* name that the server's certificate must have; NULL: the host of the URL */
};

/* Makes a deep copy of *from in *out. Returns -1 if an allocation failed; *out is then empty. */
int lw_tls_copy(const struct lw_tls *from, struct lw_tls *out, struct lw_err *err);
void lw_tls_free(struct lw_tls *t);

/* Makes the client's side of TLS on fd, which stays the caller's. Sends nothing yet. `host` is the
 * host of the URL. Returns NULL with *err, which names a file that cannot be used. Free the result
 * with SSL_free(). */
struct ssl_st *lw_tls_open(const struct lw_tls *t, const char *host, int fd, struct lw_err *err);

/* Sets *err to the meaning of a failed OpenSSL call. `result` is what the call returned, and errno
 * must be unchanged since. Always returns -1. */
int lw_tls_fail(struct ssl_st *ssl, int result, struct lw_err *err);

#endif
