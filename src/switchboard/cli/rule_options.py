"""Options that the commands about rules share, and how their words are read.

Called by `rules.py`, `rule_checks.py`, `rule_history.py`, `sops.py` and `explain.py`. Words enter, parts of a request
leave. Next: the server, which says whether they make sense.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from switchboard.domain.errors import InvalidInput

RuleId = Annotated[UUID, typer.Argument(help="The rule's id.", metavar="ID")]
Reason = Annotated[str | None, typer.Option(help="Why; it stays on record.", metavar="TEXT")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing; say what it would change.")]
File = Annotated[Path, typer.Argument(help="JSON or YAML; - is stdin.", metavar="FILE")]


def reason_for(given: str | None, *, dry_run: bool = False) -> str:
    """The reason as given, else as asked for on a terminal. Usage error where nobody can be asked."""
    if given is not None:
        return given
    if dry_run:
        return "dry run"
    if sys.stdin.isatty() and sys.stderr.isatty():
        return str(typer.prompt("Why is it changed?", prompt_suffix=" ", err=True))
    raise typer.BadParameter("an edit says why: --reason TEXT", param_hint="--reason")


def pairs(words: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` words as an object. Raises InvalidInput for what is none, or a key that comes twice."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise InvalidInput(f"{word!r} must be KEY=VALUE, such as telegram_chat_id=5488423581", field="filter")
        if key in found:
            raise InvalidInput(f"{key} is given twice; a rule looks for one value of a key", field="filter")
        found[key] = value
    return found


def targets(words: Sequence[str]) -> list[dict[str, str]]:
    """What has a slash is a system, `System1/NAME`, anything else a team."""
    return [{"system_id" if "/" in word else "team_id": word} for word in words]
