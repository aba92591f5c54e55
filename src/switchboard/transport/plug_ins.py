"""Plug-ins of installed packages: their entry points.

Called wherever an engine, a channel or a connector is looked up by its name. In: the name of a group; out: its entry
points.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoints, entry_points


@cache
def plug_ins(group: str) -> EntryPoints:
    """The entry points of a group, read once, because that opens a file of every installed package."""
    return entry_points(group=group)
