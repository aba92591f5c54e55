"""What a turn keeps of its message, and whether others' words were read. Pure.

Plans and models ask one question before anything takes effect: `told_by_others`. Called by `agents/turns` and
`agents/trio`, and by the store for entries of older releases. In: the turn and what it is shown; out: entries, and the
answer to that question. Next: `frozen.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.envelope.due import due_text, is_told
from switchboard.core.passages.folding import answers_something, folded
from switchboard.core.passages.names import shown_name
from switchboard.core.passages.own import MAIL, has_others_words, own_text, passages_of, read_passages
from switchboard.core.passages.showing import shown_text
from switchboard.core.people.readers import person_of
from switchboard.core.turns.asking import ASK_USER
from switchboard.core.turns.frozen import Frozen
from switchboard.core.turns.images import (
    INBOX,
    add_attachment_marks,
    may_show_names,
    shows_names,
    strip_attachment_marks,
)
from switchboard.core.turns.render import arguments_text
from switchboard.domain.envelope import DueTask, Envelope, Passage
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.llm import ToolCall, ToolResult
from switchboard.ports.engine import Turn
from switchboard.ports.facts import Fact
from switchboard.ports.history import MAX_CALL, Entry, EntryCall
from switchboard.ports.surroundings import RecordedText

OURS: Final = (
    *("read_file", "write_file", "list_files", "search_files", "execute_command", "bash", "attach_file", ASK_USER),
    *("remember", "memory_search", "memory_store_fact", "memory_store_episode", "memory_confirm", "memory_forget"),
    *("memory_entity_link", "memory_entity_unlink", "module_tools"),
)
"""Our tools whose results contain nothing from outside the workspace, except where they name `_KEPT_FOR_READERS`."""
_KEPT_FOR_READERS: Final = (INBOX, "tool-results")
"""Directories with what came from outside: files of messages, and long results of tools."""


class EntryOnRecord(Struct, frozen=True):
    """An entry of a history. `person`: its author or addressee."""

    role: str
    person: str
    text: str
    created_at: datetime


def entry_of(turn: Turn, history: Sequence[Entry], record: Sequence[RecordedText] = ()) -> Entry:
    """The message as this turn and all later ones are shown it; `history` and `record` are what this reader may see."""
    task = turn.envelope.control.task
    if task is not None:
        return _entry_of_task(turn, task)
    passages, attached = passages_of(turn.envelope), turn.envelope.payload.attachments
    known = [*(one.text for one in history), *(one.text for one in record)]
    # There is a record only of what a message says that it answers.
    shown = folded(passages, answers_something(passages) or bool(record), known)
    text, own = add_attachment_marks(shown_text(shown), attached), own_text(passages)
    return Entry(
        "user",
        text,
        person_of(turn.envelope),
        created_at=turn.received_at,
        own=None if own == text else own,
        name=shown_name(turn.envelope.sender.display_name),
        told=has_others_words(passages) or shows_names(attached),
    )


def _entry_of_task(turn: Turn, task: DueTask) -> Entry:
    """The text of a task that is due, in which nothing is the person's own, and from which nothing is learned."""
    return Entry(
        "user",
        due_text(task, turn.text),
        person_of(turn.envelope),
        created_at=turn.received_at,
        own="",
        name=shown_name(turn.envelope.sender.display_name),
        told=is_told(task),
        learn=False,
    )


def exchange_of(turn: Turn, frozen: Frozen, reply: str, calls: Sequence[EntryCall]) -> tuple[Entry, Entry]:
    """What the history keeps of a turn: its message, and the reply, for which these calls were made."""
    own = frozen.own or ()
    told = told_by_others(frozen) or any(read_outside(one, own) for one in calls)
    return frozen.said or entry_of(turn, frozen.history), Entry("assistant", reply, calls=tuple(calls), told=told)


def entry_call(made: ToolCall, result: ToolResult, ours: Collection[str]) -> EntryCall:
    """A call as it is kept: cut, so whether it may have read others' words is noted before. `ours`: as below."""
    outside = comes_from_outside(made.name, made.arguments, ours)
    arguments = arguments_text(made)[:MAX_CALL]
    return EntryCall(made.id or "", made.name, arguments, result.text[:MAX_CALL], result.ok, outside)


def own_words_of(envelope: Envelope) -> str:
    """What the sender of a message wrote."""
    return own_text(passages_of(envelope))


def with_own_words(entry: Entry) -> Entry:
    """An entry in which nobody noted whose words it has, such as one of an older release, read as if it came today.

    A mail counts as told in any case: of one in HTML, older releases kept the quoted lines without marks.
    """
    if entry.told is not None or entry.role != "user" or not entry.author:
        return entry
    channel = unquote(entry.author.partition("/")[0])
    passages = read_passages(strip_attachment_marks(entry.text).strip(), channel)
    told = channel == MAIL or has_others_words(passages) or may_show_names(entry.text)
    return replace(entry, own=own_text(passages), told=told)


# Whether others' words were read --------------------------------------------------------------------------------------


def told_by_others(frozen: Frozen) -> bool:
    """Whether a model of this turn may follow others' instructions. A start of an older release counts as told.

    Whatever else a turn is shown of others joins in here.
    """
    return frozen.told is not False or frozen.outside


def others_words(passages: Sequence[Passage], shown: Sequence[Entry], ours: Collection[str], person: str = "") -> bool:
    """Whether anything in a message, or in the entries shown with it, is by others or was written after reading them.

    `ours`: tools whose results contain nothing from outside. `person`: who sent the message; what other people of the
    conversation have said is foreign, too.
    """
    others = {entry.author for entry in shown if entry.role == "user"} - {"", person} if person else ()
    return bool(others) or has_others_words(passages) or any(_is_told(entry, ours) for entry in shown)


def others_facts(told: Iterable[Fact]) -> bool:
    """Whether somebody else than who sent the message has said any of the facts that the model is told."""
    return not all(fact.own for fact in told)


def read_outside(call: EntryCall, ours: Collection[str]) -> bool:
    """Whether the result of a kept call may contain others' words; see `comes_from_outside`.

    Of a call that an older release has kept, this is told from as much of its arguments as was kept.
    """
    return comes_from_outside(call.name, call.arguments, ours) if call.outside is None else call.outside


def comes_from_outside(tool: str, arguments: JsonMapping | str, ours: Collection[str]) -> bool:
    """Whether the result of a call may contain others' words."""
    return tool not in ours or any(name in str(arguments) for name in _KEPT_FOR_READERS)


def _is_told(entry: Entry, ours: Collection[str]) -> bool:
    if entry.told is not None:
        return entry.told
    if entry.role == "user":
        return entry.own is not None and entry.own.strip() != strip_attachment_marks(entry.text).strip()
    return any(read_outside(call, ours) for call in entry.calls)
