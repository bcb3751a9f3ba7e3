// SPDX-License-Identifier: Apache-2.0
/// <reference types="node" />
/** Latchwork handlers in Node. The first comment of latchwork.js describes how to write a
 * handler. */

/** The type of a Buffer that has its own memory, as fetch() takes it: Buffer<ArrayBuffer> where
 * @types/node knows that type, and Buffer in older releases. */
export type Bytes = ReturnType<typeof Buffer.alloc>;
/** A value is a string if its bytes are UTF-8, and a Buffer otherwise; null is Kafka's null. */
export type Text = string | Bytes | null;

/** One message, and the lease under which it is handled. */
export class Message {
  private constructor();
  /** "topic/partition/offset", the same at every attempt. */
  readonly id: string;
  /** The primary key. */
  readonly key: Text;
  /** A number that grows with every message of a key, and with every attempt. It is a bigint only
   * above 2^53. */
  readonly fence: number | bigint;
  /** The number of this attempt; 1 for the first attempt. */
  readonly attempt: number;
  readonly topic: string;
  readonly partition: number;
  /** The record's offset, which is a bigint only above 2^53. */
  readonly offset: number | bigint;
  /** Kafka's timestamp in ms since 1970; null if it is unknown. */
  readonly timestampMs: number | null;
  /** The record's payload; null for a tombstone. */
  readonly payload: Text;
  /** The record's headers as [name, value] pairs, in order. A name may occur twice. */
  readonly headers: Array<[string | Bytes, Text]>;
  /** The value of the header traceparent (the producer's W3C trace context), or null. */
  readonly traceparent: Text;
  /** The time at which handler.timeout_ms will have passed. Null if there is no limit, or if the
   * time is not known yet, as for the later messages of a batch. */
  readonly deadline: Date | null;
  /** A signal that is aborted when Latchwork takes the message back. */
  readonly signal: AbortSignal;
  readonly cancelled: boolean;
  /** Returns the payload as JSON. Throws Dead if the payload is not JSON. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  json<T = any>(): T;
  /** Returns the value of the last header of this name, or null. */
  header(name: string): Text;
}

export interface OutcomeOptions {
  /** For runBatches(): the number of messages before the failed message that are done. */
  done?: number;
  /** The error that led to this one; the reason names it. */
  cause?: unknown;
}
export interface RetryOptions extends OutcomeOptions {
  /** The next attempt comes that many milliseconds later, at most an hour, instead of after a
   * backoff. */
  afterMs?: number;
  /** False: the attempt that ends with the error counts nothing. A message may come back like that
   * for `retry.max_age_s`. */
  counts?: boolean;
}
/** Asks for another attempt, after a backoff. The attempt that ends with this error counts, unless
 * the options say otherwise. */
export class Retry extends Error {
  constructor(reason?: string, options?: RetryOptions);
  readonly done: number;
  readonly afterMs?: number;
  readonly counts: boolean;
}
/** Makes the message a dead letter. */
export class Dead extends Error {
  constructor(reason?: string, options?: OutcomeOptions);
  readonly done: number;
}
/** The reason of an aborted signal: Latchwork has taken the message back. */
export class Cancelled extends Error {}

export interface Context {
  readonly signal: AbortSignal;
}
/** Handles messages until Latchwork closes the pipe of requests. Resolves when the messages in
 * progress are done. */
export function run(handler: (message: Message, context: Context) => unknown): Promise<void>;
/** Like run(), but calls the handler with all messages of a request. If `handler.batch` is above 1,
 * these may be several messages of one key, in order. */
export function runBatches(
  handler: (messages: Message[], context: Context) => unknown,
): Promise<void>;
/** Returns the message that the running code handles, or undefined. */
export function current(): Message | undefined;
/** Writes lines to Latchwork's log, with the identity of the message that is being handled. The
 * arguments are the same as for console.log(). */
export const log: {
  debug(...args: unknown[]): void;
  info(...args: unknown[]): void;
  warn(...args: unknown[]): void;
  error(...args: unknown[]): void;
};
