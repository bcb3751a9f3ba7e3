// SPDX-License-Identifier: Apache-2.0
/* Tests of the Node SDK. Some use the protocol's test vectors. The others start handlers as
 * processes, and do what Latchwork would do.
 *
 *     node --test sdk/node/test */
"use strict";

const assert = require("node:assert/strict");
const { spawn, execFileSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { after, test } = require("node:test");
const latchwork = require("../latchwork.js");

const SDK = path.join(__dirname, "../latchwork.js");
const VECTORS = path.join(__dirname, "../../../tests/vectors/exec");
const LIMIT_MS = 30000;

const vectors = (name) =>
  fs
    .readFileSync(path.join(VECTORS, name), "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
/* Returns the value as the files of test vectors contain it: text unchanged, and a Buffer as the
 * object {"base64": …}. */
const plain = (text) => (Buffer.isBuffer(text) ? { base64: text.toString("base64") } : text);

// --- vectors -------------------------------------------------------------------------------------

test("requests", () => {
  const cases = vectors("requests.jsonl");
  assert.ok(cases.length > 3);
  for (const { line, messages: wanted } of cases) {
    const { messages, cancel } = latchwork._parse(line);
    if (cancel !== undefined) continue;
    assert.equal(messages.length, wanted.length);
    messages.forEach((m, i) => {
      const want = wanted[i];
      for (const name of ["id", "attempt", "topic", "partition"]) assert.equal(m[name], want[name]);
      assert.equal(Number(m.fence), want.fence);
      assert.equal(Number(m.offset), want.offset);
      assert.equal(m.timestampMs, want.timestamp_ms);
      assert.deepEqual(plain(m.key), want.key);
      assert.deepEqual(plain(m.payload), want.payload);
      assert.deepEqual(m.headers.map(([n, v]) => [plain(n), plain(v)]), want.headers);
      assert.equal(m.deadline?.getTime(), want.deadline_ms);
      assert.equal(
        BigInt(m.id.split("#")[0].split("/").at(-1)),
        BigInt(m.offset),
        "an offset above 2^53 is exact",
      );
    });
  }
});

test("answers are what the vectors allow", () => {
  const known = vectors("answers.jsonl").filter((c) => c.answers).map((c) => c.answers[0]);
  const form = (a) => Object.keys(a).filter((k) => a[k] !== null).sort().join() + a.outcome;
  const forms = new Set(known.map(form));
  const m = latchwork._parse(line("t/0/1")).messages[0];
  const write = process.stderr.write;
  process.stderr.write = () => true;
  try {
    for (const error of [
      new latchwork.Retry("no time"),
      new latchwork.Retry("no time", { afterMs: 60000 }),
      new latchwork.Retry("no time", { counts: false }),
      new latchwork.Retry("", { afterMs: 5, counts: false }),
      new latchwork.Dead("no use"),
      new TypeError("\u00e9\n"),
      "text",
      undefined,
    ])
      assert.ok(forms.has(form(JSON.parse(latchwork._failed(m, error)))), String(error));
  } finally {
    process.stderr.write = write;
  }
  assert.equal(latchwork._answer(m, "done"), '{"id":"t/0/1","attempt":1,"outcome":"done"}\n');
});

test("a retry says when", () => {
  const m = latchwork._parse(line("t/0/1")).messages[0];
  const said = (when) => {
    const { after_ms, counts } = JSON.parse(latchwork._failed(m, new latchwork.Retry("r", when)));
    return [after_ms, counts];
  };
  assert.deepEqual(said(), [undefined, undefined]);
  assert.deepEqual(said({ afterMs: 60000 }), [60000, undefined]);
  assert.deepEqual(said({ afterMs: 0, counts: false }), [0, false]);
  assert.deepEqual(said({ afterMs: 0.1 }), [1, undefined]);
  assert.deepEqual(said({ afterMs: 1e300 }), [3600000, undefined]);
  for (const afterMs of [-1, NaN, Infinity, "60", null])
    assert.throws(() => new latchwork.Retry("r", { afterMs }), /from 0 to 3600000/);
  assert.throws(() => new latchwork.Retry("r", { counts: 0 }), /true or false/);
  assert.throws(() => new latchwork.Retry("r", { after: 60 }), /no option after/);
});

// --- processes -----------------------------------------------------------------------------------

const request = (id, more = {}) => {
  const [topic, partition, offset] = id.split("/");
  return {
    id,
    key: "k",
    fence: 7,
    attempt: 1,
    topic,
    partition: +partition,
    offset: +offset,
    timestamp_ms: 1,
    headers: [],
    payload: "{}",
    ...more,
  };
};
const line = (id, more) => JSON.stringify(request(id, more));
const done = (id) => ({ id, attempt: 1, outcome: "done" });
const failed = (id, outcome, reason) => ({ id, attempt: 1, outcome, reason });

const started = [];
// kills the processes that a failed test has left
after(() => started.forEach((p) => p.kill("SIGKILL")));

/* A handler in a process of its own. If `side` is true, the process may use descriptors 3 and 4 for
 * the protocol. */
class Handler {
  constructor(code, { side = true } = {}) {
    const env = { ...process.env };
    delete env.LATCHWORK_FDS;
    delete env.NODE_TEST_CONTEXT;
    if (side) env.LATCHWORK_FDS = "3,4";
    this.process = spawn(
      process.execPath,
      ["-e", `const latchwork = require(${JSON.stringify(SDK)});\n${code}`],
      { env, stdio: ["pipe", "pipe", "pipe", "pipe", "pipe"] },
    );
    started.push(this.process);
    this.input = side ? this.process.stdio[3] : this.process.stdin;
    this.lines = [];
    this.waiting = [];
    this.printed = this.logged = "";
    let rest = "";
    (side ? this.process.stdio[4] : this.process.stdout).on("data", (data) => {
      const parts = (rest + data).split("\n");
      rest = parts.pop();
      for (const part of parts) this.#arrived(JSON.parse(part));
    });
    if (side) this.process.stdout.on("data", (data) => (this.printed += data));
    this.process.stderr.on("data", (data) => (this.logged += data));
    this.status = new Promise((resolve) => this.process.on("close", resolve));
    this.ready = side
      ? this.answer().then((hello) => assert.deepEqual(hello, { hello: 1 }))
      : Promise.resolve();
  }

  #arrived(answer) {
    const first = this.waiting.shift();
    if (first) first(answer);
    else this.lines.push(answer);
  }

  send(...requests) {
    this.input.write(requests.map((r) => JSON.stringify(r) + "\n").join(""));
  }

  answer() {
    if (this.lines.length) return Promise.resolve(this.lines.shift());
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new Error("no answer; stderr: " + this.logged)),
        LIMIT_MS,
      );
      this.waiting.push((answer) => (clearTimeout(timer), resolve(answer)));
    });
  }

  async answers(n) {
    const all = [];
    for (let i = 0; i < n; i++) all.push(await this.answer());
    return all;
  }

  /* Closes the input of the process, and returns its exit status. */
  async end() {
    this.input.end();
    this.process.stdin.end();
    const status = await this.status;
    assert.deepEqual(this.lines, []);
    return status;
  }
}

