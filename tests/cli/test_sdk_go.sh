#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks and tests the Go SDK, without network access.
# Usage: test_sdk_go.sh [BUILD]
cd "$(dirname "$0")/../../sdk/go" || exit 1
GOPROXY=off
export GOPROXY
unformatted=$(gofmt -l .)
[ -z "$unformatted" ] || { echo "gofmt: $unformatted"; exit 1; }
go vet ./... || exit 1
exec timeout 300 go test ./...
