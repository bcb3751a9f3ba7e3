# SPDX-License-Identifier: Apache-2.0
"""Write a Latchwork handler in Python, as a function or a coroutine:

    import latchwork

    @latchwork.handler
    async def handle(m):
        order = m.json()
        await store(order, m.fence)         # returning means: done

    latchwork.run()

Latchwork starts this program (handler.type "exec"), sends it messages of different keys, up to
`handler.in_flight` at a time, and expects an answer for each message. If the handler returns, the
message is done. `raise Retry("why")` asks for another attempt (`after=60` says in how many
seconds), `raise Dead("why")` makes the message a dead letter, and any other exception is a retry,
with a traceback in the log.

Coroutines run concurrently on one event loop. One that blocks the loop holds up all of them, so the
log names it. A coroutine is cancelled when Latchwork takes its message back. Plain functions run on
the threads of `run(threads=N)` (default: 1, the main thread), and can check `m.cancelled`.

`latchwork.testing` calls a handler in a test, for instance of pytest.

Import this module before any module that prints. On import, the module tells Latchwork that answers
come on a separate file descriptor, so that printed text goes to the log and does not disturb the
protocol. The protocol is described in doc/reference/exec-protocol.md."""

from __future__ import annotations

import asyncio
import atexit
import base64
import collections
import contextvars
import inspect
import json
import logging
import math
import os
import queue
import select
import sys
import threading
import time
import traceback
from types import FrameType
from typing import Any, Awaitable, Callable, Deque, Dict, List, Optional, Tuple, Union

__version__ = "0.1.0"
__all__ = ["Cancelled", "Dead", "Message", "Retry", "current", "handler", "run"]


def __dir__() -> List[str]:
    """Shows what is public, for dir() and for shells that complete names."""
    return [*__all__, "__doc__", "__version__"]


Text = Union[str, bytes, None]
Handler = Callable[["Message"], Union[None, Awaitable[None]]]

AFTER_MAX_S = 3600  # a longer time is shortened
REASON_MAX = 4000  # characters; Latchwork keeps less of a reason
_quote = json.JSONEncoder().encode  # makes a JSON string without the checks of json.dumps()
_parse = json.JSONDecoder().raw_decode

PROTOCOL = 1
READ_BYTES = 1 << 20
# If a handler takes longer than this time, its answer is sent at once, and not together with later
# answers.
FLUSH_S = 0.001
# minimum time between two checks for a cancellation while a handler runs on the main thread
POLL_S = 0.005
BLOCKED_S = 1.0  # a handler that blocks the event loop for longer is named in the log
BEAT_S = 0.1  # while messages are handled, the event loop notes the time this often


class Retry(Exception):
    """Asks for another attempt, after a backoff. With `after`, it comes that many seconds later
    instead, at most an hour. The attempt that ends with this exception counts, unless `counts` is
    False; a message may come back like that for `retry.max_age_s`."""

    def __init__(self, *reason: object, after: Optional[float] = None, counts: bool = True) -> None:
        super().__init__(*reason)
        fits = isinstance(after, (int, float)) and 0 <= after < math.inf
        if after is not None and not fits:
            raise ValueError("after must be a number of seconds from 0 to 3600, is %r" % (after,))
        if not isinstance(counts, bool):
            raise ValueError("counts must be True or False, is %r" % (counts,))
        self.after, self.counts = after, counts


class Dead(Exception):
    """Makes the message a dead letter, because another attempt would be pointless."""


class Cancelled(Exception):
    """Raised by a handler that stops because Latchwork has taken its message back. Latchwork then
    ignores the answer."""


def _bytes_or_text(request: Dict[str, Any], name: str) -> Text:
    encoded = request.get(name + "_base64")
    return request.get(name) if encoded is None else base64.b64decode(encoded)


def _header_value(value: Any) -> Text:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


