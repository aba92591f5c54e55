"""What people are asked while a turn waits: the texts for them and for models, and the commands that answer. Pure.

`agents/turns/asking.py` asks, `journey/approving.py` tells the conversation and handles the commands, the command line
shows arguments. A model's words are always shown as JSON in which nothing is hidden, so they cannot look like ours;
what a tool has looked up stands before them in lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, Literal, cast
from uuid import UUID

import msgspec
from msgspec import Struct

from switchboard.core.routing.facts import facts
from switchboard.core.text.outside import outside_json
from switchboard.core.text.visible import escaped
from switchboard.core.turns.command import command_text, has_command
from switchboard.domain.envelope import Envelope, Passage
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.routing import spoken_name
from switchboard.domain.shown import ShownApproval
from switchboard.ports.channel import Channel
from switchboard.ports.chat import is_own
from switchboard.ports.engine import Decided, Pending

Verb = Literal["approve", "refuse", "answer"]
ASK_USER: Final = "ask_user"
MOST_IN_CHAT: Final = 2000
"""Maximum characters of arguments shown in chat. Longer ones cannot be approved there: nobody has seen them whole."""
_MOST_NOTED: Final = 300
_SHORT: Final = 8
"""Digits of an id that are shown for use in a command."""
_LEAST: Final = 4
"""Minimum digits of an id in a command: with fewer, everything that waits would have to be searched for it."""
_COMMAND: Final = re.compile(
    r"/(approve|refuse|answer)(?:@(\S+))?[^\S\n]+([0-9a-f-]{4,36})(?:\s+(.*))?", re.IGNORECASE | re.DOTALL
)
_WORD: Final = re.compile(r"\w+")
_MOST_QUOTED: Final = 200
_NUMBER: Final = re.compile(r"[1-9][0-9]?")


# What is asked --------------------------------------------------------------------------------------------------------


LOOKED_UP: Final = "(looked up)"
"""Among the arguments that a person is shown: what was looked up for them."""


def digest_of(tool: str, schema: JsonMapping, arguments: JsonMapping, turn: str) -> str:
    """A digest of a call of this tool in this turn; the order of the arguments makes no difference."""
    whole = msgspec.json.encode([tool, schema, arguments, turn], order="deterministic")
    return sha256(whole).hexdigest()


def render_arguments(arguments: JsonMapping) -> str:
    """All arguments as JSON, one per line, without control, directional or invisible characters.

    Before them stands what was looked up for them, in lines: it is what a person decides about, and must be readable.
    """
    looked_up = str(arguments.get(LOOKED_UP, ""))
    given = [f"{outside_json(name)}: {outside_json(value)}" for name, value in arguments.items() if name != LOOKED_UP]
    return "\n".join([*_readable_lines(looked_up), *given]) or "none"


def _readable_lines(text: str) -> list[str]:
    """The lines of a text, in which nothing ends the block of code that they stand in; then an empty one, if any."""
    lines = [escaped(line).replace("`", "\\u0060") for line in text.splitlines()]
    return [*lines, ""] if lines else []


def line_behind(arguments: JsonMapping, passages: Sequence[Passage]) -> str:
    """The line by others that has most of the words of a call, as JSON; empty if none has half of them."""
    wanted = _words(" ".join(map(str, arguments.values())))
    lines = (line for one in passages if one.kind != "own" for line in one.text.splitlines())
    line = max(lines, key=lambda line: len(wanted & _words(line)), default="")
    found = len(wanted & _words(line))
    return outside_json(line.lstrip(" \t>|")[:_MOST_QUOTED]) if found and 2 * found >= len(wanted) else ""


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def fits_chat(asked: ShownApproval) -> bool:
    """Whether a conversation can be shown all the arguments."""
    return len(render_arguments(asked.arguments)) <= MOST_IN_CHAT


def notice(asked: Sequence[ShownApproval], *, decides: bool, mark: str = "/") -> str:
    """The text for the person whose message is waiting. `decides`: whether they may approve calls in chat.

    `mark`: the `command_mark` of the channel.
    """
    return "\n\n".join(
        _question(one, mark) if one.kind == "question" else _request(one, mark if decides else "") for one in asked
    )


def _question(one: ShownApproval, mark: str) -> str:
    """A model's words, each line marked as such: otherwise it could imitate us and ask to `/approve` another call."""
    said = [f"> {line}" for line in str(one.arguments.get("question", "")).splitlines()]
    options = [f"{n}. {' '.join(option.split())}" for n, option in enumerate(options_of(one), 1)]
    return "\n".join(
        (
            f"{spoken_name(one.system_id)} asks:",
            *said,
            *options,
            f"To answer: {mark}answer {short(one)} and your answer",
        )
    )


