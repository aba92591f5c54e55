"""What a planned turn begins with, frozen as its first step: whatever changes later, the plan does not notice. Pure.

`agents/trio/engine.py` makes it once and reads it back at every attempt. Next: `menu.py`, what it lets plans use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from switchboard.core.planning.guard import Guard
from switchboard.core.planning.ladder import PlanSource
from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.menu import Menu
from switchboard.core.planning.templates import Builds
from switchboard.core.turns.asking import ASK_USER
from switchboard.core.turns.compaction import own_words
from switchboard.core.turns.frozen import Frozen
from switchboard.core.turns.images import unmarked
from switchboard.ports.history import Entry

_EARLIER: Final = 4
"""Entries of the history that a router sees."""
_MOST_EARLIER: Final = 600
"""Characters of each."""


ROLES: Final = ("main", "router", "specialist")


class Roles(Struct, frozen=True):
    """The models by what they do; one may play all."""

    main: str
    router: str
    specialist: str

    @property
    def names(self) -> tuple[str, ...]:
        """Each once."""
        return tuple(dict.fromkeys((self.main, self.router, self.specialist)))


def cast(named: Mapping[str, str], first: str) -> Roles:
    """Who plays what: a missing role is played by the next larger one, and the largest by the next that is named.

    `first` is the model that plays all of them if none is named.
    """
    specialist = named.get("specialist") or named.get("router") or named.get("main") or first
    router = named.get("router") or specialist
    return Roles(named.get("main") or router, router, specialist)


class Start(Struct, frozen=True):
    """One JSON value. `text` is what the person has said; `urls` and `paths` are those in it. `windows`: the context of
    each model, in tokens. Until the `deadline` the plan may work; waiting for people does not count.
    """

    frozen: Frozen
    text: str
    roles: Roles
    windows: Mapping[str, int]
    limits: PlanLimits
    max_rounds: int
    token_budget: int
    deadline: datetime
    urls: tuple[str, ...] = ()
    more_urls: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    more_paths: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    subagents: Mapping[str, str] = field(default_factory=dict)
    builds: Builds | None = None
    tries: int = 3
    """Of a tool that may be repeated."""
    calls: int = 6
    """Of tools, in the loop of one specialist."""

    @property
    def menu(self) -> Menu:
        """What a plan may use. To ask the person is a decision, and no tool of a step."""
        return Menu(
            tuple(tool for tool in self.frozen.tools if tool.name != ASK_USER),
            subagents=self.subagents,
            urls=self.urls,
            more_urls=self.more_urls,
            paths=self.paths,
            more_paths=self.more_paths,
            own=frozenset(self.own),
        )

    def guard(self, source: PlanSource) -> Guard:
        """The guard of a plan from there. A router may obey what it is shown; a template obeys nobody."""
        return replace(self.menu.guard, told=source != "template" and self._told_by_others)

    @property
    def _told_by_others(self) -> bool:
        """Whether the router sees words of others: quoted or forwarded, or in an answer that was made with tools."""
        ours = {*self.own, ASK_USER}
        answers = any(call.name not in ours for entry in self._earlier for call in entry.calls)
        return answers or own_words(self.text).strip() != unmarked(self.text).strip()

    @property
    def _earlier(self) -> Sequence[Entry]:
        return self.frozen.history[-_EARLIER:]

    @property
    def asked(self) -> str:
        """The message as the router sees it: with the last of what was said before."""
        earlier = "\n".join(map(_said, self._earlier))
        return f"Earlier in the conversation:\n{earlier}\n\nNow:\n{self.text}" if earlier else self.text

    def record(self) -> object:
        """As the journal keeps it."""
        return msgspec.to_builtins(self)


def read_start(record: object) -> Start:
    """Parse the journal's record. Raises `msgspec.ValidationError` for anything else."""
    return msgspec.convert(record, Start)


def _said(entry: Entry) -> str:
    who = "person" if entry.role == "user" else "you"
    text = " ".join(entry.text.split())
    return f"{who}: {text if len(text) <= _MOST_EARLIER else text[:_MOST_EARLIER] + '…'}"