class Message:
    """One message, and the lease under which it is handled. Fields of the type Text are `str` if
    the bytes are UTF-8, and `bytes` otherwise."""

    __slots__ = ("_cancelled", "_poll", "_read", "_request", "id")

    id: str  # "topic/partition/offset", the same at every attempt

    def __init__(self, request: Dict[str, Any], poll: Optional[Callable[[], None]] = None) -> None:
        self._request, self._poll, self._cancelled = request, poll, False
        self._read = 0.0  # when it was read, by time.monotonic(), for coroutines only
        self.id = request["id"]

    def __repr__(self) -> str:
        return "<latchwork.Message %s attempt %d>" % (self.id, self.attempt)

    # The other fields are read from the request only when they are used, because most handlers use
    # few fields.

    @property
    def key(self) -> Text:
        """The primary key; None if the record has none."""
        return _bytes_or_text(self._request, "key")

    @property
    def fence(self) -> int:
        """A number that grows with every message of a key, and with every attempt."""
        fence: int = self._request["fence"]
        return fence

    @property
    def attempt(self) -> int:
        """The number of this attempt; 1 for the first attempt."""
        attempt: int = self._request["attempt"]
        return attempt

    @property
    def topic(self) -> str:
        topic: str = self._request["topic"]
        return topic

    @property
    def partition(self) -> int:
        partition: int = self._request["partition"]
        return partition

    @property
    def offset(self) -> int:
        offset: int = self._request["offset"]
        return offset

    @property
    def timestamp_ms(self) -> Optional[int]:
        """Kafka's timestamp; None if it is unknown."""
        timestamp_ms: Optional[int] = self._request["timestamp_ms"]
        return timestamp_ms

    @property
    def payload(self) -> Text:
        """The record's payload; None for a tombstone."""
        return _bytes_or_text(self._request, "payload")

    def json(self) -> Any:
        """Returns the payload as JSON. Raises Dead if the payload is not JSON, because another
        attempt would read the same bytes."""
        payload = self.payload
        if payload is None:
            raise Dead("the payload is null, not JSON")
        try:
            return json.loads(payload)
        except ValueError as e:
            raise Dead("the payload is not JSON: %s" % e) from e

    @property
    def headers(self) -> List[Tuple[Text, Text]]:
        """The record's headers, in order. A name may occur twice, and a value may be None."""
        return [
            (_header_value(name), _header_value(value)) for name, value in self._request["headers"]
        ]

    def header(self, name: str) -> Text:
        """Returns the value of the last header of this name, or None."""
        for known, value in reversed(self._request["headers"]):
            if known == name:
                return _header_value(value)
        return None

    @property
    def traceparent(self) -> Text:
        """The value of the header traceparent (the producer's W3C trace context), or None."""
        return self.header("traceparent")

    @property
    def deadline(self) -> Optional[float]:
        """The time at which handler.timeout_ms will have passed, in seconds since 1970 like
        time.time(). None if there is no limit, or if the time is not known yet, as for the later
        messages of a batch."""
        ms = self._request.get("deadline_ms")
        return None if ms is None else ms / 1000

    @property
    def cancelled(self) -> bool:
        """True once Latchwork has taken the message back, because its lease is lost, or because it
        has timed out while the process has other messages. The handler must then stop, and write
        nothing more. A process without other messages is killed at the timeout."""
        if self._poll and not self._cancelled:
            self._poll()
        return self._cancelled


_current: contextvars.ContextVar[Optional[Message]] = contextvars.ContextVar(
    "latchwork", default=None
)
_handler: Optional[Handler] = None


def current() -> Optional[Message]:
    """Returns the message that the current task or thread handles, or None. Useful for log lines
    and trace contexts."""
    return _current.get()


def handler(function: Handler) -> Handler:
    """Marks a function or coroutine function as the handler, which run() calls for each message. A
    program has one handler."""
    global _handler
    if _handler is not None:
        raise RuntimeError(
            "a program has one handler, and this one has two: %s and %s; call one from the other"
            % (_handler.__name__, function.__name__)
        )
    _handler = function
    return function


# --- the wire -------------------------------------------------------------------------------------


