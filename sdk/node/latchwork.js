// SPDX-License-Identifier: Apache-2.0
/* Write a Latchwork handler for Node:
 *
 *     const latchwork = require("latchwork");
 *
 *     latchwork.run(async (m, { signal }) => {
 *       const order = m.json();
 *       await store(order, m.fence, { signal });   // returning means: done
 *     });
 *
 * Latchwork starts this program (handler.type "exec"), sends it messages of different keys, up to
 * `handler.in_flight` at a time, and expects an answer for each message. If the handler returns,
 * the message is done. `throw new Retry("why")` asks for another attempt, `throw new Dead("why")`
 * makes the message a dead letter, and any other error is a retry, with its stack in the log.
 * `signal` is aborted when Latchwork takes the message back.
 *
 * Require this file before any module that prints. When it is loaded, it tells Latchwork that
 * answers come on a separate file descriptor, so that printed text goes to the log and does not
 * disturb the protocol. The protocol is described in doc/reference/exec-protocol.md. */
"use strict";

const { AsyncLocalStorage } = require("node:async_hooks");
const fs = require("node:fs");
const net = require("node:net");
const { format } = require("node:util");

const PROTOCOL = 1;
const NEWLINE = 10;

const AFTER_MAX_MS = 3600000; // a longer time is shortened

/** Asks for another attempt, after a backoff. With `afterMs`, it comes that many milliseconds later
 * instead, at most an hour. The attempt that ends with this error counts, unless `counts` is false;
 * a message may come back like that for `retry.max_age_s`. `cause` is the error that led to it; the
 * reason names it. `done` is for runBatches(): the number of messages before the failed message
 * that are done. */
class Retry extends Error {
  constructor(reason = "", { done = 0, afterMs, counts = true, cause, ...unknown } = {}) {
    super(reason, cause === undefined ? undefined : { cause });
    for (const name in unknown)
      throw new TypeError(
        `latchwork: Retry has no option ${name}; expected afterMs, cause, counts, done`);
    const isTime = typeof afterMs === "number" && afterMs >= 0 && afterMs < Infinity;
    if (afterMs !== undefined && !isTime)
      throw new TypeError(`latchwork: afterMs must be a number from 0 to 3600000, is ${afterMs}`);
    if (typeof counts !== "boolean")
      throw new TypeError(`latchwork: counts must be true or false, is ${counts}`);
    this.name = "Retry";
    this.done = done;
    this.afterMs = afterMs;
    this.counts = counts;
  }
}

/** Makes the message a dead letter, because another attempt would be pointless. `done` and `cause`
 * have the same meaning as in Retry. */
class Dead extends Error {
  constructor(reason = "", { done = 0, cause } = {}) {
    super(reason, cause === undefined ? undefined : { cause });
    this.name = "Dead";
    this.done = done;
  }
}

/** The reason of an aborted signal: Latchwork has taken the message back. Latchwork then ignores
 * the answer of the handler. */
class Cancelled extends Error {
  constructor() {
    super("cancelled");
    this.name = "Cancelled";
  }
}

const textOrBytes = (request, name) => {
  const encoded = request[name + "_base64"];
  return encoded === undefined ? request[name] : Buffer.from(encoded, "base64");
};
const headerPart = (part) =>
  part !== null && typeof part === "object" ? Buffer.from(part.base64, "base64") : part;

/** One message, and the lease under which it is handled. A value is a string if its bytes are
 * UTF-8, and a Buffer otherwise. */
class Message {
  #request;
  #controller;

  constructor(request) {
    this.#request = request;
    this.id = request.id; // "topic/partition/offset", the same at every attempt
    this.key = textOrBytes(request, "key");
    // a number that grows with every message of a key, and with every attempt
    this.fence = request.fence;
    this.attempt = request.attempt; // the number of this attempt; 1 for the first attempt
    this.topic = request.topic;
    this.partition = request.partition;
    this.offset = request.offset;
    // Kafka's timestamp in ms since 1970; null if it is unknown
    this.timestampMs = request.timestamp_ms;
  }

