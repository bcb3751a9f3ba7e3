#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Changes the relative links of installed pages so that they lead to installed files. A link in a
# page of the source tree names a file of that tree, but `make install` puts the files into other
# folders. A link to a file that is not installed becomes plain text.
#   usage: install-links.sh ROOT DOC SDK INCLUDE DATA
# ROOT is DESTDIR/PREFIX. The other arguments are the folders below ROOT, without a slash at the
# beginning or the end.
set -eu
root=$1 doc=$2
export doc sdk="$3" include="$4" data="$5"

# Prints the path in the source tree of an installed page. $1 is the path of the installed page
# below ROOT.
source_of() {
    case $1 in
    "$doc"/README.md | "$doc"/CHANGELOG.md) echo "${1#"$doc"/}" ;;
    "$doc"/examples/lock/*) echo "examples/${1#"$doc"/examples/lock/}" ;;
    "$doc"/examples/config/*) echo "config/examples/${1#"$doc"/examples/config/}" ;;
    "$doc"/examples/handlers/*) echo "handlers/examples/${1#"$doc"/examples/handlers/}" ;;
    "$doc"/examples/*) echo "${1#"$doc"/}" ;;
    "$doc"/*) echo "doc/${1#"$doc"/}" ;;
    *) echo "sdk/${1#"$sdk"/}" ;;
    esac
}

# shellcheck disable=SC2016
rewrite='
# Returns the path without "." and "..", and without a slash at its end.
function plain(path,    n, i, part, out, top) {
    n = split(path, part, "/")
    for (i = 1; i <= n; i++) {
        if (part[i] == "" || part[i] == ".") continue
        if (part[i] == "..") { if (top) top--; continue }
        out[++top] = part[i]
    }
    path = ""
    for (i = 1; i <= top; i++) path = path (i > 1 ? "/" : "") out[i]
    return path
}
function folder(path) { return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/) - 1) : "" }
# Returns where a file of the source tree is installed; "" if it is not.
function place(path) {
    if (path ~ /^(README|CHANGELOG)\.md$/ || path == "LICENSE") return ENVIRON["doc"] "/" path
    if (path ~ /^doc(\/|$)/) return ENVIRON["doc"] substr(path, 4)
    if (path ~ /^sdk(\/|$)/) return ENVIRON["sdk"] substr(path, 4)
    if (path ~ /^include\/latchwork/) return ENVIRON["include"] substr(path, 8)
    if (path ~ /^examples\/(inventory|redlock|rowlock)/)
        return ENVIRON["doc"] "/examples/lock" substr(path, 9)
    if (path ~ /^examples(\/|$)/) return ENVIRON["doc"] "/" path
    if (path ~ /^(config|handlers)\/examples/) {
        sub(/\/examples/, "", path)
        return ENVIRON["doc"] "/examples/" path
    }
    if (path ~ /^deploy\/(grafana-dashboard\.json|prometheus-alerts\.yml)$/)
        return ENVIRON["data"] substr(path, 7)
    return ""
}
# Returns the path of `to` as seen from the folder `from`.
function seen(from, to,    n, m, a, b, i, j, out) {
    n = split(from, a, "/")
    m = split(to, b, "/")
    for (i = 1; i <= n && i < m && a[i] == b[i]; i++) continue
    for (j = i; j <= n; j++) out = out "../"
    for (j = i; j <= m; j++) out = out b[j] (j < m ? "/" : "")
    return out
}
function exists(path) { return system("test -e \"" root "/" path "\"") == 0 }
{
    rest = $0
    line = ""
    while (match(rest, /\]\([^)#: ]+(#[^) ]*)?\)/)) {
        before = substr(rest, 1, RSTART - 1)
        link = substr(rest, RSTART + 2, RLENGTH - 3)
        rest = substr(rest, RSTART + RLENGTH)
        anchor = ""
        if ((hash = index(link, "#"))) {
            anchor = substr(link, hash)
            link = substr(link, 1, hash - 1)
        }
        to = place(plain(folder(page) "/" link))
        if (to != "" && exists(to)) {
            line = line before "](" seen(folder(installed), to) anchor ")"
            continue
        }
        # the text of the link begins at the last bracket that is open
        for (open = length(before); open && substr(before, open, 1) != "["; open--) continue
        line = line substr(before, 1, open - 1) substr(before, open + 1)
    }
    print line rest
}'

find "$root/$doc" "$root/$sdk" -name '*.md' | while read -r file; do
    installed=${file#"$root"/}
    awk -v root="$root" -v page="$(source_of "$installed")" -v installed="$installed" "$rewrite" \
        "$file" >"$file.new"
    cat "$file.new" >"$file"
    rm "$file.new"
done