class _Wire:
    """The file descriptors for requests and answers. Answers are collected until flush() sends
    them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.answers: List[str] = []
        self.rest = b""
        self.requests, self.out = 0, 1
        fds = os.environ.pop(
            "LATCHWORK_FDS", None
        )  # child processes of this program must not use its descriptors
        if not fds:
            return
        try:
            self.requests, self.out = (int(fd) for fd in fds.split(","))
            self.write(b'{"hello":%d}\n' % PROTOCOL)
        except OSError:  # the process that started this program has closed these descriptors
            self.requests, self.out = 0, 1

    def prepare(self) -> None:
        """Makes sure that the handler cannot disturb the protocol by printing or by reading
        stdin."""
        if self.out != 1:
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.close(null)
            return
        sys.stdout.flush()
        self.requests, self.out = os.dup(0), os.dup(1)
        os.dup2(2, 1)

    def read(self) -> Optional[List[str]]:
        """Waits for requests, and returns their lines. Returns None at the end of the input."""
        data = os.read(self.requests, READ_BYTES)
        if not data:
            return None
        whole, newline, rest = data.rpartition(b"\n")
        if not newline:
            self.rest += data
            return []
        # decode all lines at once, because many small calls are slower
        lines = (self.rest + whole).decode().split("\n")
        self.rest = rest
        return lines

    def readable(self) -> bool:
        return bool(select.select([self.requests], [], [], 0)[0])

    def add(self, answer: str) -> None:
        with self.lock:  # without the lock, flush() on another thread might discard the answer
            self.answers.append(answer)

    def add_unlocked(self, answer: str) -> None:
        """Does the same as add(), but requires that all answers come from one thread."""
        self.answers.append(answer)

    def flush(self) -> None:
        with self.lock:
            if not self.answers:
                return
            text = "".join(self.answers).encode()
            self.answers.clear()
            self.write(text)

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.out, data) :]


def _text(error: BaseException) -> str:
    """Returns the text of an exception, or a made-up text if the exception cannot say it."""
    try:
        return str(error)
    except BaseException as e:
        return "no text, because its __str__ raised %s" % type(e).__name__


def _reason(text: str) -> str:
    """Cuts a reason, and replaces halves of surrogate pairs, which are not JSON everywhere."""
    return text[:REASON_MAX].encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _say(text: str) -> None:
    """Writes to the log at once, with one call, because several threads may write."""
    sys.stderr.write(text)
    sys.stderr.flush()


def _answer(m: Message, error: Optional[BaseException]) -> Tuple[str, bool]:
    """Returns the answer line for a message, and whether the message is done."""
    if error is None:
        return '{"id":%s,"attempt":%d,"outcome":"done"}\n' % (_quote(m.id), m.attempt), True
    if isinstance(error, (Retry, Dead)):
        reason = _text(error)
    elif isinstance(error, (Cancelled, asyncio.CancelledError)):
        reason = _text(error)
    else:
        reason = "%s: %s" % (type(error).__name__, _text(error))
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        _say("%s: %s" % (m.id, "".join(lines)))
    line: Dict[str, Any] = {
        "id": m.id,
        "attempt": m.attempt,
        "outcome": "dead" if isinstance(error, Dead) else "retry",
    }
    if reason:
        line["reason"] = _reason(reason)
    if isinstance(error, Retry):
        if error.after is not None:
            line["after_ms"] = math.ceil(1000 * min(error.after, AFTER_MAX_S))
        if not error.counts:
            line["counts"] = False
    return json.dumps(line) + "\n", False


def _unwanted(value: Any) -> TypeError:
    """Returns the error for a handler that returns a value. The value would be ignored, so `return
    Dead("why")` would count as done."""
    kind = value if isinstance(value, type) else type(value)
    if issubclass(kind, BaseException):
        return TypeError(
            "the handler returned %s; raise it instead: raise latchwork.%s(...)"
            % (kind.__name__, kind.__name__)
            if issubclass(kind, (Retry, Dead, Cancelled))
            else "the handler returned %s; raise it instead" % kind.__name__
        )
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        return TypeError(
            "the handler returned a coroutine that nobody awaits; write async def, and await it"
        )
    return TypeError(
        "the handler returned %.60r; it must return nothing when the message is done, "
        "and raise latchwork.Retry or latchwork.Dead if not" % (value,)
    )


def _request(line: str) -> Dict[str, Any]:
    try:
        request: Dict[str, Any] = _parse(line)[0]
        if "cancel" in request or "batch" in request or request["id"]:
            return request
    except (ValueError, KeyError, TypeError):
        pass
    raise SystemExit(
        "latchwork: malformed request %.60r; Latchwork starts this program and writes the "
        "requests: try `latchwork handler test`" % line
    )


class _Inbox:
    """The requests that have arrived and are not handled yet, and all messages that a cancellation
    may name."""

    def __init__(self, wire: _Wire, polls: bool) -> None:
        self.wire, self.polls = wire, polls
        self.add = wire.add
        self.open: Dict[str, Message] = {}
        self.waiting: Deque[List[Message]] = collections.deque()
        self.ended = False
        self.polled = 0.0

    def take(self, lines: List[str]) -> List[List[Message]]:
        """Returns the new requests, and marks messages that are cancelled. Each request is a list
        of the messages of one key."""
        new, poll = [], self.poll if self.polls else None
        for line in lines:
            if line[:1] != "{":
                line = line.strip()
                if not line:
                    continue
            request = _request(line)
            if "cancel" in request:
                self.cancel(request["cancel"])
                continue
            messages = [Message(r, poll) for r in request.get("batch") or (request,)]
            for m in messages:
                self.open[m.id] = m
            new.append(messages)
        return new

    def cancel(self, identity: str) -> None:
        m = self.open.get(identity)
        if m:
            m._cancelled = True

    def poll(self) -> None:
        """Checks for a cancellation, on behalf of a handler that keeps the main thread busy."""
        now = time.monotonic()
        if self.ended or now - self.polled < POLL_S:
            return
        self.polled = now
        while self.wire.readable():
            lines = self.wire.read()
            if lines is None:
                self.ended = True
                return
            self.waiting += self.take(lines)

    def close(self, messages: List[Message]) -> None:
        for m in messages:
            self.open.pop(m.id, None)


# --- running --------------------------------------------------------------------------------------


def _handle(function: Handler, inbox: _Inbox, messages: List[Message]) -> None:
    """Handles the messages of one key in order, and stops after the first message that is not
    done."""
    for m in messages:
        token = _current.set(m)
        error: Optional[BaseException] = None
        try:
            returned: Any = function(m)
            if returned is not None:
                error = _unwanted(returned)
        except BaseException as e:
            # On a thread, SystemExit would end the thread and leave the message without an answer.
            # On the main thread it ends the process, as the handler wants.
            if threading.current_thread() is threading.main_thread() and not isinstance(
                e, Exception
            ):
                raise
            error = e
        finally:
            _current.reset(token)
        line, done = _answer(m, error)
        inbox.add(line)
        if not done:
            break
    inbox.close(messages)


def _serve_here(function: Handler, wire: _Wire) -> None:
    inbox = _Inbox(wire, polls=True)
    inbox.add = wire.add_unlocked
    while not inbox.ended:
        lines = wire.read()
        if lines is None:
            break
        inbox.waiting += inbox.take(lines)
        begun = time.monotonic()
        while inbox.waiting:
            _handle(function, inbox, inbox.waiting.popleft())
            now = time.monotonic()
            if now - begun > FLUSH_S:
                wire.flush()
                begun = now
        wire.flush()


def _work(
    function: Handler, inbox: _Inbox, jobs: "queue.SimpleQueue[Optional[List[Message]]]"
) -> None:
    while True:
        messages = jobs.get()
        if messages is None:
            return
        _handle(function, inbox, messages)
        inbox.wire.flush()


def _serve_threads(function: Handler, wire: _Wire, threads: int) -> None:
    inbox = _Inbox(wire, polls=False)
    jobs: "queue.SimpleQueue[Optional[List[Message]]]" = queue.SimpleQueue()
    pool = [
        threading.Thread(target=_work, args=(function, inbox, jobs), daemon=True)
        for _ in range(threads)
    ]
    for thread in pool:
        thread.start()
    while True:
        lines = wire.read()
        if lines is None:
            break
        for messages in inbox.take(lines):
            jobs.put(messages)
    for _ in pool:
        jobs.put(None)
    for thread in pool:
        thread.join()


class _Block:
    """A time during which the event loop did not run, because something else did."""

    def __init__(self, what: str, frame: FrameType, m: Optional[Message], since: float) -> None:
        self.what, self.message, self.since = what, m, since
        self.where = "%s:%d" % (os.path.basename(frame.f_code.co_filename), frame.f_lineno)
        self.said, self.ended = 0.0, 0.0

    def text(self) -> str:
        seconds = (self.ended or time.monotonic()) - self.since
        return "%s blocked the loop for %.1f s (%s)" % (self.what, seconds, self.where)


class _Watch(threading.Thread):
    """Says which handler blocks the event loop, and for how long. While messages are handled, the
    loop notes the time every BEAT_S, and this thread looks whether it still does."""

    def __init__(self, loop: asyncio.AbstractEventLoop, busy: Callable[[], bool]) -> None:
        super().__init__(name="latchwork-watch", daemon=True)
        self.loop, self.busy = loop, busy
        self.loop_thread = threading.get_ident()
        self.lock = threading.Lock()
        self.wanted = threading.Event()
        self.beat_at = 0.0
        self.last: Optional[_Block] = None  # the block under way, or the last one

    def wake(self) -> None:
        """Called on the loop's thread when messages have arrived."""
        if not self.wanted.is_set():
            self.beat_at = time.monotonic()
            self.wanted.set()
            self.loop.call_later(BEAT_S, self.beat)

    def beat(self) -> None:
        now = time.monotonic()
        with self.lock:
            ended = self.last if self.last and not self.last.ended else None
            if ended:
                ended.ended = now
            self.beat_at = now
        if ended:
            _say(ended.text() + "\n")
        if self.busy():
            self.loop.call_later(BEAT_S, self.beat)
        else:
            self.wanted.clear()

    def run(self) -> None:
        while True:
            self.wanted.wait()
            time.sleep(BLOCKED_S / 4)
            with self.lock:
                text = self.look(time.monotonic()) if self.wanted.is_set() else ""
            if text:
                _say(text)

    def look(self, now: float) -> str:
        """Returns what the log should say about a block: one line after BLOCKED_S, and again each
        time when the block lasts twice as long."""
        since = self.beat_at + BEAT_S / 2
        if now - since < BLOCKED_S:
            return ""
        if not self.last or self.last.ended:
            found = self.who()
            if not found:
                return ""
            self.last = _Block(*found, since)
        block = self.last
        if now - since < 2 * block.said:
            return ""
        block.said = now - since
        return block.text() + (
            " so far; put a call that waits without await into a thread: "
            "await asyncio.to_thread(call, argument)\n"
        )

    def who(self) -> Optional[Tuple[str, FrameType, Optional[Message]]]:
        """Finds what runs on the loop's thread: the handler of a message, or something else; and
        the frame that waits. Returns None if the loop itself runs, which only lacks a processor."""
        frame = sys._current_frames().get(self.loop_thread)
        if not frame or frame.f_code.co_name == "select":
            return None
        inmost = place = frame
        while frame and frame.f_code is not _handle_async.__code__:
            place, frame = frame, frame.f_back
        if not frame:
            return "a callback", inmost, None
        m = frame.f_locals["m"]
        return "handler of %s" % m.id, place, m

    def excuse(self, m: Message) -> str:
        """Returns why a message that was taken back had no time, if that was another's fault."""
        block = self.last
        if not block or block.message is m or (block.ended and block.ended < m._read):
            return ""
        return block.text()


