#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes certificates with openssl, for tests of TLS. The folder $1 then contains these files:
# ca.pem               signs all certificates except stranger.pem, which other-ca.pem signs
# server.pem/.key      for localhost, 127.0.0.1 and ::1
# named.pem/.key       for redis.internal only
# expired.pem/.key     for localhost and 127.0.0.1, but expired
# client.pem/.key      of a client
# stranger.pem/.key    of a client, signed by other-ca.pem
set -eu
cd "$1"

authority() { # usage: authority NAME. Makes a certificate that can sign others.
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1.key" \
        -out "$1.pem" -days 30 -subj "/CN=latchwork test $1" 2> /dev/null
}
# usage: signed NAME AUTHORITY SUBJECT-ALT-NAMES [x509 options]
# Makes a key, and a certificate that AUTHORITY signs.
signed() {
    name=$1 ca=$2 names=$3
    shift 3
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$name.key" \
        -out "$name.csr" -subj "/CN=$name" 2> /dev/null
    printf 'subjectAltName=%s\n' "$names" > "$name.ext"
    openssl x509 -req -in "$name.csr" -CA "$ca.pem" -CAkey "$ca.key" \
        -CAcreateserial -extfile "$name.ext" -out "$name.pem" "$@" 2> /dev/null || return 1
    rm "$name.csr" "$name.ext"
}

authority ca
authority other-ca
signed server ca DNS:localhost,IP:127.0.0.1,IP:::1 -days 30
signed named ca DNS:redis.internal -days 30
# Makes a certificate that has expired. For this, openssl 3.0 accepts a negative number of days, and
# later versions need two dates.
signed expired ca DNS:localhost,IP:127.0.0.1 -days -1 ||
    signed expired ca DNS:localhost,IP:127.0.0.1 -not_before 20200101000000Z \
        -not_after 20200201000000Z
signed client ca DNS:client -days 30
signed stranger other-ca DNS:stranger -days 30
