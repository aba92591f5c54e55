"""Habits of servers that change how an answer is sent, but not what it says.

`endpoints.py` calls `sent_as` with the parts of an answer, `openai_chat.py` calls `pieces_of` for those of a call. In:
the habits of a reply; out: what is sent. Next: `faults.py`, which names them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from switchboard.domain.json_values import JsonObject
from switchboard.testing.scripted_llm.faults import Fault, Habit, Habits

_KEPT_ALIVE: Final = (b": ping\n\n", b"data:\n\n", b"data: null\n\n")
_ENDS: Final = (b"data: [DONE]", b"event: message_stop")
_FIELDS: Final = (b"data:", b"event:", b":")


def habits_of(fault: Fault | None) -> frozenset[Habit]:
    """The habits of a reply."""
    return frozenset(fault.habits) if isinstance(fault, Habits) else frozenset()


def sent_as(parts: Sequence[bytes], habits: Collection[Habit]) -> list[bytes]:
    """The parts of a body; only a stream is changed."""
    if not parts or not parts[0].startswith(_FIELDS):
        return list(parts)
    kept = [part for part in parts if "no_done" not in habits or not part.startswith(_ENDS)]
    if "keep_alive" in habits:
        kept = [piece for n, part in enumerate(kept) for piece in (_KEPT_ALIVE[n % len(_KEPT_ALIVE)], part)]
    if "no_blank_line" in habits:
        kept[-1] = kept[-1].rstrip(b"\n")
    return kept


def type_of(usual: str, habits: Collection[Habit]) -> str:
    """The content type of a body; "" for none."""
    if "no_type" in habits:
        return ""
    return "application/json" if "json_type" in habits else usual


def name_of(name: str, habits: Collection[Habit]) -> str:
    """The name of a tool as the server sends it."""
    prefixed = f"functions.{name}" if "name_prefixed" in habits else name
    return f" {prefixed}\n" if "name_padded" in habits else prefixed


def pieces_of(name: str, arguments: Sequence[str], habits: Collection[Habit]) -> Iterator[JsonObject]:
    """A call in pieces, each an object with a part of the name, of the arguments, or both."""
    if "no_index" in habits:
        yield {"name": name, "arguments": "".join(arguments)}
        return
    if "name_in_pieces" in habits:
        yield {"name": name[:3], "arguments": ""}
        yield {"name": name[3:], "arguments": ""}
    else:
        yield {"name": name, "arguments": ""}
    again = {"name": name} if "name_repeated" in habits else {}
    yield from ({**again, "arguments": piece} for piece in arguments)
    if "name_again" in habits:
        yield {"name": name, "arguments": ""}