class _AsyncInbox(_Inbox):
    watch: _Watch

    def __init__(self, wire: _Wire) -> None:
        super().__init__(wire, polls=False)
        self.add = wire.add_unlocked
        self.tasks: Dict[
            str, "asyncio.Task[None]"
        ] = {}  # the task of each message; the dict's keys are identities

    def take(self, lines: List[str]) -> List[List[Message]]:
        new, now = super().take(lines), time.monotonic()
        for messages in new:
            for m in messages:
                m._read = now
        return new

    def cancel(self, identity: str) -> None:
        super().cancel(identity)
        task = self.tasks.get(identity)
        if task:
            task.cancel()


async def _handle_async(function: Handler, inbox: _AsyncInbox, messages: List[Message]) -> None:
    task = asyncio.current_task()
    assert task
    for m in messages:
        inbox.tasks[m.id] = task
        _current.set(m)
        error: Optional[BaseException] = None
        try:
            if m._cancelled:
                raise Cancelled()
            returned: Any = await function(m)  # type: ignore[misc]
            if returned is not None:
                error = _unwanted(returned)
        except (Exception, asyncio.CancelledError) as e:
            error = e
        if m._cancelled and isinstance(error, (Cancelled, asyncio.CancelledError)):
            error = Cancelled(inbox.watch.excuse(m))
        del inbox.tasks[m.id]
        line, done = _answer(m, error)
        inbox.add(line)
        if not done:
            break
    inbox.close(messages)


