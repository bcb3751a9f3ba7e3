#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests packaging/release.sh: the mistakes for which it refuses to release a commit, and the release
# notes.
# Usage: tests/cli/test_release.sh [BUILD_DIR]
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/support/check.sh
. tests/support/check.sh
tree=$dir/tree
mkdir -p "$tree"
cp --parents packaging/release.sh include/latchwork/lock.h sdk/node/package.json \
    sdk/python/pyproject.toml sdk/python/latchwork/__init__.py sdk/*/README.md \
    deploy/helm/latchwork/Chart.yaml deploy/helm/latchwork/ci/all-values.yaml \
    deploy/container/Dockerfile doc/how-to/install.md \
    doc/how-to/kubernetes.md README.md doc/explanation/compared.md "$tree"
echo 'Fixes go to the newest minor version.' >"$tree/SECURITY.md"
version=$(sed -n 's/^#define LATCHWORK_VERSION "\(.*\)"/\1/p' include/latchwork/lock.h)
cd "$tree" || exit 1
# Remove the remarks that there is no release yet, as one does before a release.
sed -i '/ is not released yet/d; /There is no release yet/d' README.md doc/how-to/install.md \
    doc/explanation/compared.md
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org \
    GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org

changelog() {
    printf '# Changelog\n\n## %s\n\n### Added\n\n- A lamp.\n\n## [0.0.1] - 2020-01-01\n\n- A table.\n' "$1" >CHANGELOG.md
}
commit() { git add -A && git commit -q -m change; }
# usage: refuses TEXT. Succeeds if `release.sh check` fails and prints TEXT.
refuses() {
    if packaging/release.sh check >"$dir/said" 2>&1; then return 1; fi
    grep -F "$1" "$dir/said" || { cat "$dir/said"; return 1; }
}
git init -q .
changelog "[$version] - 2026-01-02"
commit
check 'a dated version in a clean tree can be released' packaging/release.sh check
check 'the notes are the part of this version' \
    sh -c "[ \"\$(packaging/release.sh notes)\" = \"\$(printf '### Added\n\n- A lamp.')\" ]"

touch stray
check 'a file that is not committed is named' refuses 'not committed: ?? stray'
rm stray
changelog "[$version] - unreleased"
commit
check 'a version without a day is refused' refuses "CHANGELOG.md says that $version is unreleased"
changelog '[9.9.9] - 2026-01-02'
commit
check 'another version in the changelog is refused' refuses \
    'the newest part of CHANGELOG.md is "## [9.9.9] - 2026-01-02"'
changelog "[$version] - 2026-01-02"
sed -i 's/"version": "[^"]*"/"version": "7.7.7"/' sdk/node/package.json
commit
check 'another version in an SDK is refused' refuses 'sdk/node/package.json has version "7.7.7"'
sed -i "s/\"version\": \"[^\"]*\"/\"version\": \"$version\"/" sdk/node/package.json
commit
sed -i 's/VERSION_MINOR [0-9]*/VERSION_MINOR 77/' include/latchwork/lock.h
commit
check 'numbers that differ from the text are refused' refuses \
    'include/latchwork/lock.h has the numbers "0.77.0" and the text'
git checkout -q HEAD^ -- include && commit
echo 'There is no release yet.' >>SECURITY.md
commit
check 'a support policy without a release is refused' refuses \
    'SECURITY.md:2:There is no release yet: still says that there is no release'
git checkout -q HEAD^ -- SECURITY.md && commit

check 'a version can be set' packaging/release.sh version 3.14.15
check 'the old version is in no file any more' \
    sh -c "! grep -rnF '$version' --exclude=CHANGELOG.md --exclude-dir=.git ."
changelog '[3.14.15] - 2026-01-02'
commit
check 'with the version that was set everywhere, a release is possible' packaging/release.sh check
check 'a version that is none is refused' sh -c 'packaging/release.sh version 1.2-rc1; [ $? -eq 2 ]'
git checkout -q HEAD^ -- . && commit
git tag "v$version"
check 'a tag at this commit is no obstacle' packaging/release.sh check
git commit -q --allow-empty -m next
check 'a version that was released already is refused' refuses \
    "the tag v$version exists at another commit"
echo one >"$dir/a.deb"
# The key has no password, and its folder a short name, because gpg listens on a socket there.
GNUPGHOME=$(mktemp -d) && export GNUPGHOME
gpg --batch --quiet --passphrase '' --quick-generate-key release@example.org default default never \
    >"$dir/said" 2>&1 || cat "$dir/said"
check 'the sums are not signed without a key' \
    sh -c "cd '$dir' && '$tree/packaging/release.sh' sums a.deb && [ ! -e SHA256SUMS.asc ] &&
        sha256sum --check --quiet SHA256SUMS"
check 'the sums are signed with the key that is given' \
    sh -c "cd '$dir' && LW_SIGN_KEY=release@example.org '$tree/packaging/release.sh' sums a.deb &&
        gpg --verify SHA256SUMS.asc SHA256SUMS"
echo two >>"$dir/SHA256SUMS"
check 'a signature does not fit other sums' \
    sh -c "cd '$dir' && ! gpg --verify SHA256SUMS.asc SHA256SUMS"
gpgconf --kill gpg-agent
rm -rf "$GNUPGHOME"
check 'a word that it does not know is a usage error' \
    sh -c 'packaging/release.sh publish; [ $? -eq 2 ]'

summary
