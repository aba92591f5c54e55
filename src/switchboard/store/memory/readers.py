"""A reader as the parameters of statements that read facts. Next: `standing.py`."""

from __future__ import annotations

from switchboard.core.people.handle import handle_behind
from switchboard.core.text.storable import storable_text
from switchboard.ports.facts import Reader


def reader_columns(reader: Reader) -> tuple[str, str, str, bool, bool]:
    """What `visible` is given, but for the handle."""
    return reader.system_id, reader.conversation, reader.person, reader.private, reader.authentic


def handle_columns(reader: Reader) -> tuple[str | None, str | None, str | None]:
    """The handle of a reader as statements take it: nulls where nobody vouches for it."""
    found = handle_behind(reader.person)
    return (None, None, None) if found is None else (found.channel, found.realm, storable_text(found.identity))
