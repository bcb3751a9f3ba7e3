#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Embeds the Markdown pages of the commands in a C file. The name of a page is the name of its
# folder.
#   usage: scripts/embed-pages.sh cli/page.md cli/run/page.md ... > pages.c
echo '#include "cli/reference/private.h"'
echo 'const struct reference_page reference_pages[] = {'
for page; do
    echo "    {\"$(basename "$(dirname "$page")")\","
    sed 's/\\/\\\\/g; s/"/\\"/g; s/^/     "/; s/$/\\n"/' "$page"
    echo '    },'
done
echo '};'
echo 'const size_t reference_n_pages = sizeof reference_pages / sizeof *reference_pages;'
