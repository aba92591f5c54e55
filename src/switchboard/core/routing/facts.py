"""What rules match on: a flat `dict[str, str]` derived from an envelope, by one pure function per channel.

Called by `journey/decide.py` at acceptance and when a stored message is explained; `with_derived` for made-up facts.
In: an envelope and its channel; out: facts. An unknown fact is absent, never an empty string or the word "None". The
channels' own facts are in `core/channels/`. Next: `decide.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Final

from switchboard.core.envelope.due import facts_of_task
from switchboard.domain.envelope import Envelope
from switchboard.domain.people import Known
from switchboard.domain.routing import Filters, FilterValue
from switchboard.ports.channel import SEVERAL, Channel, Found
from switchboard.ports.chat import kind_of, media_of

FindSender = Callable[[Envelope, Channel, Mapping[str, str]], Known | None]
"""Finds the person who certainly wrote a message with these facts."""


_PEOPLE: Final = "people_version"
"""Kept with the facts of a decision, but no fact: no rule can match on it."""


def _find_nobody(_: Envelope, __: Channel, ___: Mapping[str, str]) -> None:
    return None


def facts(
    envelope: Envelope, channel: Channel, schedule: str | None = None, find_sender: FindSender = _find_nobody
) -> dict[str, str]:
    """The match keys of a message: those that every message has, and those of its channel.

    `schedule` is what `Channels.schedule_at` returns for its arrival, `find_sender` that of the persons known then.
    Pure and total: never raises, never adds a key without a value. `Channels.keys_of` lists the possible keys. A task
    that is due has the facts of the message that made it, but for those about its text.
    """
    due = envelope.control.is_ours
    own: Found = facts_of_task(envelope) if due else channel.facts(envelope)
    # A channel that tells files of people from those of programs says itself whether there is one.
    media = own.get("media") or (None if "has_attachment" in own else _media_of_attachments(envelope))
    found = {
        "channel": envelope.source.channel,
        "endpoint": envelope.source.endpoint_identity,
        "sender": envelope.sender.identity,
        "thread": None if due else envelope.event.external_thread_id,
        "chat_type": envelope.sender.chat_type,
        **own,
        "has_attachment": "yes" if media else "no",
        "media": media,
        "schedule": schedule,
    }
    known = {key: value for key, value in found.items() if value is not None}
    return known | _person_facts(find_sender(envelope, channel, known))


def add_people_version(found: Mapping[str, str], version: int) -> Mapping[str, str]:
    """The facts as they are kept, with the version of the persons by which the sender was looked up; 0: of nobody."""
    return {**found, _PEOPLE: str(version)} if version else found


def split_people_version(kept: Mapping[str, str]) -> tuple[dict[str, str], int | None]:
    """The facts, and that version; None if nobody was looked up."""
    found = {key: value for key, value in kept.items() if key != _PEOPLE}
    return found, int(kept[_PEOPLE]) if _PEOPLE in kept else None


def _person_facts(found: Known | None) -> dict[str, str]:
    if found is None:
        return {}
    return {"person": found.person} | ({"groups": SEVERAL.join(found.groups)} if found.groups else {})


def _media_of_attachments(envelope: Envelope) -> str | None:
    attachments = envelope.payload.attachments
    return media_of(kind_of(one.media_type) for one in attachments) if attachments else None


def has(facts: Mapping[str, str], key: str, wanted: FilterValue) -> bool:
    """Whether a message with these facts meets the filter: has one of the values, among others or alone."""
    found = facts.get(key)
    return found is not None and not frozenset(values_of(wanted)).isdisjoint(found.split(SEVERAL))


def values_of(wanted: FilterValue) -> tuple[str, ...]:
    """The alternative values of a filter."""
    return (wanted,) if isinstance(wanted, str) else wanted


def alternatives(filters: Filters) -> Iterator[dict[str, str]]:
    """The same filters with one value each, in every combination: a rule fires if one of them is met."""
    for values in product(*map(values_of, filters.values())):
        yield dict(zip(filters, values, strict=True))


def shown_facts(facts: Mapping[str, str]) -> dict[str, str | list[str]]:
    """The facts as interfaces show them: a list if a fact has several values."""
    return {key: shown_fact(value) for key, value in facts.items()}


def shown_fact(value: str) -> str | list[str]:
    """One value, or a list of several."""
    return value.split(SEVERAL) if SEVERAL in value else value


def with_derived(given: Mapping[str, str], channel: Channel) -> dict[str, str]:
    """Made-up facts, and those that follow from them as in every message; given facts take precedence.

    A mail has the address and the domain of its sender, a Telegram message the type of its chat.
    """
    more = {key: value for key, value in implied_facts(given, channel).items() if value is not None}
    return {**given, **more, **given}


def implied_facts(given: Mapping[str, str], channel: Channel) -> Found:
    """What follows from made-up facts; None where nothing does."""
    return {"has_attachment": "yes" if "media" in given else None, **channel.implied(given)}
