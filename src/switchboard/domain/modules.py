"""Modules as every interface shows them: who has them, what keeps them from working, and what they do by themselves.

`app/modules.py` makes these values. Next: `ports/module.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

ModuleStanding = Literal["unused", "in use", "unusable", "quarantined"]


@dataclass(frozen=True, slots=True)
class ShownChore:
    """Something that a module does from time to time. `error`: why the last run failed; null if it did not."""

    account: str
    name: str
    every_s: float
    last_at: datetime | None
    next_at: datetime
    error: str | None


@dataclass(frozen=True, slots=True)
class OpeningFailure:
    """Why a worker on a host could not open a module."""

    host: str
    why: str


@dataclass(frozen=True, slots=True)
class ModuleAccount:
    """An account of a module, as the settings of the server name it. `owner`: `person:ann` or `group:family`.

    `sends`: who sends its mails or invitations, in words; empty: the module sends none.
    """

    account: str
    owner: str
    sends: str


@dataclass(frozen=True, slots=True)
class ShownModule:
    """An installed module. `state`: `why` says what is wrong with it, if it is unusable or quarantined."""

    module: str
    state: ModuleStanding
    why: str
    tools: Sequence[str]
    butlers: Sequence[str]
    failures: Sequence[OpeningFailure] = ()
    chores: Sequence[ShownChore] = ()
    accounts: Sequence[ModuleAccount] = ()


@dataclass(frozen=True, slots=True)
class ReleasedModule:
    """Workers may open it again."""

    module: str


@dataclass(frozen=True, slots=True)
class ModuleSync:
    """How many chores of a module are due now."""

    module: str
    chores: int