async def _serve_async(function: Handler, wire: _Wire) -> None:
    loop, inbox, running, ended = (
        asyncio.get_running_loop(),
        _AsyncInbox(wire),
        set(),
        asyncio.Event(),
    )
    flushing = False
    watch = inbox.watch = _Watch(loop, lambda: bool(running))
    watch.start()

    def flush() -> None:
        nonlocal flushing
        flushing = False
        wire.flush()

    def finished(task: "asyncio.Task[None]") -> None:
        nonlocal flushing
        running.discard(task)
        if not flushing:  # flush only once for all tasks that end in one turn of the event loop
            flushing = True
            loop.call_soon(flush)

    def arrived() -> None:
        lines = wire.read()
        if lines is None:
            loop.remove_reader(wire.requests)
            ended.set()
            return
        for messages in inbox.take(lines):
            task = loop.create_task(_handle_async(function, inbox, messages))
            running.add(task)
            task.add_done_callback(finished)
        watch.wake()

    loop.add_reader(wire.requests, arrived)
    await ended.wait()
    while running:
        await asyncio.wait(set(running))
    wire.flush()


class _Format(logging.Formatter):
    """Formats a log record as one line, with the identity of the message that is being handled."""

    def format(self, record: logging.LogRecord) -> str:
        m = _current.get()
        text = "%s %s: %s" % (record.levelname.lower(), record.name, super().format(record))
        return ("%s: %s" % (m.id, text) if m else text).replace("\n", " | ")


