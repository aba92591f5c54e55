"""Faults of the model: its reply is changed before it is sent.

`endpoints.py` calls `spoil` with the reply of the script. Next: `answer.py`, which adds names and numbers.
"""

from __future__ import annotations

from msgspec.structs import replace

from switchboard.testing.scripted_llm.faults import HugeText, TwoTools, UnknownTool, WrongTool
from switchboard.testing.scripted_llm.request import Request
from switchboard.testing.scripted_llm.script import Call, Reply


def spoil(reply: Reply, request: Request) -> Reply:
    """The reply of a misbehaving model. Faults of the wire stay in it."""
    match reply.fault:
        case WrongTool():
            return replace(reply, calls=tuple(_wrong(call, request) for call in reply.calls))
        case UnknownTool(name):
            return replace(reply, calls=tuple(Call(name, call.arguments, exact=True) for call in reply.calls))
        case TwoTools():
            return replace(reply, calls=tuple(call for call in reply.calls for _ in range(2)))
        case HugeText(characters):
            return replace(reply, text=_grown(reply.text or "word ", characters))
        case _:
            return reply


def _wrong(call: Call, request: Request) -> Call:
    """The same call to a different tool; with an unknown name if no other tool was offered."""
    right = request.offered(call.name)
    others = [name for name in request.tools if name != right]
    return Call(others[0] if others else "another_tool", call.arguments, exact=True)


def _grown(text: str, characters: int) -> str:
    return (text * (characters // len(text) + 1))[:characters]