const OUTCOMES = `
  latchwork.run(async (m, { signal }) => {
    const what = m.json().do;
    console.log("stray", m.key);
    if (what === "retry") throw new latchwork.Retry("later");
    if (what === "dead") throw new latchwork.Dead("never");
    if (what === "fail") throw new RangeError("id");
    await new Promise((resolve) => setTimeout(resolve, 1));
    if (latchwork.current() !== m || m.traceparent !== "00-aa-bb-01" || signal.aborted)
      throw new Error("context");
    latchwork.log.info("two\\nlines %d", 7);
  });`;

const outcomes = async (side) => {
  const h = new Handler(OUTCOMES, { side });
  await h.ready;
  const wanted = {
    0: ["done"],
    1: ["retry", "later"],
    2: ["dead", "never"],
    3: ["retry", "RangeError: id"],
    5: ["dead", "the payload is null, not JSON"],
  };
  const payloads = ['{"do":"go"}', '{"do":"retry"}', '{"do":"dead"}', '{"do":"fail"}', "x", null];
  h.send(
    ...payloads.map((payload, i) =>
      request("t/0/" + i, { key: "k" + i, payload, headers: [["traceparent", "00-aa-bb-01"]] }),
    ),
  );
  for (const a of await h.answers(6)) {
    const i = a.id.split("/")[2];
    if (i === "4") assert.match(a.reason, /^the payload is not JSON: /);
    else assert.deepEqual([a.outcome, ...(a.reason ? [a.reason] : [])], wanted[i]);
  }
  assert.equal(await h.end(), 0);
  assert.equal((side ? h.printed : h.logged).match(/stray/g).length, 4);
  assert.match(h.logged, /^t\/0\/3: RangeError: id\n +at /m);
  assert.match(h.logged, /^t\/0\/0: info: two \| lines 7$/m);
};
test("outcomes, on descriptors of their own", () => outcomes(true));
test("outcomes, on stdin and stdout", () => outcomes(false));