def _request(one: ShownApproval, mark: str) -> str:
    """Without a mark, the person may not decide."""
    shown = render_arguments(one.arguments)
    whole = len(shown) <= MOST_IN_CHAT
    if not whole:
        shown = f"{shown[:MOST_IN_CHAT]}\n… {len(shown) - MOST_IN_CHAT} more characters"
    until = f"{one.deadline_at:%Y-%m-%d %H:%M} UTC"
    elsewhere = f"An operator can decide until {until}: switchboard approvals show {short(one)}"
    here = f"Decide by {until}: {mark}approve {short(one)} or {mark}refuse {short(one)}"
    how = here if mark and whole else elsewhere
    return f"This needs approval first: {one.tool} ({one.why})\n```\n{shown}\n```\n{how}"


def options_of(asked: ShownApproval) -> tuple[str, ...]:
    """The answers that a question offers."""
    options = asked.arguments.get("options")
    return tuple(map(str, options)) if isinstance(options, list | tuple) else ()


def short(asked: ShownApproval) -> str:
    """The beginning of its id, for commands."""
    return asked.approval_id.hex[:_SHORT]


# What models are told -------------------------------------------------------------------------------------------------


def pending_note(pending: Sequence[Pending]) -> str:
    """The note for the turn of a later message about pending requests; empty if there are none."""
    if not pending:
        return ""
    lines = [
        f"- {one.tool} {_shorten_json(one.arguments)} for the message {_shorten_json(one.message)}, "
        f"which waits for {'an answer' if one.kind == 'question' else 'an approval'} ({one.approval_id.hex[:_SHORT]})"
        for one in pending
    ]
    return "\n".join(("Earlier messages of this conversation still wait; they go on by themselves:", *lines))


def _shorten_json(value: object) -> str:
    text = outside_json(value)
    return text if len(text) <= _MOST_NOTED else f"{text[:_MOST_NOTED]}…"


def not_approved(decided: Decided) -> str | None:
    """Why a call that people had to decide about is not made, in words for people; None: it was approved."""
    if decided.expired:
        return "nobody approved it in time"
    said, decision = decided.value.get("text"), decided.value.get("decision")
    if decision == "approved":
        return None
    if decision == "unasked":
        return f"it needs an approval ({decided.value.get('why')}), and {said}"
    return "a person refused it" + (f", saying {outside_json(said)}" if said else "")


def not_called(tool: str, decided: Decided) -> str | None:
    """The same for a model, with what it should do."""
    why = not_approved(decided)
    if why is None:
        return None
    if decided.expired:
        then = " Tell the person; ask again only if they want it."
    else:
        then = "" if decided.value.get("decision") == "unasked" else " Do not try to get the same in another way."
    return f"{tool} was not called: {why}.{then}"


def answer_of(decided: Decided) -> str | None:
    """A person's answer; None: nobody answered in time, or they refused."""
    if decided.expired or decided.value.get("decision") != "answered":
        return None
    return str(decided.value.get("text") or "")


def explain_no_answer(decided: Decided) -> str:
    """The result for a model whose question was not answered."""
    if decided.expired:
        return "nobody has answered in time; go on as far as that is possible without the answer"
    if decided.value.get("decision") == "unasked":
        return f"the question was not asked: {decided.value.get('text')}"
    return "the person does not want to answer; go on as far as that is possible without the answer"


# Commands -------------------------------------------------------------------------------------------------------------


class ChatCommand(Struct, frozen=True):
    """What a person decides in chat. `start`: the first hexadecimal digits of the id in question."""

    verb: Verb
    start: str
    text: str

    @property
    def ids(self) -> tuple[UUID, UUID]:
        """The lowest and the highest id with this beginning."""
        return UUID(self.start.ljust(32, "0")), UUID(self.start.ljust(32, "f"))


def command_in(text: str) -> ChatCommand | None:
    """The command, if the text consists of nothing else."""
    found = _COMMAND.fullmatch(text.strip())
    if found is None:
        return None
    start, said = found[3].replace("-", "").lower(), (found[4] or "").strip()
    verb = cast(Verb, found[1].lower())
    if not _LEAST <= len(start) <= 32 or (verb == "answer") > bool(said) or (verb == "approve" and said):
        return None
    return ChatCommand(verb, start, said)


def is_command(envelope: Envelope, channel: Channel) -> bool:
    """Whether a message is such a command, written by a person, and certainly by its sender."""
    text = command_text(envelope, channel.command_mark) if has_command(envelope, channel.command_mark) else ""
    if not text or command_in(text) is None:
        return False
    found = _COMMAND.fullmatch(text)
    if found is not None and found[2] and not is_own(envelope, found[2]):
        return False
    return is_answer(envelope, channel)


def is_answer(envelope: Envelope, channel: Channel) -> bool:
    """Whether a message was written by a person, and certainly by its sender, so that it may answer a question."""
    # An edit decides nothing: it may be of a message that was read long ago.
    if envelope.event.kind != "message" or envelope.control.is_ours:
        return False
    return not envelope.edits and channel.automatic(envelope) is None and channel.authentic(facts(envelope, channel))


def resolve_answer(asked: ShownApproval, said: str) -> str:
    """The answer; a number selects the option with that number, whatever signature stands below it."""
    options, number = options_of(asked), said.partition("\n\n")[0].strip()
    if _NUMBER.fullmatch(number) and int(number) <= len(options):
        return options[int(number) - 1]
    return said