  /** The record's payload; null for a tombstone. */
  get payload() {
    return textOrBytes(this.#request, "payload");
  }

  /** Returns the payload as JSON. Throws Dead if the payload is not JSON, because another attempt
   * would read the same bytes. */
  json() {
    const payload = this.payload;
    if (payload === null) throw new Dead("the payload is null, not JSON");
    try {
      return JSON.parse(payload);
    } catch (e) {
      throw new Dead(`the payload is not JSON: ${e.message}`);
    }
  }

  /** The record's headers as [name, value] pairs, in order. A name may occur twice, and a value may
   * be null. */
  get headers() {
    return this.#request.headers.map(([name, value]) => [headerPart(name), headerPart(value)]);
  }

  /** Returns the value of the last header of this name, or null. */
  header(name) {
    const headers = this.#request.headers;
    for (let i = headers.length - 1; i >= 0; i--)
      if (headers[i][0] === name) return headerPart(headers[i][1]);
    return null;
  }

  /** The value of the header traceparent (the producer's W3C trace context), or null. */
  get traceparent() {
    return this.header("traceparent");
  }

  /** The time at which handler.timeout_ms will have passed, as a Date. Null if there is no limit,
   * or if the time is not known yet, as for the later messages of a batch. */
  get deadline() {
    const ms = this.#request.deadline_ms;
    return ms === undefined ? null : new Date(ms);
  }

  /** A signal that is aborted when Latchwork takes the message back, because its lease is lost, or
   * because it has timed out while the process has other messages. A process without other messages
   * gets no signal at the timeout, because it is killed at once. A handler that wants to stop
   * earlier must use `deadline`. */
  get signal() {
    this.#controller ??= new AbortController();
    return this.#controller.signal;
  }

  get cancelled() {
    return this.#controller !== undefined && this.#controller.signal.aborted;
  }

  /** Only for this file: marks the message as taken back. */
  cancel() {
    this.#controller ??= new AbortController();
    this.#controller.abort(new Cancelled());
  }
}

// --- the wire ------------------------------------------------------------------------------------

/* Returns the file descriptors for requests and answers. Writes the hello at once, before the
 * program prints anything. */
const openWire = () => {
  const fds = process.env.LATCHWORK_FDS;
  delete process.env.LATCHWORK_FDS; // child processes of this program must not use its descriptors
  if (!fds) return [0, 1];
  const [requests, answers] = fds.split(",").map(Number);
  try {
    fs.writeSync(answers, `{"hello":${PROTOCOL}}\n`);
    return [requests, answers];
  } catch {
    return [0, 1]; // the process that started this program has closed these descriptors
  }
};
const [REQUESTS, ANSWERS] = openWire();

/* JSON.parse() rounds numbers above 2^53. This function reads such numbers again from the text, as
 * BigInt. */
const exactNumbers = (messages, line, name) => {
  if (messages.every((r) => Number.isSafeInteger(r[name]))) return;
  const found = [...line.matchAll(new RegExp(`"${name}":(\\d+)`, "g"))];
  messages.forEach((r, i) => {
    if (!Number.isSafeInteger(r[name])) r[name] = BigInt(found[i][1]);
  });
};

/* Returns the contents of a request line: {cancel: id} or {messages: [Message, …]}. */
const parse = (line) => {
  const request = JSON.parse(line);
  if (request.cancel !== undefined) return request;
  const messages = request.batch ?? [request];
  for (const name of ["offset", "fence"]) exactNumbers(messages, line, name);
  return { messages: messages.map((r) => new Message(r)) };
};

/* Calls `take` with each line of a stream, and returns when the stream ends. */
const readLines = (stream, take) =>
  new Promise((resolve) => {
    let rest = [];
    stream.on("data", (chunk) => {
      let start = 0;
      for (let at; (at = chunk.indexOf(NEWLINE, start)) >= 0; start = at + 1) {
        const line = rest.length
          ? Buffer.concat([...rest, chunk.subarray(start, at)])
          : chunk.subarray(start, at);
        rest = [];
        if (line.length) take(line.toString());
      }
      if (start < chunk.length) rest.push(chunk.subarray(start));
    });
    for (const event of ["end", "close", "error"]) stream.on(event, resolve);
  });

/* Collects answers, and writes the answers of one turn of the event loop together. */
class Answers {
  #stream;
  #pending = "";

