"""`switchboard spending`: what models cost, by purpose and by butler, and what is left of the day.

Called by `cli/main.py`; asks the server. Next: `views.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from switchboard.cli.client import Client, ask
from switchboard.cli.models.views import print_caps, usage_table
from switchboard.cli.output import Json, show
from switchboard.cli.rules.options import moment

_MOST: Final = 500


def spending(
    *,
    since: Annotated[str | None, typer.Option("--from", help="From this day on (UTC); by default today.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="Until this time.")] = None,
) -> None:
    """What models cost: for turns, plans, compaction and classification, for each butler, and what is left today."""
    begin = moment(since, "--from") or datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).isoformat()
    span = {"from": begin, "to": moment(until, "--to"), "limit": _MOST}

    async def read(client: Client) -> Json:
        purposes = await client.get("/v1/models/usage", {**span, "by": "asker"})
        butlers = await client.get("/v1/models/usage", {**span, "by": "butler"})
        stood = await client.get("/v1/models")
        kept = ("day", "refused", "senders_refused", "caps")
        account = {"since": purposes["since"], "until": purposes["until"], "total": purposes["total"]}
        lists = {"by_purpose": purposes["rows"], "by_butler": butlers["rows"]}
        return account | lists | {name: stood[name] for name in kept}

    found = ask(read)
    tables = [
        usage_table({"by": by, "rows": found[name], "total": found["total"]})
        for by, name in (("purpose", "by_purpose"), ("butler", "by_butler"))
        if found[name]
    ]
    parts = [part for one in tables for part in (one, "")] or ["no model was asked in this period", ""]
    show(found, *parts, print_caps)
