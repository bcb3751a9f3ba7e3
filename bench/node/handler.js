// SPDX-License-Identifier: Apache-2.0
// A handler for the benchmark, made with the Node SDK. The argument is the work per message in µs.
// If it is 0, the handler does nothing; otherwise the handler sleeps for that time.
"use strict";
const latchwork = require("../../sdk/node/latchwork.js");
const { setTimeout: sleep } = require("timers/promises");

const workMs = Number(process.argv[2]) / 1000;
latchwork.run(workMs ? () => sleep(workMs) : () => {});
