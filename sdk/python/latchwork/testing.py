# SPDX-License-Identifier: Apache-2.0
"""Test a handler without Latchwork, for instance with pytest:

    from latchwork.testing import handle, message

    import handler  # calls latchwork.run() only below `if __name__ == "__main__":`


    def test_an_order_without_an_amount():
        ended = handle(handler.handle, message({"id": "a"}))
        assert ended.outcome == "dead"
        assert "no amount" in ended.reason

handle() judges what the function returns or raises as latchwork.run() does. It shows nothing of
leases, further attempts and other messages; `latchwork handler test` does."""

import asyncio
import base64
import inspect
import json
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

from . import Handler, Message, Text, _answer, _current, _unwanted

__all__ = ["Ended", "handle", "handle_async", "message"]


class Ended(NamedTuple):
    """How a handler ended a message."""

    outcome: str  # "done", "retry" or "dead"
    reason: str  # "" if there is none
    after: Optional[float]  # of a Retry: its `after`, in seconds
    counts: bool  # of a Retry: its `counts`
    error: Optional[BaseException]  # what the handler raised


def _wire_text(value: Text) -> Any:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(bytes(value or b"")).decode()}


def message(
    payload: Any = None,
    *,
    key: Text = "key",
    id: str = "topic/0/0",
    attempt: int = 1,
    fence: int = 1,
    headers: Sequence[Tuple[Text, Text]] = (),
    timestamp_ms: Optional[int] = None,
    deadline: Optional[float] = None,
) -> Message:
    """Returns a message as Latchwork would send it. A payload that is text, bytes or None is taken
    as it is; anything else becomes JSON."""
    topic, partition, offset = id.rsplit("/", 2)
    if payload is not None and not isinstance(payload, (str, bytes)):
        payload = json.dumps(payload)
    request: Dict[str, Any] = {
        "id": id,
        "attempt": attempt,
        "fence": fence,
        "topic": topic,
        "partition": int(partition),
        "offset": int(offset),
        "timestamp_ms": timestamp_ms,
        "headers": [[_wire_text(name), _wire_text(value)] for name, value in headers],
    }
    for name, value in (("key", key), ("payload", payload)):
        text = _wire_text(value)
        if isinstance(text, dict):
            request[name + "_base64"] = text["base64"]
        else:
            request[name] = text
    if deadline is not None:
        request["deadline_ms"] = int(1000 * deadline)
    return Message(request)


async def handle_async(function: Handler, m: Message) -> Ended:
    """Calls the handler, a function or a coroutine function, with one message."""
    token = _current.set(m)
    error: Optional[BaseException] = None
    try:
        returned: Any = function(m)
        if inspect.iscoroutinefunction(function):
            returned = await returned
        if returned is not None:
            error = _unwanted(returned)
    except Exception as e:
        error = e
    finally:
        _current.reset(token)
    answer = json.loads(_answer(m, error)[0])
    after = answer.get("after_ms")
    return Ended(
        answer["outcome"],
        answer.get("reason", ""),
        None if after is None else after / 1000,
        answer.get("counts", True),
        error,
    )


def handle(function: Handler, m: Message) -> Ended:
    """Does the same where no event loop runs: in a test that is a plain function."""
    return asyncio.run(handle_async(function, m))
