"""Pages of messages as Slack gives them. Pure. Called by `methods.py` with messages in their order.

What Slack does not say is done in the way that is harder for a client: with `oldest` alone, the first page is the one
next to it, as some have seen; and every page of a thread begins with its root.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Final

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.testing.slack.checks import Arguments
from switchboard.testing.slack.errors import SlackError

_MAX_LIMIT: Final = 999
_DEFAULT_LIMIT: Final = 100
_CURSOR: Final = "next_ts:"


def read_history(messages: Sequence[JsonObject], arguments: Arguments) -> JsonObject:
    """A page of conversations.history, newest first.

    With `oldest` alone, the first page is the one next to it, and cursors lead to newer ones; otherwise the first page
    is the newest, and they lead to older ones.
    """
    found = _select_between(messages, arguments)
    if arguments.word("oldest") and not arguments.word("latest"):
        page, following = _cut_page(found, arguments, _is_newer)
    else:
        page, following = _cut_page(found[::-1], arguments, _is_older)
        page = page[::-1]
    return _as_page(page[::-1], following, arguments)


def read_replies(thread: Sequence[JsonObject], arguments: Arguments) -> JsonObject:
    """A page of conversations.replies, oldest first; every page begins with the root of the thread."""
    page, following = _cut_page(_select_between(thread[1:], arguments), arguments, _is_newer)
    return _as_page([thread[0], *page], following, arguments)


def cut_list(found: Sequence[JsonObject], arguments: Arguments) -> tuple[list[JsonObject], str]:
    """A page of anything with an `id`, and the cursor of the next; empty if there is none."""
    return _cut_page(found, arguments, lambda one, name: one["id"] == name, "id")


def _select_between(messages: Sequence[JsonObject], arguments: Arguments) -> list[JsonObject]:
    oldest, latest = _time_of(arguments, "oldest"), _time_of(arguments, "latest")
    found = [
        one
        for one in messages
        if (oldest is None or Decimal(one["ts"]) > oldest) and (latest is None or Decimal(one["ts"]) < latest)
    ]
    if not arguments.flag("inclusive"):
        return found
    edges = [one for one in messages if Decimal(one["ts"]) in (oldest, latest)]
    return sorted([*found, *edges], key=lambda one: Decimal(one["ts"]))


def _time_of(arguments: Arguments, name: str) -> Decimal | None:
    value = arguments.word(name)
    try:
        return Decimal(value) if value else None
    except InvalidOperation:
        raise SlackError(f"invalid_ts_{name}") from None


def _cut_page(
    found: Sequence[JsonObject], arguments: Arguments, is_reached: Callable[[JsonObject, str], bool], key: str = "ts"
) -> tuple[list[JsonObject], str]:
    """From the first that the cursor has reached; the one that it names may have been deleted."""
    limit = arguments.number("limit", _DEFAULT_LIMIT)
    if not 1 <= limit <= _MAX_LIMIT:
        raise SlackError("invalid_limit")
    start = 0
    if cursor := arguments.word("cursor"):
        name = _decode_cursor(cursor)
        start = next((n for n, one in enumerate(found) if is_reached(one, name)), len(found))
    page, rest = found[start : start + limit], found[start + limit :]
    return [*page], _encode_cursor(rest[0][key]) if rest else ""


def _is_newer(message: JsonMapping, ts: str) -> bool:
    return Decimal(message["ts"]) >= Decimal(ts)


def _is_older(message: JsonMapping, ts: str) -> bool:
    return Decimal(message["ts"]) <= Decimal(ts)


def _encode_cursor(name: str) -> str:
    return base64.b64encode(f"{_CURSOR}{name}".encode()).decode()


def _decode_cursor(cursor: str) -> str:
    try:
        found = base64.b64decode(cursor, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        found = ""
    if not found.startswith(_CURSOR):
        raise SlackError("invalid_cursor")
    return found.removeprefix(_CURSOR)


def _as_page(messages: Sequence[JsonObject], cursor: str, arguments: Arguments) -> JsonObject:
    whole = arguments.flag("include_all_metadata")
    shown = [one if whole else _without_payload(one) for one in messages]
    page: JsonObject = {"messages": shown, "has_more": bool(cursor)}
    return page | ({"response_metadata": {"next_cursor": cursor}} if cursor else {})


def _without_payload(message: JsonMapping) -> JsonObject:
    if "metadata" not in message:
        return dict(message)
    return {**message, "metadata": {"event_type": message["metadata"]["event_type"], "event_payload": {}}}
