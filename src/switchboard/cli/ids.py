"""Ids as typed by people: complete, or a unique beginning or end.

Called by the commands that take an ID. In: words; out: a UUID, or an error that says what the id belongs to. Next:
`GET /v1/ids`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Final, Literal, TypeVar
from uuid import UUID

import typer
from msgspec import Struct

from switchboard.cli.client import Client, ask
from switchboard.cli.output import Json, clean
from switchboard.domain.errors import InvalidInput, NotFound, SwitchboardError

RequestId = Annotated[str, typer.Argument(help="The message's id, or its first or last characters.", metavar="ID")]
Kind = Literal[
    "message", "dead_letter", "reply", "rule", "contact", "event", "approval", "task", "fact", "summary", "run"
]
_BEGINNING = re.compile(r"[0-9a-fA-F-]{4,36}")
_T = TypeVar("_T")


class _Words(Struct, frozen=True):
    """The name of a kind, and the commands that list and show it; `shown`: empty if only the list shows it."""

    name: str
    listed: str
    shown: str


_WORDS: Final[Mapping[str, _Words]] = {
    "message": _Words("message", "messages list", "messages show"),
    "dead_letter": _Words("dead letter", "dlq list", "dlq show"),
    "reply": _Words("reply", "outbox list", "outbox show"),
    "rule": _Words("rule", "rules list", "rules show"),
    "contact": _Words("contact", "pairing list", "pairing show"),
    "event": _Words("event in quarantine", "quarantine list", "quarantine show"),
    "approval": _Words("approval", "approvals list", "approvals show"),
    "task": _Words("task", "tasks list", "tasks show"),
    "fact": _Words("fact", "memory list", "memory show"),
    "summary": _Words("summary", "memory list --summaries", ""),
    "run": _Words("run", "memory runs", ""),
}


def check_id(given: str, kind: Kind) -> str:
    """The word, if it can be an id, or the beginning or end of one. Usage error if not."""
    if kind != "rule" and not _BEGINNING.fullmatch(given):  # a rule may be named
        words = _WORDS[kind]
        raise typer.BadParameter(
            f"{given!r} is not an id: give the id of {_a(words)}, or its first 4 or last 8 characters, or more, as "
            f"`switchboard {words.listed}` shows them",
            param_hint="ID",
        )
    return given


def ask_about(kind: Kind, given: str, work: Callable[[Client, UUID], Awaitable[_T]]) -> _T:
    """Run `work` with the id that is meant. NotFound says if it belongs to something else."""
    check_id(given, kind)

    async def run(client: Client) -> _T:
        found = await resolve_id(client, kind, given)
        try:
            return await work(client, found)
        except NotFound:
            await _refuse_others(client, kind, given)
            raise

    return ask(run)


async def resolve_id(client: Client, kind: Kind, given: str) -> UUID:
    """The complete id. Raises NotFound, or InvalidInput if several begin or end so."""
    try:
        return UUID(given)
    except ValueError:
        matches = await _matches(client, kind, given)
    found = [one for one in matches if one["kind"] == kind]
    words = _WORDS[kind]
    if len(found) > 1:
        ids = ", ".join(str(one["id"]) for one in found)
        what = "the name or a part of the id" if kind == "rule" else "a part of the id"
        raise InvalidInput(f"{given} is {what} of several, such as {ids}; give more of the id", code="ambiguous_id")
    if not found:
        _say_what_it_is(kind, matches)
        name = f"the name {given}, or " if kind == "rule" else ""
        raise NotFound(
            f"no {words.name} has {name}an id that begins or ends with {given}; see `switchboard {words.listed}`"
        )
    return UUID(found[0]["id"])


async def _matches(client: Client, kind: Kind, given: str) -> list[Json]:
    """What has such an id; tasks, which belong to a module, only if one of them is meant."""
    tasks = (await client.get("/v1/tasks", {"start": given}))["tasks"] if kind == "task" else ()
    others = (await client.get("/v1/ids", {"start": given}))["matches"]
    return [{"kind": "task", "id": one["task_id"], "request_id": None} for one in tasks] + list(others)


async def _refuse_others(client: Client, kind: Kind, given: str) -> None:
    """Raise NotFound that says what this id belongs to; do nothing if the caller may not know."""
    try:
        matches = await _matches(client, kind, given)
    except SwitchboardError:
        return
    _say_what_it_is(kind, matches)


def _say_what_it_is(kind: Kind, matches: list[Json]) -> None:
    for one in matches:
        if one["kind"] != kind:
            words = _WORDS[one["kind"]]
            other = one["kind"] != "message" and one["request_id"]
            about = f"; its message: `switchboard explain {one['request_id']}`" if other else ""
            shown = f"{words.shown} {one['id']}" if words.shown else words.listed
            raise NotFound(
                f"{clean(one['id'])} is the id of {_a(words)}, not of {_a(_WORDS[kind])}: `switchboard {shown}`{about}"
            )


def _a(words: _Words) -> str:
    """The name with its article."""
    return f"{'an' if words.name[0] in 'aeio' else 'a'} {words.name}"
