"""Splits a webhook, which may hold messages and statuses of several numbers, into those of one number. Pure.

Called by `channel.py`. In: the bytes as Meta posted them; out: messages and statuses, each with its surroundings, in
the form that `payload.raw` has. Next: `events.py` for messages, `statuses.py` for statuses.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from switchboard.core.text.lenient import clean
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Unreadable
from switchboard.ports.raw import Raw, at, child

_FIELD: Final = "messages"
_IDS: Final = {"user_id": "from_user_id", "parent_user_id": "from_parent_user_id", "wa_id": "from"}
"""By the id of a contact, the same of a message."""


class SplitWebhook(Struct, frozen=True):
    """What a webhook has for one number: values with one message, and values with one status.

    `others`: how many messages and statuses are of other numbers. `odd`: how many changes are of other kinds.
    """

    messages: tuple[JsonObject, ...] = ()
    statuses: tuple[JsonObject, ...] = ()
    others: int = 0
    odd: int = 0


def split_webhook(raw: bytes, number_id: str) -> SplitWebhook | Unreadable:
    """The messages and statuses of a number."""
    try:
        body = clean(json.loads(raw))
    except (ValueError, RecursionError) as error:
        return Unreadable(f"unreadable:{hashlib.sha256(raw).hexdigest()[:32]}", raw, f"it is not JSON: {error}")
    if isinstance(body, dict) and "entry" not in body and "metadata" in body:  # one message, out of quarantine
        return SplitWebhook(messages=(body,))
    messages, statuses, others, odd = list[JsonObject](), list[JsonObject](), 0, 0
    for change in _changes_in(body):
        value = child(change, "value")
        if change.get("field") != _FIELD:
            odd += 1
            continue
        some, reports = _items_in(value, "messages"), _items_in(value, "statuses")
        if at(value, "metadata", "phone_number_id") != number_id:
            others += len(some) + len(reports)
            continue
        contacts = _items_in(value, "contacts")
        about = {"metadata": dict(child(value, "metadata"))}
        messages += [{**about, "contacts": _contacts_of(one, contacts), "messages": [dict(one)]} for one in some]
        statuses += [{**about, "statuses": [dict(one)]} for one in reports]
    return SplitWebhook(tuple(messages), tuple(statuses), others, odd)


def _changes_in(body: object) -> Iterator[Raw]:
    for entry in _items_in(child(body), "entry"):
        yield from _items_in(entry, "changes")


def _items_in(raw: Raw, name: str) -> Sequence[Raw]:
    found = raw.get(name)
    return [child(one) for one in found if child(one)] if isinstance(found, list) else ()


def _contacts_of(message: Raw, contacts: Sequence[Raw]) -> list[JsonObject]:
    """The contact that a message is from: one that shares an id with it, otherwise the only one without other ids."""
    ids = {theirs: message[ours] for theirs, ours in _IDS.items() if message.get(ours) is not None}
    fitting = [one for one in contacts if all(one.get(name, known) == known for name, known in ids.items())]
    known = [one for one in fitting if not ids.keys().isdisjoint(one)]
    found = known or (fitting if len(contacts) == 1 else [])
    return [dict(one) for one in found[:1]]
