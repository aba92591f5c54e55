"""Persons as values: what rules see of them.

Made by `core/people/known.py`. Next: `core/routing/facts.py`, which makes facts of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct


class Known(Struct, frozen=True):
    """A person who certainly wrote a message, and their groups, sorted."""

    person: str
    groups: tuple[str, ...] = ()


class PersonNames(Struct, frozen=True):
    """The values that the facts `person` and `groups` may name. `proven`: those that messages can have."""

    existing: Mapping[str, Collection[str]]
    proven: Mapping[str, Collection[str]]
