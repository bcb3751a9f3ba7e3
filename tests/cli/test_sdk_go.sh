#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks and tests the Go SDK, without network access; `go get` takes it from a repository with the
# tag that a release sets.
# Usage: test_sdk_go.sh [BUILD]
cd "$(dirname "$0")/../../sdk/go" || exit 1
GOPROXY=off
export GOPROXY
unformatted=$(gofmt -l .)
[ -z "$unformatted" ] || { echo "gofmt: $unformatted"; exit 1; }
go vet ./... || exit 1
timeout 300 go test ./... || exit 1

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
version=$(sed -n 's/^#define LATCHWORK_VERSION "\(.*\)"/\1/p' ../../include/latchwork/lock.h)
module=$(sed -n 's/^module //p' go.mod)
repository=${module%.git/sdk/go}
set -e
mkdir -p "$scratch/latchwork/sdk/go" "$scratch/user"
cp LICENSE go.mod latchwork.go "$scratch/latchwork/sdk/go"
cd "$scratch/latchwork"
# git takes the repository of the module's address from this folder instead
export GIT_CONFIG_GLOBAL="$scratch/gitconfig" GIT_CONFIG_NOSYSTEM=1 GOMODCACHE="$scratch/cache" \
    GOPROXY=direct GONOSUMDB='*' GOTOOLCHAIN=local GOFLAGS=-modcacherw
git config --global user.name a
git config --global user.email a@example.org
git config --global "url.file://$scratch/latchwork.insteadOf" "https://$repository"
git init -q .
git add .
git commit -q -m release
git tag "sdk/go/v$version"
cd ../user
go mod init user 2>/dev/null
cat >main.go <<END
package main

import (
	"context"

	latchwork "$module"
)

func main() {
	done := func(context.Context, *latchwork.Message) error { return nil }
	_ = latchwork.Run(context.Background(), done)
}
END
go get "$module@v$version"
go build -o handler .
request='{"id":"t/0/1","key":"k","fence":1,"attempt":1,"topic":"t","partition":0,"offset":1,"timestamp_ms":1,"headers":[],"payload":"{}"}'
[ "$(echo "$request" | ./handler)" = '{"id":"t/0/1","attempt":1,"outcome":"done"}' ] ||
    { echo "a program that go get made does not handle a message"; exit 1; }
