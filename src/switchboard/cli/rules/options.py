"""Options shared by the commands about rules, and their parsing.

Called by `commands.py`, `checks.py`, `history.py`, `sops.py`, `dead_letters.py`, `models.py` and `explain.py`. In:
words; out: parts of a request. Next: the server, which validates them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from switchboard.cli.missing import MissingOption
from switchboard.cli.reading import read_object
from switchboard.domain.errors import InvalidInput

RuleId = Annotated[
    str, typer.Argument(help="The rule's name or id, or the first or last characters of the id.", metavar="ID")
]
Reason = Annotated[
    str | None,
    typer.Option(help="Required: the reason, which is recorded; on a terminal you are asked for it.", metavar="TEXT"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing; show what would change.")]
File = Annotated[Path, typer.Argument(help="JSON or YAML; - is stdin.", metavar="FILE")]


def reason_for(given: str | None, *, dry_run: bool = False) -> str:
    """The given reason, otherwise asked for on a terminal. Usage error without a terminal."""
    return said_or_asked(given, "Reason for the change?", "a reason is required", "--reason", dry_run=dry_run)


def said_or_asked(given: str | None, question: str, rule: str, option: str, *, dry_run: bool) -> str:
    """A sentence for the record: the given one, otherwise asked for on a terminal. Usage error without one.

    Not needed if nothing is written.
    """
    if given is None and dry_run:
        return "dry run"
    if given is None and sys.stdin.isatty() and sys.stderr.isatty():
        given = str(typer.prompt(question, prompt_suffix=" ", err=True))
    if given is None or not given.strip():
        raise MissingOption(rule, param_hint=option)
    return given


def read_rules(file: Path) -> Mapping[str, object]:
    """A rule file. Raises InvalidInput for a team file, which looks like one."""
    document = read_object(file)
    if "format" not in document and {"routing_rules", "systems"} & document.keys():
        raise InvalidInput(
            f"{file} is a team file: its rules only seed a new team. To change the rules in force, write them to a "
            "file (`switchboard rules export rules.json`), edit it, and import that"
        )
    return document


def pairs(words: Sequence[str], option: str = "--filter") -> dict[str, str | list[str]]:
    """`KEY=VALUE` words as an object; a repeated key has a list. Usage error for other words."""
    found: dict[str, list[str]] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise typer.BadParameter(
                f"{word!r} must be KEY=VALUE, such as telegram_chat_id=5488423581", param_hint=option
            )
        found.setdefault(key, []).append(value)
    return {key: any_of(values) for key, values in found.items()}


def any_of(values: Sequence[str]) -> str | list[str]:
    """The value of a filter: a list if there are several values."""
    return list(values) if len(values) > 1 else values[0]


def moment(text: str | None, option: str) -> str | None:
    """A time in the API's format; without a zone it is local time."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone().isoformat()
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is not a time; write 2026-01-31 or 2026-01-31T12:00:00Z", param_hint=option
        ) from None
