/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tls.h"

#include "base/bytes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* --- settings --------------------------------------------------------------------------------- */

int lw_tls_copy(const struct lw_tls *from, struct lw_tls *out, struct lw_err *err) {
    *out = (struct lw_tls){.on = from->on, .no_verify = from->no_verify};
    if (lw_text_copy(&out->ca_file, from->ca_file) &&
        lw_text_copy(&out->cert_file, from->cert_file) &&
        lw_text_copy(&out->key_file, from->key_file) &&
        lw_text_copy(&out->server_name, from->server_name))
        return 0;
    lw_tls_free(out);
    return lw_fail_memory(err);
}

void lw_tls_free(struct lw_tls *t) {
    free(t->ca_file);
    free(t->cert_file);
    free(t->key_file);
    free(t->server_name);
    *t = (struct lw_tls){0};
}

/* --- OpenSSL's way to the socket: its own would raise SIGPIPE --------------------------------- */

static int fd_of(BIO *b) { return (int)(intptr_t)BIO_get_data(b); }

static int bio_write(BIO *b, const char *p, int n) {
    BIO_clear_retry_flags(b);
    ssize_t sent;
    do sent = send(fd_of(b), p, (size_t)n, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno == EAGAIN) BIO_set_retry_write(b);
    return (int)sent;
}

static int bio_read(BIO *b, char *p, int n) {
    BIO_clear_retry_flags(b);
    ssize_t got;
    do got = recv(fd_of(b), p, (size_t)n, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) BIO_set_retry_read(b);
    return (int)got;
}

