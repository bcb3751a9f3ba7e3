# SPDX-License-Identifier: Apache-2.0
"""Runs a Kafka with every kind of security: certificates, SASL mechanisms, an authorizer. All files
are in the test's own folder."""

import os
import subprocess

from .kafka import Kafka
from .ports import free_ports
from .process import Failure

PASSWORD = "hunter-secret-7"
LISTENERS = ("SASL", "SASLTLS", "MTLS", "EXPIRED", "OTHERNAME")
JAAS = "org.apache.kafka.common.security.%s required %s;"


def openssl(directory, *args):
    done = subprocess.run(
        ["openssl"] + list(args),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
    )
    if done.returncode:
        raise Failure("openssl %s: %s" % (args[0], done.stdout.decode()))


class Certificates:
    """Makes two CAs in `directory`, and certificates that they sign. NAME.pem is a certificate and
    NAME.key its key. Kafka reads NAME.both.pem, which contains the key, the certificate and the
    CA."""

    def __init__(self, directory):
        self.dir = directory
        os.makedirs(directory)
        for ca in ("ca", "strange-ca"):
            openssl(
                directory,
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-keyout",
                ca + ".key",
                "-out",
                ca + ".pem",
                "-subj",
                "/CN=" + ca,
                "-days",
                "30",
            )

    def path(self, name):
        return os.path.join(self.dir, name)

    def sign(self, name, names, days=30, ca="ca"):
        """Signs a certificate. `names` has the form of subjectAltName. With days=-1 the certificate
        has already expired."""
        with open(self.path(name + ".ext"), "w") as f:
            f.write("subjectAltName=%s\n" % names)
        openssl(
            self.dir,
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            name + ".key",
            "-out",
            name + ".csr",
            "-subj",
            "/CN=" + name,
        )
        openssl(
            self.dir,
            "x509",
            "-req",
            "-in",
            name + ".csr",
            "-CA",
            ca + ".pem",
            "-CAkey",
            ca + ".key",
            "-CAcreateserial",
            "-days",
            str(days),
            "-extfile",
            name + ".ext",
            "-out",
            name + ".pem",
        )
        openssl(
            self.dir, "pkcs8", "-topk8", "-nocrypt", "-in", name + ".key", "-out", name + ".pk8"
        )
        with open(self.path(name + ".both.pem"), "w") as out:
            for part in (name + ".pk8", name + ".pem", ca + ".pem"):
                with open(self.path(part)) as f:
                    out.write(f.read())


class SecureKafka(Kafka):
    """A Kafka with an open listener, whose clients have all rights, and a listener for each name in
    LISTENERS. `users` are the names that can log in with PLAIN and SCRAM."""

    def __init__(self, build, directory, users, *settings):
        os.makedirs(directory)
        self.certificates = Certificates(os.path.join(directory, "certificates"))
        self.certificates.sign("broker", "DNS:localhost,IP:127.0.0.1")
        self.certificates.sign("expired", "DNS:localhost,IP:127.0.0.1", days=-1)
        self.certificates.sign("othername", "DNS:kafka.example")
        first = free_ports(2 + len(LISTENERS))
        with open(os.path.join(directory, "port"), "w") as f:
            f.write(str(first))
        self.at = {name: "localhost:%d" % (first + 2 + i) for i, name in enumerate(LISTENERS)}
        self.format = [
            word
            for user in users
            for kind in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for word in ("--add-scram", "%s=[name=%s,password=%s]" % (kind, user, PASSWORD))
        ]
        super().__init__(
            build,
            directory,
            *self.listeners(first),
            *self.sasl(users),
            *self.tls(),
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users=User:ANONYMOUS",
            *settings,
        )

    def listeners(self, first):
        own = ",".join("%s://%s" % (name, at) for name, at in self.at.items())
        return [
            "listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d,%s"
            % (first, first + 1, own),
            "advertised.listeners=PLAINTEXT://127.0.0.1:%d,%s" % (first, own),
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,SASLTLS:SASL_SSL,MTLS:SSL,"
            "EXPIRED:SSL,OTHERNAME:SSL",
        ]

    @staticmethod
    def sasl(users):
        every = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
        plain = JAAS % (
            "plain.PlainLoginModule",
            " ".join('user_%s="%s"' % (user, PASSWORD) for user in users),
        )
        scram = JAAS % ("scram.ScramLoginModule", "")
        oauth = JAAS % (
            "oauthbearer.OAuthBearerLoginModule",
            'unsecuredLoginStringClaim_sub="broker"',
        )
        out = ["sasl.enabled.mechanisms=" + every]
        for listener in ("sasl", "sasltls"):
            out += [
                "listener.name.%s.%s.sasl.jaas.config=%s" % (listener, how, jaas)
                for how, jaas in (
                    ("plain", plain),
                    ("scram-sha-256", scram),
                    ("scram-sha-512", scram),
                    ("oauthbearer", oauth),
                )
            ]
        return out

    def tls(self):
        out = []
        for listener, certificate in (
            ("sasltls", "broker"),
            ("mtls", "broker"),
            ("expired", "expired"),
            ("othername", "othername"),
        ):
            prefix = "listener.name.%s.ssl." % listener
            out += [
                prefix + "keystore.type=PEM",
                prefix + "keystore.location=" + self.certificates.path(certificate + ".both.pem"),
                prefix + "truststore.type=PEM",
                prefix + "truststore.location=" + self.certificates.path("ca.pem"),
            ]
        return out + ["listener.name.mtls.ssl.client.auth=required"]

    def script(self, *args):
        os.environ["KAFKA_FORMAT_EXTRA"] = "\n".join(self.format)
        try:
            return super().script(*args)
        finally:
            del os.environ["KAFKA_FORMAT_EXTRA"]

    def allow(self, user, operation, kind, name):
        self.tool("allow", "User:" + user, operation, kind, name)

    def allow_all(self, user, group, topics, dead):
        self.allow(user, "read", "group", group)
        for topic in topics:
            self.allow(user, "read", "topic", topic)
        self.allow(user, "write", "topic", dead)

    def client(
        self, listener, mechanism=None, user=None, password=PASSWORD, ca="ca", certificate=None
    ):
        """Returns the contents of kafka.properties for a client of a listener."""
        out = {"bootstrap.servers": self.at[listener]}
        sasl, tls = listener.startswith("SASL"), listener != "SASL"
        out["security.protocol"] = {
            (True, False): "sasl_plaintext",
            (True, True): "sasl_ssl",
            (False, True): "ssl",
        }[sasl, tls]
        if mechanism:
            out["sasl.mechanism"] = mechanism
        if user:
            out.update({"sasl.username": user, "sasl.password": password})
        if tls:
            out["ssl.ca.location"] = self.certificates.path(ca + ".pem")
        if certificate:
            out.update(
                {
                    "ssl.certificate.location": self.certificates.path(certificate + ".pem"),
                    "ssl.key.location": self.certificates.path(certificate + ".key"),
                }
            )
        return out
