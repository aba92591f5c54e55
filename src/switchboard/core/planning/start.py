"""What a planned turn begins with, frozen as its first step, so that later changes do not affect the plan. Pure.

`agents/trio/engine.py` makes it once and reads it back in every attempt. Next: `menu.py`, what plans may use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.passages.names import speaker
from switchboard.core.planning.guard import Guard
from switchboard.core.planning.ladder import PlanSource
from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.menu import Menu, PlanReach
from switchboard.core.planning.templates import Builds
from switchboard.core.turns.asking import ASK_USER
from switchboard.core.turns.entries import told_by_others
from switchboard.core.turns.frozen import Frozen
from switchboard.ports.history import Entry

_EARLIER: Final = 4
"""Entries of the history that a router sees."""
_MOST_EARLIER: Final = 600
"""Maximum characters of each."""


ROLES: Final = ("main", "router", "specialist")


class Roles(Struct, frozen=True):
    """The model for each role; one model may have all roles."""

    main: str
    router: str
    specialist: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models, each once."""
        return tuple(dict.fromkeys((self.main, self.router, self.specialist)))


def cast(named: Mapping[str, str], first: str) -> Roles:
    """The model for each role: if none is named, that of the next larger role; for the largest, that of the next named.

    `first` is the model for all roles if none is named at all.
    """
    specialist = named.get("specialist") or named.get("router") or named.get("main") or first
    router = named.get("router") or specialist
    return Roles(named.get("main") or router, router, specialist)


class Start(PlanReach, frozen=True):
    """One JSON value. `text` is what the person said. `windows`: the context of each model, in tokens.

    The plan may work until the `deadline`; waiting for people does not count.
    """

    frozen: Frozen
    text: str
    roles: Roles
    windows: Mapping[str, int]
    limits: PlanLimits
    max_rounds: int
    token_budget: int
    deadline: datetime
    own: tuple[str, ...] = ()
    builds: Builds | None = None
    tries: int = 3
    """Maximum attempts of a tool call that may be repeated."""
    calls: int = 6
    """Maximum tool calls in the loop of one specialist."""

    @property
    def menu(self) -> Menu:
        """What a plan may use. Asking the person is a decision, not a tool of a step."""
        return Menu(
            tuple(tool for tool in self.frozen.tools if tool.name != ASK_USER),
            own=frozenset(self.own),
            after_foreign=self.frozen.after_foreign,
            **{name: getattr(self, name) for name in PlanReach.__struct_fields__},
        )

    def guard(self, source: PlanSource) -> Guard:
        """The guard of a plan from this source. A router may obey what it is shown; a template obeys nobody."""
        return replace(self.menu.guard, told=source != "template" and told_by_others(self.frozen))

    @property
    def _earlier(self) -> Sequence[Entry]:
        return self.frozen.history[-_EARLIER:]

    @property
    def asked(self) -> str:
        """The message as the router sees it: after the end of the earlier conversation."""
        earlier = "\n".join(map(_render_entry, self._earlier))
        return f"Earlier in the conversation:\n{earlier}\n\nNow:\n{self.text}" if earlier else self.text

    def record(self) -> object:
        """The form that the journal keeps."""
        return msgspec.to_builtins(self)


def read_start(record: object) -> Start:
    """Parse the journal's record. Raises `msgspec.ValidationError` for anything else."""
    return msgspec.convert(record, Start)


def _render_entry(entry: Entry) -> str:
    """An entry, its lines indented below the first: whose words they are is marked line by line."""
    who = "you" if entry.role == "assistant" else "person"
    if entry.name:
        who = f"{who} {speaker(entry.name, entry.author)}"
    text = "\n  ".join(filter(None, (" ".join(line.split()) for line in entry.text.splitlines())))
    return f"{who}: {text if len(text) <= _MOST_EARLIER else text[:_MOST_EARLIER] + '…'}"
