#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes what a release publishes. usage: packaging/release.sh check|notes|build
#
#   check   names everything that keeps the newest commit from being released; exit 1 if there is something
#   notes   prints the version's part of CHANGELOG.md
#   build   checks, then builds the packages and the tarball into build/release, with SHA256SUMS and NOTES.md. Needs root, for the chroots
#
# A release is a commit whose version (include/latchwork/lock.h) has a dated part in CHANGELOG.md. Publish it with the two commands that build
# prints at its end.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^#define LATCHWORK_VERSION "\(.*\)"/\1/p' include/latchwork/lock.h)
heading=$(grep -m 1 "^## \[" CHANGELOG.md || true)
wrong=0

say() {
    echo "release: $*" >&2
    wrong=1
}

same_version() { # FILE PATTERN: the first match of this pattern of sed, which has the version as its group
    local found
    found=$(sed -nE "s/.*$2.*/\\1/p" "$1" | head -n 1)
    [ "$found" = "$version" ] || say "$1 has version \"$found\", include/latchwork/lock.h has \"$version\"; write the same into both"
}

check() {
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || say "the version \"$version\" in include/latchwork/lock.h is not MAJOR.MINOR.PATCH"
    if [[ $heading == "## [$version] - unreleased" ]]; then
        say "CHANGELOG.md says that $version is unreleased; write the day of the release, as in \"## [$version] - $(date -u +%Y-%m-%d)\""
    elif ! [[ $heading =~ ^"## [$version] - "[0-9]{4}-[0-9]{2}-[0-9]{2}$ ]]; then
        say "the newest part of CHANGELOG.md is \"$heading\", expected \"## [$version] - YYYY-MM-DD\""
    fi
    same_version sdk/node/package.json '"version": "([^"]*)"'
    same_version sdk/python/pyproject.toml '^version = "([^"]*)"'
    [ -z "$(git status --porcelain)" ] || say "the tree has changes that are not committed: $(git status --porcelain | head -n 3 | tr '\n' ' ')"
    if git rev-parse -q --verify "refs/tags/v$version" >/dev/null && [ "$(git rev-parse "v$version^{commit}")" != "$(git rev-parse HEAD)" ]; then
        say "the tag v$version exists at another commit; raise the version"
    fi
    return $wrong
}

notes() {
    awk -v heading="## [$version]" 'index($0, "## [") == 1 {inside = index($0, heading) == 1; next} inside' CHANGELOG.md | sed '/./,$!d'
}

build() {
    local out=build/release distribution
    rm -rf "$out"
    mkdir -p "$out"
    for distribution in bookworm trixie; do
        packaging/deb.sh build "$distribution" >/dev/null
        packaging/deb.sh twice "$distribution"
        packaging/deb.sh test "$distribution"
        cp build/deb/"$distribution"/*.deb "$out/"
    done
    packaging/tarball.sh build >/dev/null
    packaging/tarball.sh twice
    packaging/tarball.sh test
    cp build/tarball/*.tar.gz build/tarball/*.spdx.json "$out/"
    notes >"$out/NOTES.md"
    (cd "$out" && sha256sum -- *.deb *.tar.gz *.spdx.json >SHA256SUMS)
    ls -l "$out"
    echo "To publish: git tag -s v$version -m 'Latchwork $version' && git push origin v$version"
    echo "then upload what is in $out, with NOTES.md as the text."
}

case ${1:-} in
check) check ;;
notes) notes ;;
build)
    check
    build
    ;;
*)
    sed -n '3s/^.*usage: /usage: /p' "$0" >&2
    exit 2
    ;;
esac
