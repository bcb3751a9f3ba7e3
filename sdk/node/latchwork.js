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
 * Latchwork starts this program (handler.type "exec"), gives it messages of different keys, up to `handler.in_flight` at a time, and
 * takes an answer for each. A handler that returns is done. `throw new Retry("why")` asks for another attempt, `throw new Dead("why")`
 * makes a dead letter, and any other error is a retry, with its stack in the log. `signal` is aborted when Latchwork takes the
 * message back.
 *
 * Require this file before anything that prints: it then tells Latchwork that answers come on a descriptor of their own, so that
 * whatever is printed goes to the log and harms nothing. The protocol is described in doc/reference/exec-protocol.md. */
"use strict";

const { AsyncLocalStorage } = require("node:async_hooks");
const fs = require("node:fs");
const net = require("node:net");
const { format } = require("node:util");

const PROTOCOL = 1;
const NEWLINE = 10;

/** Asks for another attempt, after a backoff. The attempt that ends with this error counts.
 * `done`, in runBatches(): how many messages before this one are done. */
class Retry extends Error {
  constructor(reason = "", { done = 0 } = {}) {
    super(reason);
    this.name = "Retry";
    this.done = done;
  }
}

/** Makes the message a dead letter: another attempt is pointless. `done` is as in Retry. */
class Dead extends Error {
  constructor(reason = "", { done = 0 } = {}) {
    super(reason);
    this.name = "Dead";
    this.done = done;
  }
}

/** Says that Latchwork has taken the message back. This error is the reason of the aborted signal. The answer of the handler then does
 * not matter. */
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
const headerPart = (part) => (part !== null && typeof part === "object" ? Buffer.from(part.base64, "base64") : part);

/** One message, and the lease under which it is handled. Text is a string if it is UTF-8, and a Buffer otherwise. */
class Message {
  #request;
  #controller;

  constructor(request) {
    this.#request = request;
    this.id = request.id; // "topic/partition/offset", the same at every attempt
    this.key = textOrBytes(request, "key");
    this.fence = request.fence; // grows with every message of a key, and with every attempt
    this.attempt = request.attempt; // 1 at the first attempt
    this.topic = request.topic;
    this.partition = request.partition;
    this.offset = request.offset;
    this.timestampMs = request.timestamp_ms; // Kafka's timestamp; null if it is unknown
  }

