// SPDX-License-Identifier: Apache-2.0
/** Handlers for Latchwork in Node. latchwork.js begins with how to use it. */

/** Text is a string if it is UTF-8, and a Buffer otherwise; null is Kafka's null. */
export type Text = string | Buffer | null;

/** One message, and the lease under which it is handled. */
export class Message {
  private constructor();
  /** "topic/partition/offset", the same at every attempt. */
  readonly id: string;
  /** The primary key. */
  readonly key: Text;
  /** Grows with every message of a key, and with every attempt. A bigint only above 2^53. */
  readonly fence: number | bigint;
  /** 1 at the first attempt. */
  readonly attempt: number;
  readonly topic: string;
  readonly partition: number;
  /** A bigint only above 2^53. */
  readonly offset: number | bigint;
  /** Kafka's timestamp in ms since 1970; null if it is unknown. */
  readonly timestampMs: number | null;
  /** Null for a tombstone. */
  readonly payload: Text;
  /** [name, value] pairs in order; a name may come twice. */
  readonly headers: Array<[string | Buffer, Text]>;
  /** The W3C trace context of the producer, or null. */
  readonly traceparent: Text;
  /** When handler.timeout_ms will be over; null if there is no limit, or if the time is not known yet (later messages of a batch). */
  readonly deadline: Date | null;
  /** Aborted once Latchwork has taken the message back. */
  readonly signal: AbortSignal;
  readonly cancelled: boolean;
  /** Returns the payload as JSON; throws Dead if the payload is not JSON. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  json<T = any>(): T;
  /** Returns the value of the last header of this name, or null. */
  header(name: string): Text;
}

export interface OutcomeOptions {
  /** In runBatches(): how many messages before this one are done. */
  done?: number;
}
/** Asks for another attempt, after a backoff. The attempt that ends with this error counts. */
export class Retry extends Error {
  constructor(reason?: string, options?: OutcomeOptions);
  readonly done: number;
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
/** Handles messages until Latchwork closes its end; resolves when the messages under way are done. */
export function run(handler: (message: Message, context: Context) => unknown): Promise<void>;
/** Like run(), with all messages of a request at once: several of one key, in order, if `handler.batch` is above 1. */
export function runBatches(handler: (messages: Message[], context: Context) => unknown): Promise<void>;
/** Returns the message that the running code handles. */
export function current(): Message | undefined;
/** Writes lines to Latchwork's log, with the identity of the message that is handled. Arguments are those of console.log(). */
export const log: {
  debug(...args: unknown[]): void;
  info(...args: unknown[]): void;
  warn(...args: unknown[]): void;
  error(...args: unknown[]): void;
};
