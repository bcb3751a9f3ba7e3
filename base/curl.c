/* SPDX-License-Identifier: Apache-2.0 */
#include "base/curl.h"

void lw_curl_direct(CURL *easy) {
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
}

void lw_curl_tls(CURL *easy, const struct lw_tls *t) {
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, t->no_verify ? 0L : 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, t->no_verify ? 0L : 2L);
    if (t->ca_file) curl_easy_setopt(easy, CURLOPT_CAINFO, t->ca_file);
    if (t->ca_file) curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    if (t->cert_file) curl_easy_setopt(easy, CURLOPT_SSLCERT, t->cert_file);
    if (t->cert_file)
        curl_easy_setopt(easy, CURLOPT_SSLKEY, t->key_file ? t->key_file : t->cert_file);
}
