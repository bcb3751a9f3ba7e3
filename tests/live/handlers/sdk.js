// SPDX-License-Identifier: Apache-2.0
/* A handler made with the Node SDK, for the live tests. It sleeps, and writes its runs to a journal
 * in the form of work.py. A payload {"do": "exit"} ends the process, at the first attempt only.
 * With {"do": "later"}, the first run asks for a retry in a second, without an attempt. */
"use strict";

const latchwork = require("../../../sdk/node/latchwork.js");
const fs = require("node:fs");
const { setTimeout: sleep } = require("node:timers/promises");

const journal = fs.openSync(process.env.LW_TEST_JOURNAL, "a", 0o644);
const [low, high] = (process.env.LW_TEST_WORK_MS ?? "0-0").split("-").map(Number);
// Node reads CLOCK_MONOTONIC, and the journal has CLOCK_BOOTTIME
const bootOffsetUs = BigInt(process.env.LW_TEST_BOOT_OFFSET_US);

const note = (what, m, extra = "") => {
  const nowUs = process.hrtime.bigint() / 1000n + bootOffsetUs;
  const key = Buffer.from(m.key).toString("hex") || "-";
  fs.writeSync(
    journal,
    `${what} ${nowUs} ${process.ppid} ${m.id} ${key} ${m.fence} ${m.attempt}${extra}\n`,
  );
};

const firstRun = (m) => {
  try {
    fs.closeSync(fs.openSync(process.env.LW_TEST_JOURNAL + m.id.replaceAll("/", "-"), "wx"));
    return true;
  } catch {
    return false;
  }
};

latchwork.run(async (m, { signal }) => {
  note("start", m);
  console.log("a print that harms nothing");
  try {
    await sleep(low + Math.random() * (high - low), undefined, { signal });
    if (m.attempt === 1 && m.json().do === "exit") process.exit(3);
  } catch (e) {
    note("end", m, " back");
    throw e;
  }
  if (m.json().do === "later" && firstRun(m)) {
    note("end", m, " retry");
    throw new latchwork.Retry("not yet", { afterMs: 1000, counts: false });
  }
  note("end", m, " done");
});
