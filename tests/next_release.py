"""A release that follows this one, for tests of upgrades: it has a migration more.

`switchboard(env, *NEXT_RELEASE, "db", "migrate")` of `processes.py` runs a command of it. In: the command, and in the
environment NEXT_RELEASE_SQL, if the migration is to do something else; out: what the command says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from switchboard.cli.main import main as run_command
from switchboard.store import migrate

NEXT_RELEASE: Final = ("-m", __name__)
_SQL: Final = "alter table message_inbox add column later text"


def main(arguments: Sequence[str]) -> None:
    """Be `switchboard ARGUMENTS`."""
    ours = migrate.migrations
    present = ours()
    following = migrate.Migration(
        migrate.COMPONENT, present[-1].number + 1, "following", os.environ.get("NEXT_RELEASE_SQL", _SQL)
    )
    for module in list(sys.modules.values()):  # the process that this one was forked from has imported many
        if getattr(module, "migrations", None) is ours:
            vars(module)["migrations"] = lambda: (*present, following)
    migrate.known_schema.cache_clear()
    run_command(list(arguments))
