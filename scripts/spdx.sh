#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lists each source file that does not name its licence in its first line (or in the second, after a
# #! line).
#   usage: spdx.sh   (from the top of the tree)
#   exit: 0 every file names its licence, 1 some files do not
set -eu
source='\.(c|h|lua|sh|py|mk|awk|bash|java|js|ts|go|ya?ml)$|(^|/)Makefile$|^\.ci/run$'
missing=$(git ls-files | grep -E "$source" | while read -r file; do
    awk 'FNR == 1 && /^#!/ { next } { exit !/SPDX-License-Identifier: Apache-2.0/ }' "$file" ||
        echo "$file: no SPDX-License-Identifier line"
done)
[ -n "$missing" ] || exit 0
echo "$missing"
exit 1
