"""Checks of what is connected: connectors, the replies that wait for them, remote butlers.

Called by `app/ops/checks.py`. Next: `store/connectors/heartbeats.py`, `store/rules/remote_agents.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final

from switchboard.core.policy.liveness import LivenessPolicy
from switchboard.domain.remote_agents import RemoteAgent
from switchboard.domain.shown import Connector
from switchboard.ports.checks import MOST, CheckResult, error, warning
from switchboard.store.checks.work import replies_of
from switchboard.store.connectors import heartbeats as connectors
from switchboard.store.database import Database
from switchboard.store.messages import outbox
from switchboard.store.messages.outbox import WaitingReplies
from switchboard.store.rules import remote_agents

_BEHIND_S: Final = 600.0
"""A connector that is further behind its platform is reported, though it is well."""
_GONE: Final = timedelta(days=30)
"""A connector that has been silent for longer, and for which nothing waits, has been taken out of service."""


async def check_remote_butlers(database: Database, policy: LivenessPolicy) -> list[CheckResult]:
    """Remote butlers without a sign of life in time, or quarantined."""
    found = await remote_agents.list_remote_agents(database, policy)
    return [_silence_finding(one) for one in found if one.liveness in {"stale", "quarantined"}][:MOST]


def _silence_finding(one: RemoteAgent) -> CheckResult:
    if one.by:
        remedy = f"switchboard agents release {one.system_id}, to return it to service"
        return warning("remote butler", f"{one.system_id} is quarantined: {one.why}", remedy)
    seen = "never seen" if one.last_seen_at is None else f"last seen {one.last_seen_at:%Y-%m-%d %H:%M:%S %Z}"
    remedy = "start it and check that its heartbeats arrive; meanwhile no model chooses it"
    if one.away:
        return error("remote butler", f"{one.system_id} is quarantined: {seen}", remedy)
    return warning("remote butler", f"{one.system_id} is stale: {seen}", "it will be quarantined if it stays silent")


async def check_connectors(database: Database, paused: Collection[str | None]) -> list[CheckResult]:
    """Connectors that are silent or unhealthy, and replies that wait for one; not those `paused` on purpose."""
    waiting = {(one.channel, one.endpoint): one for one in await outbox.waiting_for_connectors(database, MOST)}
    known = connectors.by_account(await connectors.list_connectors(database))
    heard = [one for one in known if f"{one.channel}/{one.endpoint}" not in paused]
    ill = [_connector_finding(one, waiting.get((one.channel, one.endpoint))) for one in heard]
    never = waiting.keys() - {(one.channel, one.endpoint) for one in known}
    found = [finding for finding in ill if finding is not None][:MOST]
    return found + [_never_reported(waiting[key]) for key in sorted(never)]


def _away_finding(one: Connector, account: str, missed: str) -> CheckResult:
    how = "stopped" if one.state == "stopped" else one.liveness
    detail = f"{account} is {how}: last seen {one.last_seen_at:%Y-%m-%d %H:%M:%S %Z}{missed}"
    return warning("connector", detail, "start it, and see its log")


def _connector_finding(one: Connector, waiting: WaitingReplies | None) -> CheckResult | None:
    """What is wrong with a connector; None also for one that has been away so long that nobody misses it."""
    account, said = f"{one.channel}/{one.endpoint}", one.error_message or f"since {one.since:%Y-%m-%d %H:%M:%S %Z}"
    missed = f"; {replies_of(waiting.replies)} waiting" if waiting else ""
    if one.liveness != "online":
        gone = not waiting and datetime.now(UTC) - one.last_seen_at > _GONE
        return None if gone else _away_finding(one, account, missed)
    if one.state == "failed":
        return error(
            "connector", f"{account} has failed: {said}{missed}", "do as it says; `switchboard channels test` tries it"
        )
    if one.state != "healthy":
        return warning("connector", f"{account} reports {one.state}: {said}{missed}", "see its log")
    if (one.lag_s or 0.0) <= _BEHIND_S:
        return None
    detail = f"{account} is {one.lag_s or 0:.0f} s behind its platform{missed}"
    return warning("connector", detail, "see `switchboard channels show`, and the log of the server")


def _never_reported(waiting: WaitingReplies) -> CheckResult:
    since = f"since {waiting.since:%Y-%m-%d %H:%M:%S %Z}"
    account = f"{waiting.channel}/{waiting.endpoint}"
    detail = f"{account}: {replies_of(waiting.replies)} waiting {since}, and no connector has ever reported there"
    return warning("connector", detail, "start its connector; it should send heartbeats, see docs/connectors.md")