static long bio_ctrl(BIO *b, int command, long number, void *pointer) {
    (void)b, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static int bio_create(BIO *b) {
    BIO_set_init(b, 1);
    return 1;
}

/* Returns the functions by which OpenSSL reads from and writes to our socket. The table of these
 * functions is created once per process. If memory runs out, the next connection tries to create
 * the table again. */
static const BIO_METHOD *bio_method(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static BIO_METHOD *made;
    pthread_mutex_lock(&mutex);
    if (!made)
        made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket without SIGPIPE");
    if (made)
        BIO_meth_set_write(made, bio_write), BIO_meth_set_read(made, bio_read),
            BIO_meth_set_ctrl(made, bio_ctrl), BIO_meth_set_create(made, bio_create);
    pthread_mutex_unlock(&mutex);
    return made;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Sets *err to OpenSSL's last failure, and clears OpenSSL's list of errors. */
static int fail_openssl(struct lw_err *err, const char *what, const char *file) {
    unsigned long code = ERR_peek_last_error();
    const char *reason = ERR_GET_LIB(code) == ERR_LIB_SYS ? strerror(ERR_GET_REASON(code))
                                                          : ERR_reason_error_string(code);
    int error = errno;
    ERR_clear_error();
    if (ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE) return lw_fail_memory(err);
    if (!file) return lw_fail(err, "%s: %s", what, reason ? reason : "OpenSSL failed");
    /* open the file here, because OpenSSL's own text about a missing file is hard to read */
    FILE *f = fopen(file, "re");
    if (!f) return lw_fail(err, "%s %s can't be read: %s", what, file, strerror(errno));
    fclose(f);
    errno = error;
    return lw_fail(err, "%s %s can't be used: %s", what, file, reason ? reason : "not in PEM form");
}

static int no_passphrase(char *p, int size, int writing, void *ctx) {
    /* this callback keeps OpenSSL from asking for a password on the terminal */
    (void)p, (void)size, (void)writing, (void)ctx;
    return 0;
}

static int load_files(SSL_CTX *ctx, const struct lw_tls *t, struct lw_err *err) {
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    if (t->ca_file ? !SSL_CTX_load_verify_locations(ctx, t->ca_file, NULL)
                   : !SSL_CTX_set_default_verify_paths(ctx))
        return fail_openssl(err, "TLS: ca_file", t->ca_file);
    if (!t->cert_file) return 0;
    const char *key = t->key_file ? t->key_file : t->cert_file;
    if (SSL_CTX_use_certificate_chain_file(ctx, t->cert_file) != 1)
        return fail_openssl(err, "TLS: cert_file", t->cert_file);
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)
        return fail_openssl(err, "TLS: key_file", key);
    return 0;
}

static SSL_CTX *open_context(const struct lw_tls *t, struct lw_err *err) {
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (!ctx) return fail_openssl(err, "TLS", NULL), NULL;
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(ctx, t->no_verify ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    if (!load_files(ctx, t, err)) return ctx;
    SSL_CTX_free(ctx);
    return NULL;
}

static bool is_address(const char *host) {
    unsigned char any[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, any) == 1 || inet_pton(AF_INET6, host, any) == 1;
}

/* Requires that the server's certificate is for `host`, a name or an address. A name, but not an
 * address, is also sent in the first TLS message (SNI). */
static bool expect_name(SSL *ssl, const char *host) {
    X509_VERIFY_PARAM *p = SSL_get0_param(ssl);
    if (is_address(host)) return X509_VERIFY_PARAM_set1_ip_asc(p, host);
    X509_VERIFY_PARAM_set_hostflags(p, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    /* avoid the macro SSL_set_tlsext_host_name(), which casts away const, because clang refuses
     * that */
    void *name = (void *)(uintptr_t)host;
    return X509_VERIFY_PARAM_set1_host(p, host, 0) &&
           SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name);
}

static bool put_on_socket(SSL *ssl, int fd) {
    const BIO_METHOD *method = bio_method();
    BIO *b = method ? BIO_new(method) : NULL;
    if (!b) return false;
    BIO_set_data(b, (void *)(intptr_t)fd);
    SSL_set_bio(ssl, b, b);
    SSL_set_connect_state(ssl);
    return true;
}

SSL *lw_tls_open(const struct lw_tls *t, const char *host, int fd, struct lw_err *err) {
    SSL_CTX *ctx = open_context(t, err);
    if (!ctx) return NULL;
    SSL *ssl = SSL_new(ctx);
    SSL_CTX_free(ctx); /* free our reference; the SSL object has its own */
    const char *name = t->server_name ? t->server_name : host;
    if (ssl && (!name || expect_name(ssl, name)) && put_on_socket(ssl, fd)) return ssl;
    if (ssl) SSL_free(ssl);
    fail_openssl(err, "TLS", NULL);
    return NULL;
}

/* --- what went wrong -------------------------------------------------------------------------- */

static int fail_expired(X509 *cert, struct lw_err *err) {
    char when[64] = "an unknown time";
    BIO *b = BIO_new(BIO_s_mem());
    if (b && cert && ASN1_TIME_print(b, X509_get0_notAfter(cert))) {
        int n = BIO_read(b, when, sizeof when - 1);
        when[n > 0 ? n : 0] = '\0';
    }
    if (b) BIO_free(b);
    return lw_fail(err, "TLS: the server's certificate, or its CA's, has expired (%s); renew it",
                   when);
}

static int fail_name(SSL *ssl, struct lw_err *err) {
    const char *wanted = X509_VERIFY_PARAM_get0_host(SSL_get0_param(ssl), 0);
    char *address = wanted ? NULL : X509_VERIFY_PARAM_get1_ip_asc(SSL_get0_param(ssl));
    lw_fail(err,
            "TLS: the server's certificate is not for %s; connect by a name that it carries, or "
            "set redis.tls.server_name",
            wanted    ? wanted
            : address ? address
                      : "this address");
    OPENSSL_free(address);
    return -1;
}

static int fail_verify(SSL *ssl, long why, struct lw_err *err) {
    switch (why) {
    case X509_V_ERR_CERT_HAS_EXPIRED: {
        X509 *cert = SSL_get1_peer_certificate(ssl);
        fail_expired(cert, err);
        X509_free(cert);
        return -1;
    }
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH: return fail_name(ssl, err);
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        return lw_fail(err,
                       "TLS: the server's certificate is signed by no CA that is trusted here "
                       "(%s); set redis.tls.ca_file to its CA",
                       X509_verify_cert_error_string(why));
    default:
        return lw_fail(err, "TLS: the server's certificate is refused: %s",
                       X509_verify_cert_error_string(why));
    }
}

static const struct {
    int reason;
    const char *means;
} alerts[] = {
    {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED,
     "the server asks for a client certificate; set redis.tls.cert_file and redis.tls.key_file"},
    {SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE,
     "the server refuses the handshake; it may ask for a client certificate (redis.tls.cert_file)"},
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA, "the server does not trust the CA of redis.tls.cert_file"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN,
     "the server refuses the certificate in redis.tls.cert_file"},
    {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE,
     "the server refuses the certificate in redis.tls.cert_file"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, "the certificate in redis.tls.cert_file has expired"},
    {SSL_R_WRONG_VERSION_NUMBER,
     "the server does not speak TLS on this port; use redis://, or its TLS port"},
    {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, "the server speaks no TLS version from 1.2 on"},
};

static int fail_protocol(SSL *ssl, unsigned long code, struct lw_err *err) {
    int reason = ERR_GET_REASON(code);
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
        return fail_verify(ssl, SSL_get_verify_result(ssl), err);
    if (reason == ERR_R_MALLOC_FAILURE) return lw_fail_memory(err);
    if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) return lw_fail(err, "closed by the server");
    for (size_t i = 0; i < sizeof alerts / sizeof *alerts; i++)
        if (alerts[i].reason == reason) return lw_fail(err, "TLS: %s", alerts[i].means);
    const char *text = ERR_reason_error_string(code);
    return lw_fail(err, "TLS: %s", text ? text : "unknown error");
}

int lw_tls_fail(SSL *ssl, int result, struct lw_err *err) {
    int error = errno, kind = SSL_get_error(ssl, result);
    /* Take the last error, because an expired certificate in the chain leaves other errors before
     * it. */
    unsigned long code = ERR_peek_last_error();
    ERR_clear_error();
    if (code) return fail_protocol(ssl, code, err);
    if (kind == SSL_ERROR_ZERO_RETURN || (kind == SSL_ERROR_SYSCALL && !error))
        return lw_fail(err, "closed by the server");
    return lw_fail(err, "%s",
                   kind == SSL_ERROR_SYSCALL ? strerror(error) : "TLS: the connection failed");
}
