"""`switchboard doctor`: the installation, one thing after the other. Called by `main.py`. Next: `app/doctor.py`."""

from __future__ import annotations

import asyncio

from rich.text import Text

from switchboard.app.doctor import Finding, check_database, check_machine
from switchboard.app.settings import Settings, load_settings
from switchboard.cli.client import open_client
from switchboard.cli.output import FAILED, OK, AsJson, NoServer, clean, done, out, print_json
from switchboard.domain.errors import ConfigurationError, Forbidden, SwitchboardError, Unauthenticated

_MARKS = {"good": ("✓", "green"), "bad": ("✗", "bold red"), "note": ("!", "yellow")}


def doctor(*, as_json: AsJson = False) -> None:
    """Check the installation, and say how to mend what is wrong. Exit code 1: something is."""
    findings = asyncio.run(_examine())
    bad = sum(finding.status == "bad" for finding in findings)
    if as_json:
        listed = [{"name": f.name, "status": f.status, "detail": f.detail, "mend": f.mend} for f in findings]
        print_json({"healthy": bad == 0, "findings": listed})
    else:
        for finding in findings:
            out().print(_line(finding), soft_wrap=True)
        out().print("all is well" if bad == 0 else f"{bad} of {len(findings)} checks failed", style="bold")
    done(FAILED if bad else OK)


async def _examine() -> list[Finding]:
    try:
        settings = load_settings()
    except ConfigurationError as error:
        return [Finding("settings", "bad", error.message, "correct it; nothing else can be checked before")]
    return [*check_machine(settings), await _server(settings), *await check_database(settings)]


async def _server(settings: Settings) -> Finding:
    """Whether the doors answer, and let us in."""
    try:
        async with open_client(settings) as client:
            health = await client.get("/health", timeout=5)
            await client.get("/v1/messages", {"limit": 1}, timeout=10)
            return Finding("server", "good", f"{client.place.url} answers, version {health.get('version')}")
    except NoServer as error:
        return Finding("server", "bad", error.message.partition(";")[0], "switchboard up")
    except (Unauthenticated, Forbidden) as error:
        return Finding(
            "server", "bad", f"it does not let us in: {error.message}", "set SWITCHBOARD_TOKEN to a good token"
        )
    except SwitchboardError as error:
        return Finding("server", "bad", error.message, "look at the log of the server")


def _line(finding: Finding) -> Text:
    mark, style = _MARKS[finding.status]
    line = (
        Text(f"{mark} ", style=style)
        .append(finding.name, style="bold")
        .append(f"  {clean(finding.detail)}", style="not bold default")
    )
    if finding.mend and finding.status != "good":
        line.append(f"\n    → {clean(finding.mend)}", style="not bold yellow")
    return line
