"""A check of traces: whether the collector takes them, and how far behind they are.

Called by `app/ops/checks.py`. Next: `store/traces.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from switchboard.ports.checks import CheckResult, count_of, ok, warning
from switchboard.store import traces
from switchboard.store.database import Database

_BEHIND_S: Final = 600.0


async def check_traces(database: Database, url: str | None) -> list[CheckResult]:
    """Nothing, if no collector is named."""
    standing = None if url is None else await traces.standing(database, datetime.now(UTC))
    if standing is None:
        return []
    if standing.failing_since is not None:
        detail = f"{url} takes none since {standing.failing_since:%Y-%m-%d %H:%M} UTC: {standing.why}"
        remedy = "start the collector, or correct [traces] in the settings; what waits is sent then, for seven days"
        return [warning("traces", detail, remedy)]
    if standing.behind_s > _BEHIND_S:
        detail = f"they are {standing.behind_s / 60:.0f} minutes behind"
        return [warning("traces", detail, "trace fewer messages: a smaller traces.share")]
    return [ok("traces", f"{count_of(standing.spans, 'span')} sent")]
