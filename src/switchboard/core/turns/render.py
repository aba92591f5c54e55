"""Renders the input of a model, the same bytes for the same facts: prompt, history and last message. Pure.

Providers cache prefixes, so changing parts come after constant ones. `agents/turns/talk.py` renders once per turn;
`frozen.py` keeps the result. Next: `fitting.py`, for input that grows too long.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Final
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from switchboard.core.passages.names import speaker
from switchboard.core.text.lenient import json_value
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.llm import ChatMessage, ToolCall, ToolResult
from switchboard.domain.routing import Member
from switchboard.ports.history import MAX_CALL, Entry, EntryCall

_EARLIER: Final = "What was said in this conversation before, the oldest first, a line of JSON for each message:"
_NOW: Final = "The message that you answer now:"
_BEFORE: Final = (
    "You have begun to work on this message before, and were interrupted. These calls were made then, in this order, "
    "a line of JSON for each:"
)
_GO_ON: Final = (
    "Go on from there; what was done is not to be done again. If you make one of these calls with exactly these "
    "arguments, you get its recorded result, whole, and nothing is done."
)
_UNANSWERED: Final = Entry("user", "(a message of then could not be answered)")


def system_prompt(member: Member, prompt: str) -> str:
    """Who the butler is, then what its operator wrote."""
    who = f"You are {member.name}, an agent of the team {member.team_id}."
    parts = (who, member.description.strip(), prompt.strip())
    return "\n\n".join(part for part in parts if part)


def said_at(text: str, author: str, at: datetime, zone: str) -> str:
    """A person's words with the time, the zone and their author: the form that they have in every later request.

    Each line is quoted, so in a group nobody can write a message that looks like somebody else's, or like ours. `text`
    comes from `showing.py`, which marks others' words; `author` from `speaker`, the name in quotes and the handle.
    """
    local = at.astimezone(ZoneInfo(zone))
    return "\n".join((f"[{local:%Y-%m-%d %H:%M} {zone}, {author}]", *(f"> {line}" for line in text.splitlines())))


def opening(said: str, user_context: str = "") -> str:
    """The last message of the first request. What is known about the person comes first, and in no later turn."""
    return f"{user_context.strip()}\n\n{said}" if user_context.strip() else said


def lacking_note(names: Sequence[str]) -> str:
    """What a butler has to do without, such as a module that could not be opened; empty for none."""
    return f"Not available at present: {', '.join(names)}. Do without; tell the person if it matters." if names else ""


def name_authors(history: Iterable[Entry], names: Mapping[str, str]) -> tuple[Entry, ...]:
    """The history with linked persons called by their names; `names`: by author."""
    return tuple(replace(entry, name=names.get(entry.author, entry.name)) for entry in history)


def without_unanswered(history: Sequence[Entry]) -> tuple[Entry, ...]:
    """The history with a note in place of each message that was never answered: a model may fail at its words."""
    found = list[Entry]()
    for entry, after in zip_longest(history, history[1:]):
        replied = after is not None and after.role == "assistant"
        known = replied or entry.role == "assistant" or not entry.author  # without an author it is a summary
        found.append(entry if known else replace(_UNANSWERED, position=entry.position))
    return tuple(found)


def messages(history: Sequence[Entry], turn: Sequence[ChatMessage], zone: str) -> tuple[ChatMessage, ...]:
    """The messages of a request: strictly alternating, as providers require, and beginning with a person's."""
    said = [message for entry in history for message in _messages_of_entry(entry, zone)]
    while said and said[0].role == "assistant":
        said.pop(0)
    return tuple(_in_turns((*said, *turn)))


def _messages_of_entry(entry: Entry, zone: str) -> Iterator[ChatMessage]:
    if entry.role == "user":
        at, author = entry.created_at, entry.author
        text = said_at(entry.text, speaker(entry.name, author), at, zone) if at and author else entry.text
        yield ChatMessage("user", text)
        return
    if entry.calls:
        calls = tuple(_call(entry, i, call) for i, call in enumerate(entry.calls, 1))
        yield ChatMessage("assistant", calls=calls)
        results = zip(calls, entry.calls, strict=True)
        yield ChatMessage("user", results=tuple(ToolResult(c.id or "", e.result, e.ok) for c, e in results))
    yield ChatMessage("assistant", entry.text.strip() or "…")


def _call(entry: Entry, i: int, call: EntryCall) -> ToolCall:
    """A call of the history. Its id comes from its place, because turns may use the same ids."""
    arguments = json_value(call.arguments)
    known = arguments if isinstance(arguments, dict) else {"cut": call.arguments}
    return ToolCall(call.name, known, id=f"h{entry.position}_{i}")


def _in_turns(said: Iterable[ChatMessage]) -> list[ChatMessage]:
    """The messages, with neighbours of the same role merged into one."""
    found: list[ChatMessage] = []
    for message in said:
        before = found[-1] if found else None
        if before is not None and before.role == message.role and not before.blocks and not message.blocks:
            found[-1] = ChatMessage(
                message.role,
                "\n\n".join(text for text in (before.text, message.text) if text),
                (*before.calls, *message.calls),
                (*before.results, *message.results),
                images=(*before.images, *message.images),
            )
        else:
            found.append(message)
    return found


def as_text(said: Sequence[ChatMessage]) -> str:
    """The messages of a request for a program that takes one text: what was said earlier, then the last message.

    Each earlier message is a line of JSON, so nobody can write one that looks like somebody else's.
    """
    *earlier, last = said
    lines = [json.dumps(line, ensure_ascii=False) for one in earlier for line in _lines(one)]
    return "\n".join((_EARLIER, *lines, "", _NOW, last.text)) if lines else last.text


def made_before(calls: Sequence[tuple[ToolCall, JsonMapping]]) -> str:
    """The note for a restarted program; empty if nothing was called.

    Without it, the program could do the same thing again in other words.
    """
    lines = [
        json.dumps(
            {
                "tool": made.name,
                "arguments": dict(made.arguments),
                "ok": record["ok"],
                "result": record["text"][:MAX_CALL],
            },
            ensure_ascii=False,
        )
        for made, record in calls
    ]
    return "\n".join((_BEFORE, *lines, _GO_ON)) if lines else ""


def _lines(message: ChatMessage) -> Iterator[dict[str, object]]:
    for result in message.results:
        yield {"result_of_call": result.call_id, "ok": result.ok, "text": result.text}
    if message.text:
        yield {"role": message.role, "text": message.text}
    for call in message.calls:
        yield {"call": call.id, "tool": call.name, "arguments": dict(call.arguments)}


def arguments_text(call: ToolCall) -> str:
    """The arguments of a call as an entry keeps them."""
    return json.dumps(dict(call.arguments), ensure_ascii=False)