  constructor(stream) {
    this.#stream = stream;
    stream.on("error", () => {}); // Latchwork has closed the pipe, so the input will end next
  }

  add(line) {
    if (!this.#pending) setImmediate(() => this.#flush());
    this.#pending += line;
  }

  #flush() {
    this.#stream.write(this.#pending);
    this.#pending = "";
  }

  end() {
    return new Promise((resolve) => {
      if (this.#pending) this.#flush();
      this.#stream.on("close", resolve);
      this.#stream.end(resolve);
    });
  }
}

// --- answers and the log -------------------------------------------------------------------------

const current_ = new AsyncLocalStorage();

/** Returns the message that the running code handles, or undefined. Useful for log lines and trace
 * contexts. */
const current = () => current_.getStore();

const logAt =
  (level) =>
  (...args) => {
    const m = current();
    const text = `${m ? m.id + ": " : ""}${level}: ${format(...args)}`;
    process.stderr.write(text.replaceAll("\n", " | ") + "\n");
  };
/** Writes a line to Latchwork's log, with the identity of the message that is being handled. Never
 * log payloads or secrets. */
const log = {
  debug: logAt("debug"),
  info: logAt("info"),
  warn: logAt("warning"),
  error: logAt("error"),
};

const REASON_MAX = 4000; // characters; Latchwork keeps less of a reason

/* Returns the text that `make` makes, or another one if it throws. */
const textOf = (make) => {
  try {
    return String(make());
  } catch (e) {
    return "no text, because making it threw";
  }
};

/* Cuts a reason, and replaces halves of surrogate pairs, which are not JSON everywhere. */
const wellFormed = (text) => text.slice(0, REASON_MAX).replace(/\p{Surrogate}/gu, "\ufffd");

const CAUSES_MAX = 5;

/* Returns the errors that led to this one, as Error has them in `cause`, the nearest first. */
const causesOf = (error) => {
  const causes = [];
  while (causes.length < CAUSES_MAX && (error = error?.cause) != null) causes.push(error);
  return causes;
};
/* Returns the reason `first`, followed by those of the causes: "TypeError: fetch failed; cause:
 * Error: connect ECONNREFUSED 127.0.0.1:8080". */
const withCauses = (first, error) =>
  textOf(() =>
    [first, ...causesOf(error).map((e) => textOf(() => nameAndMessage(e)))].join("; cause: "));
/* Some errors, such as those for several addresses, have a code in place of a message. */
const nameAndMessage = (e) =>
  e instanceof Error ? `${e.name}: ${e.message || e.code || "no message"}` : format(e);

const answer = (m, outcome, reason, { afterMs, counts = true } = {}) => {
  const said = { id: m.id, attempt: m.attempt, outcome };
  if (reason) said.reason = wellFormed(reason);
  if (afterMs !== undefined) said.after_ms = Math.ceil(Math.min(afterMs, AFTER_MAX_MS));
  if (!counts) said.counts = false;
  return JSON.stringify(said) + "\n";
};

/* Returns the answer for a message whose handler threw. */
const failed = (m, error) => {
  const chosen = error instanceof Dead || error instanceof Retry;
  if (chosen) {
    const reason = withCauses(textOf(() => error.message), error);
    return answer(m, error instanceof Dead ? "dead" : "retry", reason, error);
  }
  if (m.cancelled) return answer(m, "retry");
  const stack = (e) => textOf(() => (e instanceof Error ? e.stack : format(e)));
  const full = textOf(() => [error, ...causesOf(error)].map(stack).join("\n  cause: "));
  process.stderr.write(`${m.id}: ${full}\n`);
  return answer(m, "retry", withCauses(textOf(() => nameAndMessage(error)), error));
};

// --- running -------------------------------------------------------------------------------------

/* Handles the messages of one key in order, and stops after the first message that is not done. */
const oneByOne = (handler) => async (messages, answers) => {
  for (const m of messages) {
    try {
      if (m.cancelled) throw new Cancelled();
      await current_.run(m, handler, m, { get signal() { return m.signal; } });
    } catch (e) {
      answers.add(failed(m, e));
      return;
    }
    answers.add(answer(m, "done"));
  }
};

/* Handles all messages of a request with one call of the handler. */
const together = (handler) => async (messages, answers) => {
  let done = messages.length;
  let error;
  const controller = new AbortController();
  for (const m of messages)
    m.signal.addEventListener("abort", () => controller.abort(m.signal.reason));
  try {
    await current_.run(messages[0], handler, messages, { signal: controller.signal });
  } catch (e) {
    error = e;
    done = Math.min(Number.isInteger(e?.done) ? e.done : 0, messages.length - 1);
  }
  let text = messages.slice(0, done).map((m) => answer(m, "done")).join("");
  if (done < messages.length) text += failed(messages[done], error);
  answers.add(text);
};

/* Makes sure that printed text does not mix with the answers if both would go to stdout. */
const answerStream = () => {
  if (ANSWERS !== 1) return new net.Socket({ fd: ANSWERS, readable: false, writable: true });
  const out = process.stdout;
  const plain = {
    write: out.write.bind(out),
    end: (then) => out.write("", then),
    on: out.on.bind(out),
  };
  out.write = process.stderr.write.bind(process.stderr);
  return plain;
};

const serve = async (handle) => {
  const open = new Map();
  const running = new Set();
  const answers = new Answers(answerStream());
  const stream =
    REQUESTS === 0
      ? process.stdin
      : new net.Socket({ fd: REQUESTS, readable: true, writable: false });
  await readLines(stream, (line) => {
    const { cancel, messages } = parse(line);
    if (cancel !== undefined) {
      open.get(cancel)?.cancel();
      return;
    }
    for (const m of messages) open.set(m.id, m);
    const run = handle(messages, answers).finally(() => {
      for (const m of messages) if (open.get(m.id) === m) open.delete(m.id);
      running.delete(run);
    });
    running.add(run);
  });
  while (running.size) await Promise.all(running);
  await answers.end();
};

const check = (handler) => {
  if (typeof handler !== "function")
    throw new TypeError("latchwork: the handler must be a function");
};

/** Calls `handler(message, { signal })` for each message until Latchwork closes the pipe of
 * requests. Resolves when the messages in progress are done. The program must then close everything
 * that keeps the process alive, such as a pool of connections, because Latchwork kills the process
 * after 2 s. */
const run = async (handler) => {
  check(handler);
  await serve(oneByOne(handler));
};

/** Like run(), but calls `handler(messages, { signal })` with all messages of a request. If
 * `handler.batch` is above 1, these may be several messages of one key, in order. If the handler
 * returns, all messages are done. If only the first n messages are done, the handler must throw
 * Retry or Dead with { done: n }. */
const runBatches = async (handler) => {
  check(handler);
  await serve(together(handler));
};

module.exports = { run, runBatches, current, log, Message, Retry, Dead, Cancelled };
// These functions are exported for tests of the protocol, and are not part of the interface.
module.exports._parse = parse;
module.exports._answer = answer;
module.exports._failed = failed;
