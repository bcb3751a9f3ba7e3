#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the URL of the mirror of Debian's packages: $LW_DEBIAN_MIRROR, or else the mirror that this
# machine's apt uses. Prints nothing if apt uses none.
[ -z "${LW_DEBIAN_MIRROR:-}" ] || { echo "$LW_DEBIAN_MIRROR"; exit; }
apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' \
    2>/dev/null |
    awk '$1 == "Debian" && $2 !~ /-/ {print $3; exit}'
