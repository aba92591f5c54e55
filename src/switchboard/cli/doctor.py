"""`switchboard doctor`: checks the installation step by step. Called by `main.py`. Next: `app/ops/doctor.py`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from msgspec.structs import asdict
from rich.text import Text

from switchboard.app.ops.doctor import check_database, check_machine
from switchboard.app.ops.machine import check_commands
from switchboard.app.settings import Settings, load_settings
from switchboard.cli.client import open_client
from switchboard.cli.output import FAILED, OK, NoServer, clean, errors, exit_unless_ok, out, print_json, wants_json
from switchboard.domain.errors import ConfigurationError, Forbidden, SwitchboardError, Unauthenticated
from switchboard.ports.checks import CheckResult
from switchboard.store.checks.books import Told

Full = Annotated[
    bool, typer.Option("--full", help="Check the books of every day, not of the last 24 hours and one past day.")
]
Notify = Annotated[bool, typer.Option("--notify", help="Send a notice to each address of the setting `notify`.")]

_MARKS = {"ok": ("✓", "green"), "error": ("✗", "bold red"), "warning": ("!", "yellow")}


def doctor(*, full: Full = False, notify: Notify = False) -> None:
    """Check the installation, and say how to fix what is wrong. Exit code 1: there are errors."""
    findings = asyncio.run(_examine(_tell if full else None, notify=notify))
    bad = sum(finding.status == "error" for finding in findings)
    if wants_json():
        print_json({"healthy": bad == 0, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            out().print(_line(finding), soft_wrap=True)
        out().print(summary(bad, sum(finding.status == "warning" for finding in findings)), style="bold")
    exit_unless_ok(FAILED if bad else OK)


def summary(errors: int, warnings: int) -> str:
    """`No errors, 2 warnings`."""
    counts = ((errors, "error"), (warnings, "warning"))
    said = ", ".join(f"{count or 'no'} {word}{'' if count == 1 else 's'}" for count, word in counts)
    return said[0].upper() + said[1:]


async def _examine(told: Told | None, *, notify: bool) -> list[CheckResult]:
    try:
        settings = load_settings()
    except ConfigurationError as error:
        return [CheckResult("settings", "error", error.message, "correct it first; nothing else can be checked")]
    seen = [*check_machine(settings), await check_commands(settings), await _server(settings)]
    return [*seen, *await check_database(settings, told, notify=notify)]


async def _server(settings: Settings) -> CheckResult:
    """Whether the server answers, and accepts our token."""
    try:
        async with open_client(settings.whereabouts) as client:
            health = await client.get("/health", timeout=5)
            await client.get("/v1/messages", {"limit": 1}, timeout=10)
            return CheckResult("server", "ok", f"{client.place.url} answers, version {health.get('version')}")
    except NoServer as error:
        return CheckResult("server", "error", error.message.partition(";")[0], "switchboard up")
    except (Unauthenticated, Forbidden) as error:
        return CheckResult(
            "server",
            "error",
            f"the server rejected the token: {error.message}",
            "set SWITCHBOARD_TOKEN to a valid token",
        )
    except SwitchboardError as error:
        return CheckResult("server", "error", error.message, "see the log of the server")


def _tell(line: str) -> None:
    errors().print(clean(line), soft_wrap=True)


def _line(finding: CheckResult) -> Text:
    mark, style = _MARKS[finding.status]
    line = (
        Text(f"{mark} ", style=style)
        .append(finding.name, style="bold")
        .append(f"  {clean(finding.detail)}", style="not bold default")
    )
    if finding.remedy and finding.status != "ok":
        line.append(f"\n    → {clean(finding.remedy)}", style="not bold yellow")
    return line
