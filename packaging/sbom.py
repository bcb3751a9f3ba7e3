#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the bill of materials of an unpacked tarball as SPDX 2.3 in JSON. It lists each file with
its checksums, and each library with the version and licence of its Debian package.
usage: sbom.py FOLDER NAME VERSION PART… >FILE

  FOLDER  the content of the tarball
  NAME    the name of the tarball
  PART    static:PACKAGE                   a Debian package whose library is linked into the program
          shared:PACKAGE:FILE              a Debian package, and its library FILE in FOLDER
          source:NAME:VERSION:LICENSE:URL  other software that is linked into the program

SOURCE_DATE_EPOCH is the time of creation. The same input gives the same bytes."""

import datetime
import hashlib
import json
import os
import re
import subprocess
import sys

# SPDX names of licences, by their short names in debian/copyright. A licence is translated only if
# it certainly applies to the library, because a package's main licence may differ from it.
SPDX = {
    "Apache-2.0": "Apache-2.0",
    "Apache-2": "Apache-2.0",
    "Expat": "MIT",
    "MIT": "MIT",
    "BSD-2-clause": "BSD-2-Clause",
    "BSD-2-Clause": "BSD-2-Clause",
    "BSD-3-clause": "BSD-3-Clause",
    "BSD-3-Clause": "BSD-3-Clause",
    "curl": "curl",
    "ISC": "ISC",
    "Zlib": "Zlib",
    "zlib": "Zlib",
    "PostgreSQL": "PostgreSQL",
}


def package_of(name):
    """Returns (version, source, licence or None, homepage) of an installed Debian package."""
    text = subprocess.check_output(
        ["dpkg-query", "-W", "-f=${Version}\t${source:Package}\t${Homepage}", name]
    ).decode()
    version, source, home = text.split("\t")
    found = []
    try:
        with open("/usr/share/doc/%s/copyright" % name.split(":")[0], errors="replace") as f:
            head = re.search(r"^Files: \*\n(?:(?!Files:).*\n)*?License: (.+)$", f.read(), re.M)
            found = head.group(1).strip().split() if head else []
    except OSError:
        pass
    licence = SPDX.get(found[0]) if len(found) == 1 else None
    return version, source, licence, home


def entry(spdx_id, name, version, licence, where, purl=None):
    out = {
        "SPDXID": spdx_id,
        "name": name,
        "versionInfo": version,
        "downloadLocation": where or "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence or "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "supplier": "NOASSERTION",
    }
    if purl:
        out["licenseComments"] = "The text is in share/doc/latchwork/licenses/" + name
        out["externalRefs"] = [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": purl,
            }
        ]
    return out


def ref(text):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", text)


def files(folder):
    out = []
    for base, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(base, name)
            if os.path.islink(path):
                continue
            with open(path, "rb") as f:
                data = f.read()
            relative = os.path.relpath(path, folder)
            out.append(
                {
                    "SPDXID": ref(
                        "File-%s-%s" % (hashlib.sha1(relative.encode()).hexdigest()[:8], relative)
                    ),
                    "fileName": "./" + relative,
                    "checksums": [
                        {"algorithm": "SHA1", "checksumValue": hashlib.sha1(data).hexdigest()},
                        {"algorithm": "SHA256", "checksumValue": hashlib.sha256(data).hexdigest()},
                    ],
                    "licenseConcluded": "NOASSERTION",
                    "licenseInfoInFiles": ["NOASSERTION"],
                    "copyrightText": "NOASSERTION",
                }
            )
    return out


def relation(a, kind, b):
    return {"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}


def main(folder, name, version, parts):
    listed = files(folder)
    by_name = {f["fileName"]: f["SPDXID"] for f in listed}
    sums = sorted(f["checksums"][0]["checksumValue"] for f in listed)
    program = entry("SPDXRef-latchwork", "latchwork", version, "Apache-2.0", None)
    program.update(
        filesAnalyzed=True,
        primaryPackagePurpose="APPLICATION",
        hasFiles=[f["SPDXID"] for f in listed],
        licenseInfoFromFiles=["NOASSERTION"],
        packageVerificationCode={
            "packageVerificationCodeValue": hashlib.sha1("".join(sums).encode()).hexdigest()
        },
    )
    packages, relations = (
        {"latchwork": program},
        [relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-latchwork")],
    )
    for part in parts:
        kind, rest = part.split(":", 1)
        if kind == "source":
            package, its_version, licence, where = rest.split(":", 3)
            packages[package] = entry(
                ref("Source-" + package),
                package,
                its_version,
                licence,
                where,
                "pkg:generic/%s@%s" % (package, its_version),
            )
            relations.append(relation("SPDXRef-latchwork", "STATIC_LINK", ref("Source-" + package)))
            continue
        package, _, path = rest.partition(":")
        if package not in packages:
            its_version, source, licence, home = package_of(package)
            packages[package] = entry(
                ref("Package-" + package),
                package,
                its_version,
                licence,
                home,
                "pkg:deb/debian/%s@%s?upstream=%s"
                % (package, its_version.replace("+", "%2B"), source),
            )
            relations.append(
                relation(
                    "SPDXRef-latchwork",
                    "STATIC_LINK" if kind == "static" else "DYNAMIC_LINK",
                    ref("Package-" + package),
                )
            )
        if path:
            relations.append(
                relation(by_name["./" + path], "GENERATED_FROM", ref("Package-" + package))
            )
    created = datetime.datetime.fromtimestamp(
        int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc
    ).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": "https://spdx.org/spdxdocs/%s-%s"
        % (name, program["packageVerificationCode"]["packageVerificationCodeValue"]),
        "creationInfo": {"created": created, "creators": ["Tool: latchwork-sbom-" + version]},
        "packages": list(packages.values()),
        "files": listed,
        "relationships": relations,
    }
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__.split("\n\n")[0])
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