test("errors that cannot be written as they are", async () => {
  const h = new Handler(`latchwork.run(async (m) => {
    if (m.payload === "mute") throw { get [Symbol.toStringTag]() { throw new Error("no"); } };
    if (m.payload === "getter")
      throw Object.defineProperty(new Error(), "message", { get() { throw new Error("no"); } });
    if (m.payload === "half") throw new latchwork.Dead("x \\ud83d");
    if (m.payload === "long") throw new latchwork.Dead("x".repeat(3e6));
  });`);
  await h.ready;
  const payloads = ["mute", "getter", "half", "long", "ok"];
  h.send(
    ...payloads.map((payload, i) => request("t/0/" + i, { key: "k" + i, payload, attempt: 2 })),
  );
  const got = {};
  for (const a of await h.answers(5)) got[payloads[a.id.split("/")[2]]] = a;
  assert.deepEqual([...new Set(Object.values(got).map((a) => a.attempt))], [2]);
  assert.deepEqual([got.mute.outcome, got.getter.outcome], ["retry", "retry"]);
  assert.equal(got.getter.reason, "no text, because making it threw");
  assert.deepEqual([got.half.outcome, got.half.reason], ["dead", "x \ufffd"]);
  assert.equal(got.long.reason.length, 4000);
  assert.equal(got.ok.outcome, "done");
  assert.equal(await h.end(), 0);
});

test("many messages at once", async () => {
  const h = new Handler(`let n = 0, all; const here = new Promise((r) => (all = r));
    latchwork.run(async () => { if (++n === 50) all(); await here; });`);
  await h.ready;
  h.send(...Array.from({ length: 50 }, (_, i) => request("t/0/" + i, { key: "k" + i })));
  assert.equal(new Set((await h.answers(50)).map((a) => a.id)).size, 50);
  assert.equal(await h.end(), 0);
});

test("a cancelled message", async () => {
  const h = new Handler(`latchwork.run(async (m, { signal }) => {
    if (m.key === "fast") return;
    await require("node:timers/promises").setTimeout(1e6, undefined, { signal }).catch((e) => {
      if (!m.cancelled) throw e;
      throw signal.reason;
    });
  });`);
  await h.ready;
  h.send(request("t/0/0", { key: "slow" }), request("t/0/1", { key: "fast" }));
  assert.deepEqual(await h.answer(), done("t/0/1"));
  h.send({ cancel: "t/0/0" }, { cancel: "t/0/99" });
  assert.deepEqual(await h.answer(), { id: "t/0/0", attempt: 1, outcome: "retry" });
  assert.equal(await h.end(), 0);
  assert.equal(h.logged, "", "a cancellation is no error");
});

test("the causes of an error are in reason and log", async () => {
  const h = new Handler(`latchwork.run(async (m) => {
    const refused = Object.assign(new AggregateError([], ""), { code: "ECONNREFUSED" });
    const fetchFailed = new TypeError("fetch failed", { cause: refused });
    if (m.key === "retry") throw new latchwork.Retry("no rate", { cause: fetchFailed });
    if (m.key === "round") fetchFailed.cause = fetchFailed;
    if (m.key === "odd") fetchFailed.cause = { get cause() { throw new Error("no"); } };
    throw fetchFailed;
  });`);
  await h.ready;
  const reasonOf = async (key) => {
    h.send(request("t/0/0", { key }));
    return (await h.answer()).reason;
  };
  const refused = "; cause: AggregateError: ECONNREFUSED";
  assert.equal(await reasonOf("fails"), "TypeError: fetch failed" + refused);
  assert.equal(await reasonOf("retry"), "no rate; cause: TypeError: fetch failed" + refused);
  assert.equal((await reasonOf("round")).split("; cause: ").length, 6);
  assert.match(await reasonOf("odd"), /^no text/);
  assert.equal(await h.end(), 0);
  assert.match(h.logged, /t\/0\/0: TypeError: fetch failed\n[^]*\n  cause: AggregateError/);
});

test("a batch ends with the first that is not done", async () => {
  const h = new Handler(`let n = 0; latchwork.run(async (m) => {
    if (m.offset !== n++) throw new latchwork.Dead("order");
    await null;
    if (m.offset === 2) throw new latchwork.Retry("enough");
  });`);
  await h.ready;
  h.send({ batch: [0, 1, 2, 3, 4].map((i) => request("t/0/" + i)) });
  assert.deepEqual((await h.answers(3)).map((a) => a.outcome), ["done", "done", "retry"]);
  assert.equal(await h.end(), 0);
});