  /** The record's payload; null for a tombstone. */
  get payload() {
    return textOrBytes(this.#request, "payload");
  }

  /** Returns the payload as JSON. Throws Dead if the payload is not JSON, because another attempt would read the same bytes. */
  json() {
    const payload = this.payload;
    if (payload === null) throw new Dead("the payload is null, so it is no JSON");
    try {
      return JSON.parse(payload);
    } catch (e) {
      throw new Dead(`the payload is no JSON: ${e.message}`);
    }
  }

  /** The record's headers as [name, value] pairs, in order; a name may come twice, and a value may be null. */
  get headers() {
    return this.#request.headers.map(([name, value]) => [headerPart(name), headerPart(value)]);
  }

  /** Returns the value of the last header of this name, or null. */
  header(name) {
    const headers = this.#request.headers;
    for (let i = headers.length - 1; i >= 0; i--) if (headers[i][0] === name) return headerPart(headers[i][1]);
    return null;
  }

  /** The W3C trace context of the producer, or null. */
  get traceparent() {
    return this.header("traceparent");
  }

  /** When handler.timeout_ms will be over, as a Date; null if there is no limit, or if the time is not known yet (later messages of a batch). */
  get deadline() {
    const ms = this.#request.deadline_ms;
    return ms === undefined ? null : new Date(ms);
  }

  /** Aborted once Latchwork has taken the message back: its lease is lost, or its time is over while the process has other messages. A
   * message that is alone gets no sign when its time is over, because the process is killed at once: use `deadline` to stop earlier. */
  get signal() {
    this.#controller ??= new AbortController();
    return this.#controller.signal;
  }

  get cancelled() {
    return this.#controller !== undefined && this.#controller.signal.aborted;
  }

  /** For this file only: takes the message back. */
  cancel() {
    this.#controller ??= new AbortController();
    this.#controller.abort(new Cancelled());
  }
}

// --- the wire --------------------------------------------------------------------------------------------------------------------------

/* Returns the descriptors for requests and answers. The hello is written at once, before the program prints anything. */
const openWire = () => {
  const fds = process.env.LATCHWORK_FDS;
  delete process.env.LATCHWORK_FDS; // a program that we start must not take our descriptors for its own
  if (!fds) return [0, 1];
  const [requests, answers] = fds.split(",").map(Number);
  try {
    fs.writeSync(answers, `{"hello":${PROTOCOL}}\n`);
    return [requests, answers];
  } catch {
    return [0, 1]; // whoever started us has closed these descriptors
  }
};
const [REQUESTS, ANSWERS] = openWire();

/* JSON.parse() rounds numbers above 2^53. Reads such numbers again from the text, as BigInt. */
const exactNumbers = (messages, line, name) => {
  if (messages.every((r) => Number.isSafeInteger(r[name]))) return;
  const found = [...line.matchAll(new RegExp(`"${name}":(\\d+)`, "g"))];
  messages.forEach((r, i) => {
    if (!Number.isSafeInteger(r[name])) r[name] = BigInt(found[i][1]);
  });
};

/* Returns what a line says: {cancel: id} or {messages: [Message, …]}. */
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
        const line = rest.length ? Buffer.concat([...rest, chunk.subarray(start, at)]) : chunk.subarray(start, at);
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
    stream.on("error", () => {}); // Latchwork is gone; the end of the input follows
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

// --- answers and the log -----------------------------------------------------------------------------------------------------------------

const current_ = new AsyncLocalStorage();

/** Returns the message that the running code handles, or undefined; for log lines and trace contexts. */
const current = () => current_.getStore();

const logAt =
  (level) =>
  (...args) => {
    const m = current();
    const text = `${m ? m.id + ": " : ""}${level}: ${format(...args)}`;
    process.stderr.write(text.replaceAll("\n", " | ") + "\n");
  };
/** Writes a line to Latchwork's log, with the identity of the message that is handled. Never log payloads or secrets. */
const log = { debug: logAt("debug"), info: logAt("info"), warn: logAt("warning"), error: logAt("error") };

const answer = (m, outcome, reason) => JSON.stringify(reason ? { id: m.id, outcome, reason } : { id: m.id, outcome }) + "\n";

/* Returns the answer for a message whose handler threw. */
const failed = (m, error) => {
  if (error instanceof Dead) return answer(m, "dead", error.message);
  if (error instanceof Retry) return answer(m, "retry", error.message);
  if (m.cancelled) return answer(m, "retry", "cancelled");
  const isError = error instanceof Error;
  process.stderr.write(`${m.id}: ${isError ? error.stack : format(error)}\n`);
  return answer(m, "retry", isError ? `${error.name}: ${error.message}` : format(error));
};

// --- running -----------------------------------------------------------------------------------------------------------------------------

/* Handles the messages of one key in order, up to the first that is not done. */
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

/* Handles the messages of one key with one call. */
const together = (handler) => async (messages, answers) => {
  let done = messages.length;
  let error;
  const controller = new AbortController();
  for (const m of messages) m.signal.addEventListener("abort", () => controller.abort(m.signal.reason));
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

/* Keeps prints of the program away from the answers if both have only stdout. */
const answerStream = () => {
  if (ANSWERS !== 1) return new net.Socket({ fd: ANSWERS, readable: false, writable: true });
  const out = process.stdout;
  const plain = { write: out.write.bind(out), end: (then) => out.write("", then), on: out.on.bind(out) };
  out.write = process.stderr.write.bind(process.stderr);
  return plain;
};

const serve = async (handle) => {
  const open = new Map();
  const running = new Set();
  const answers = new Answers(answerStream());
  const stream = REQUESTS === 0 ? process.stdin : new net.Socket({ fd: REQUESTS, readable: true, writable: false });
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
  if (typeof handler !== "function") throw new TypeError("latchwork: the handler must be a function");
};

/**
 * Calls `handler(message, { signal })` for each message until Latchwork closes its end, and returns when the messages under way are
 * done. Then close what keeps the process alive, such as a pool of connections: Latchwork kills the process after 2 s.
 */
const run = async (handler) => {
  check(handler);
  await serve(oneByOne(handler));
};

/**
 * Like run(), but calls `handler(messages, { signal })` with all messages of a request: with `handler.batch` above 1, several of one
 * key, in order. If the handler returns, all messages are done. If only the first n are, throw Retry or Dead with { done: n }.
 */
const runBatches = async (handler) => {
  check(handler);
  await serve(together(handler));
};

module.exports = { run, runBatches, current, log, Message, Retry, Dead, Cancelled };
// for tests of the protocol; not part of the interface
module.exports._parse = parse;
module.exports._answer = answer;
module.exports._failed = failed;
