"""Faults of the model: its reply is changed before it is sent.

`endpoints.py` calls `spoil` with the reply of the script. Next: `answer.py`, which adds names and numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec.structs import replace

from switchboard.testing.scripted_llm.faults import CallsAsText, HugeText, TextForm, TwoTools, UnknownTool, WrongTool
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
            return replace(reply, text=_lengthen_text(reply.text or "word ", characters))
        case CallsAsText(form):
            written = "\n".join(as_text(call, form) for call in reply.calls)
            return replace(reply, text=reply.text + written, calls=())
        case _:
            return reply


def _wrong(call: Call, request: Request) -> Call:
    """The same call to a different tool; with an unknown name if no other tool was offered."""
    right = request.offered(call.name)
    others = [name for name in request.tools if name != right]
    return Call(others[0] if others else "another_tool", call.arguments, exact=True)


def _lengthen_text(text: str, characters: int) -> str:
    return (text * (characters // len(text) + 1))[:characters]


def as_text(call: Call, form: TextForm) -> str:
    """A call as models write it that were not taught to make calls, or whose server does not know how they do."""
    if isinstance(call.arguments, str):
        given, written = {}, call.arguments
        words = call.arguments
    else:
        given, written = dict(call.arguments), json.dumps(dict(call.arguments), ensure_ascii=False)
        words = ", ".join(f"{name}={value!r}" for name, value in given.items())
    whole = f'{{"name": "{call.name}", "arguments": {written}}}'
    tags = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in given.items())
    head = f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.{call.name}"
    forms: Mapping[TextForm, str] = {
        "json": whole,
        "fenced": f"```json\n{whole}\n```",
        "tool_call": f"<tool_call>\n{whole}\n</tool_call>",
        "mistral": f"[TOOL_CALLS]{call.name}[ARGS]{written}",
        "function": f"<function={call.name}>{written}</function>",
        "parameters": f"<tool_call>\n<function={call.name}>\n{tags}</function>\n</tool_call>",
        "pythonic": f"[{call.name}({words})]",
        "channel": f"{head} <|constrain|>json<|message|>{written}<|call|>",
    }
    return forms[form]
