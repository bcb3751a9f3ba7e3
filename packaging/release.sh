#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: packaging/release.sh version MAJOR.MINOR.PATCH | check | notes | build | sums FILE...
#
# Prepares a release: its version, its notes, its packages and its tarball.
#
#   version  writes the new version into every file that contains it
#   check    prints everything that keeps the newest commit from being released; exits with 1 if
#            there is anything
#   notes    prints the section of this version in CHANGELOG.md
#   build    checks, then builds the packages, the tarball and the SDKs' wheel and npm tarball into
#            build/release, with SHA256SUMS and NOTES.md; needs root, for the chroots
#   sums     writes SHA256SUMS of these files and, if LW_SIGN_KEY names a key of gpg, its signature
#            SHA256SUMS.asc; `build` does the same
#
# A commit can be released if its version (include/latchwork/lock.h) has a section with a date in
# CHANGELOG.md. `build` prints the commands that publish the release. CONTRIBUTING.md has all
# steps of a release.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^#define LATCHWORK_VERSION "\(.*\)"/\1/p' include/latchwork/lock.h)
heading=$(grep -m 1 "^## \[" CHANGELOG.md || true)
wrong=0

say() {
    echo "release: $*" >&2
    wrong=1
}

# Prints the files that contain the version, one per line as FILE PATTERN; the group in the pattern
# matches the version. The manual pages are not in the list, because `make reference` writes them.
places() {
    cat <<'END'
README.md latchwork:([0-9.]+)
include/latchwork/lock.h LATCHWORK_VERSION "([^"]*)"
sdk/node/package.json "version": "([^"]*)"
sdk/python/pyproject.toml ^version = "([^"]*)"
sdk/python/latchwork/__init__.py ^__version__ = "([^"]*)"
sdk/python/README.md latchwork-([0-9.]+)-py3
sdk/node/README.md latchwork-([0-9.]+)\.tgz
sdk/go/README.md [@/]v([0-9.]+)
deploy/helm/latchwork/Chart.yaml ^version: (.*)
deploy/helm/latchwork/Chart.yaml ^appVersion: "([^"]*)"
deploy/helm/latchwork/ci/all-values.yaml tag: ([0-9.]+)
deploy/container/Dockerfile latchwork:([0-9.]+)
doc/how-to/install.md latchwork-([0-9.]+)-linux
doc/how-to/kubernetes.md latchwork:([0-9.]+)
doc/how-to/kubernetes.md tag: ([0-9.]+)
END
}

check_places() {
    local file pattern found
    while read -r file pattern; do
        found=$(sed -nE "s/.*$pattern.*/\\1/p" "$file" | sort -u | tr '\n' ' ')
        [ "$found" = "$version " ] ||
            say "$file has version \"${found% }\", include/latchwork/lock.h has \"$version\"; write the same into both"
    done < <(places)
    found=$(sed -nE 's/^#define LATCHWORK_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+)/\2/p' \
        include/latchwork/lock.h | tr '\n' .)
    [ "$found" = "$version." ] ||
        say "include/latchwork/lock.h has the numbers \"${found%.}\" and the text \"$version\"; write the same into both"
}

set_version() { # VERSION
    local file pattern major minor patch
    [[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || {
        echo "release: the version \"$1\" is not MAJOR.MINOR.PATCH" >&2
        exit 2
    }
    IFS=. read -r major minor patch <<<"$1"
    while read -r file pattern; do
        sed -E -i "/$pattern/s/${version//./\\.}/$1/g" "$file"
    done < <(places)
    sed -E -i "s/^(#define LATCHWORK_VERSION_MAJOR) .*/\1 $major/; s/^(#define LATCHWORK_VERSION_MINOR) .*/\1 $minor/; s/^(#define LATCHWORK_VERSION_PATCH) .*/\1 $patch/" \
        include/latchwork/lock.h
    echo "Every file has version $1 now. Next: a part \"## [$1] - YYYY-MM-DD\" in CHANGELOG.md, then: make reference && git commit -a"
}

check() {
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] ||
        say "the version \"$version\" in include/latchwork/lock.h is not MAJOR.MINOR.PATCH"
    if [[ $heading == "## [$version] - unreleased" ]]; then
        say "CHANGELOG.md says that $version is unreleased; write the day of the release, as in \"## [$version] - $(date -u +%Y-%m-%d)\""
    elif ! [[ $heading =~ ^"## [$version] - "[0-9]{4}-[0-9]{2}-[0-9]{2}$ ]]; then
        say "the newest part of CHANGELOG.md is \"$heading\", expected \"## [$version] - YYYY-MM-DD\""
    fi
    check_places
    while read -r line; do
        say "$line: still says that there is no release; mend the sentence"
    done < <(grep -nEo 'There is no release yet|is not released yet' \
        SECURITY.md README.md doc/how-to/install.md doc/explanation/compared.md)
    [ -z "$(git status --porcelain)" ] ||
        say "the tree has changes that are not committed: $(git status --porcelain | head -n 3 | tr '\n' ' ')"
    if git rev-parse -q --verify "refs/tags/v$version" >/dev/null &&
        [ "$(git rev-parse "v$version^{commit}")" != "$(git rev-parse HEAD)" ]; then
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
    packaging/sdk.sh "$out"
    tests/cli/test_sdk_go.sh >/dev/null
    notes >"$out/NOTES.md"
    (cd "$out" && sums -- *.deb *.tar.gz *.spdx.json *.whl *.tgz)
    ls -l "$out"
    echo "To publish:"
    echo "    git tag -s v$version -m 'Latchwork $version'"
    echo "    git tag -s sdk/go/v$version -m 'The Go SDK of Latchwork $version'"
    echo "    git push origin v$version sdk/go/v$version"
    echo "Then upload what is in $out, with NOTES.md as the text."
}

sums() {
    sha256sum "$@" >SHA256SUMS
    [ -z "${LW_SIGN_KEY-}" ] ||
        gpg --batch --yes --armor --local-user "$LW_SIGN_KEY" --detach-sign SHA256SUMS
}

case ${1:-} in
sums)
    shift
    cd "$OLDPWD"
    sums "$@"
    ;;
version)
    [ $# -eq 2 ] || { echo "usage: packaging/release.sh version MAJOR.MINOR.PATCH" >&2; exit 2; }
    set_version "$2"
    ;;
check) check ;;
notes) notes ;;
build)
    check
    build
    ;;
*)
    sed -n 's/^# usage: /usage: /p' "$0" >&2
    exit 2
    ;;
esac
