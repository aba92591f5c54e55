"""Persons as values: what rules see of them, and what interfaces show.

Made by `core/people/known.py` and `app/people/service.py`. Next: `core/routing/facts.py`, which makes facts of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec import Struct


class Known(Struct, frozen=True):
    """A person who certainly wrote a message, and their groups, sorted."""

    person: str
    groups: tuple[str, ...] = ()


class PersonNames(Struct, frozen=True):
    """The values that the facts `person` and `groups` may name. `proven`: those that messages can have."""

    existing: Mapping[str, Collection[str]]
    proven: Mapping[str, Collection[str]]


@dataclass(frozen=True, slots=True)
class ShownHandle:
    """What a channel calls a person. `endpoint`: where it means them; null: at every endpoint of the channel.

    `proves`: whether a message under it shows who wrote it; if not, it is only listed.
    """

    channel: str
    endpoint: str | None
    identity: str
    proves: bool
    linked_at: datetime
    linked_by: str


@dataclass(frozen=True, slots=True)
class ShownPerson:
    """A person whom operators have made known. The id never changes."""

    person_id: str
    name: str
    groups: Sequence[str]
    handles: Sequence[ShownHandle]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ErasedKind:
    """How much of one kind was erased, or would be."""

    kept_in: str
    count: int


@dataclass(frozen=True, slots=True)
class PendingDisk:
    """A disk of workers on which files are still to be removed; `problem`: what stands in the way, if that is known."""

    host: str
    seen_at: datetime
    problem: str | None


@dataclass(frozen=True, slots=True)
class ErasedData:
    """What was erased of a person, or would be. `open`: messages that must end first; `out_of_reach`: what remains.

    `workspaces`: those that are emptied, by their butlers; `pending`: where workers have not yet removed files.
    """

    person_id: str
    erased: Sequence[ErasedKind]
    open: int
    workspaces: Sequence[str]
    pending: Sequence[PendingDisk]
    out_of_reach: Sequence[str]