test("a handler of batches", async () => {
  const h = new Handler(`latchwork.runBatches(async (ms, { signal }) => {
    if (ms[0].key === "wait")
      await new Promise((_, no) => signal.addEventListener("abort", () => no(signal.reason)));
    if (ms.length > 3) throw new latchwork.Dead("long", { done: 3 });
    if (ms.length === 3) throw new Error("all");
  });`);
  await h.ready;
  const send = (n, key = "k") =>
    h.send({ batch: Array.from({ length: n }, (_, i) => request("t/0/" + i, { key })) });
  send(2);
  assert.deepEqual(await h.answers(2), [done("t/0/0"), done("t/0/1")]);
  send(5);
  assert.deepEqual(await h.answers(4), [
    done("t/0/0"),
    done("t/0/1"),
    done("t/0/2"),
    failed("t/0/3", "dead", "long"),
  ]);
  send(3);
  assert.deepEqual(await h.answer(), failed("t/0/0", "retry", "Error: all"));
  send(2, "wait");
  await new Promise((resolve) => setTimeout(resolve, 50));
  h.send({ cancel: "t/0/0" });
  assert.deepEqual(await h.answer(), { id: "t/0/0", attempt: 1, outcome: "retry" });
  assert.equal(await h.end(), 0);
});

test("the end waits for what is under way", async () => {
  const h = new Handler(
    `latchwork.run(() => new Promise((r) => setTimeout(r, 300))).then(() => process.stderr.write("the end"));`,
  );
  await h.ready;
  h.send(request("t/0/0"));
  const answer = h.answer();
  h.input.end();
  assert.deepEqual(await answer, done("t/0/0"));
  assert.equal(await h.end(), 0);
  assert.equal(h.logged, "the end");
});

test("large messages and letters cut in two", async () => {
  const h = new Handler(
    `latchwork.run((m) => { throw new latchwork.Dead(m.payload.length + m.payload.slice(-3)); });`,
  );
  await h.ready;
  const text = Buffer.from(line("t/0/0", { payload: "x".repeat(3e6) + "a\u20acb" }) + "\n");
  const cut = text.indexOf(0xe2) + 1;
  h.input.write(text.subarray(0, cut));
  await new Promise((resolve) => setTimeout(resolve, 50));
  h.input.write(text.subarray(cut));
  assert.equal((await h.answer()).reason, "3000003a\u20acb");
  assert.equal(await h.end(), 0);
});

test("a program that is started does not inherit the variable, and a bad handler is an error", async () => {
  const h = new Handler(
    `process.stderr.write(String(process.env.LATCHWORK_FDS)); latchwork.run(7).catch((e) => { process.stderr.write(e.message); process.exit(3); });`,
  );
  await h.ready;
  assert.equal(await h.status, 3);
  assert.equal(h.logged, "undefinedlatchwork: the handler must be a function");
});

// --- the package ---------------------------------------------------------------------------------

test("the package can be packed, installed, required and imported", (t) => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "latchwork-npm-"));
  t.after(() => fs.rmSync(dir, { recursive: true }));
  const env = {
    ...process.env,
    npm_config_cache: path.join(dir, "cache"),
    npm_config_offline: "true",
    npm_config_update_notifier: "false",
  };
  const npm = (...args) =>
    execFileSync("npm", args, {
      cwd: dir,
      env,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
  const [packed] = JSON.parse(npm("pack", "--json", path.dirname(SDK)));
  assert.deepEqual(packed.files.map((f) => f.path).sort(), [
    "LICENSE",
    "README.md",
    "latchwork.d.ts",
    "latchwork.js",
    "package.json",
  ]);
  fs.writeFileSync(
    path.join(dir, "package.json"),
    '{"name":"user","version":"1.0.0","private":true}',
  );
  npm("install", "--no-audit", "--no-fund", "./" + packed.filename);
  const run = (...args) =>
    execFileSync(process.execPath, args, { cwd: dir, encoding: "utf8", input: "" });
  assert.equal(run("-e", 'process.stdout.write(typeof require("latchwork").run)'), "function");
  fs.writeFileSync(
    path.join(dir, "a.mjs"),
    'import latchwork, { run, Retry } from "latchwork"; process.stdout.write(`${run === latchwork.run} ${new Retry("x").message}`);',
  );
  assert.equal(run("a.mjs"), "true x");
});

test("the types name everything that is exported", () => {
  const types = fs.readFileSync(path.join(__dirname, "../latchwork.d.ts"), "utf8");
  for (const name of Object.keys(latchwork).filter((n) => !n.startsWith("_")))
    assert.match(types, new RegExp(`export (class|function|const) ${name}\\b`));
});