def _log_to_stderr() -> None:
    if logging.getLogger().handlers:
        return
    out = logging.StreamHandler(sys.stderr)
    out.setFormatter(_Format())
    logging.getLogger().addHandler(out)
    logging.getLogger().setLevel(logging.INFO)


def run(function: Optional[Handler] = None, *, threads: int = 1) -> None:
    """Handles messages until Latchwork closes the pipe of requests, then waits for handlers that
    are still running, and returns.

    `function` is the handler; the default is the function marked with @latchwork.handler. `threads`
    is the number of messages that a plain function handles at a time; a coroutine function needs no
    threads. If the program has not configured logging, log records go to stderr, and so into
    Latchwork's log."""
    atexit.unregister(_tell_no_run)
    function = function or _handler
    if function is None:
        raise RuntimeError(
            "no handler: write @latchwork.handler above your function, or give it to latchwork.run()"
        )
    if threads < 1:
        raise ValueError("threads must be at least 1, is %d" % threads)
    if threads > 1 and inspect.iscoroutinefunction(function):
        raise ValueError(
            "threads are for plain functions; coroutines run on one event loop, as many at a time "
            "as handler.in_flight says"
        )
    _log_to_stderr()
    if _wire.out == 1 and os.isatty(0):
        sys.stderr.write(
            "latchwork: Latchwork starts this program and writes requests to its stdin: "
            "try `latchwork handler test`\n"
        )
    _wire.prepare()
    if inspect.iscoroutinefunction(function):
        asyncio.run(_serve_async(function, _wire))
    elif threads == 1:
        _serve_here(function, _wire)
    else:
        _serve_threads(function, _wire, threads)


def _tell_no_run() -> None:
    """Prints why the program took no message. Called when a program that Latchwork started ends
    without having called run(). Prints nothing after an exception, because the traceback already
    explains the end."""
    if not hasattr(sys, "last_type"):
        print(
            "latchwork: the program ended before it called latchwork.run(), so it takes no messages; write latchwork.run() at its end",
            file=sys.stderr,
        )


_wire = _Wire()
if _wire.out != 1:
    atexit.register(_tell_no_run)
