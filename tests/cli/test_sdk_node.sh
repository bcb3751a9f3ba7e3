#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of the Node SDK.
# Usage: test_sdk_node.sh [BUILD]
cd "$(dirname "$0")/../../sdk/node" || exit 1
exec timeout 300 node --test
