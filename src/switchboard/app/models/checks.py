"""Checks of what models may spend and can do: caps, calls refused today, keys, contexts, cooldowns.

Called by `app/ops/checks.py`. In: settings and the database; out: findings. Next: `spending.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from switchboard.app.models.spending import CapView, DayTotals, reads_less, standing
from switchboard.app.settings import Settings
from switchboard.ports.checks import MOST, CheckResult, warning
from switchboard.store.database import Database
from switchboard.store.models import usage as model_usage
from switchboard.store.models.usage import Cooldown, LearnedContext, RefusedKey
from switchboard.store.rules.teams import TeamsOnce


async def check_models_in_use(database: Database, settings: Settings, teams: TeamsOnce) -> list[CheckResult]:
    """Teams that would ask a model but cannot, daily caps, models in cooldown."""
    found = []
    asking = [team.team_id for team in await teams.read() if team.classify]
    if asking and not settings.classify.models:
        detail = f"{', '.join(asking[:MOST])}: these teams use a model, but none is configured"
        found.append(warning("classification", detail, "name models in classify.models, see docs/models.md"))
    stood = await standing(settings, database)
    found += [_cap_finding(cap) for cap in stood.caps if cap.reached]
    found += _find_refused(stood)
    found += [_key_finding(one) for one in await model_usage.refused_keys(database)]
    found += [_context_finding(one) for one in await model_usage.contexts(database)]
    return found + [_cooldown_finding(one) for one in await model_usage.cooldowns(database)]


def _find_refused(stood: DayTotals) -> Iterator[CheckResult]:
    if stood.refused:
        remedy = "raise the limit in [spending], or wait for the next day (UTC)"
        yield warning("refused today", f"{stood.refused} calls prevented today by a daily limit", remedy)
    if stood.senders_refused:
        detail = f"{stood.senders_refused} calls prevented today by limits per sender"
        remedy = (
            "see who writes so much: switchboard messages list; or raise the limits per sender in [classify] and [turn]"
        )
        yield warning("senders refused today", detail, remedy)


def _context_finding(learned: LearnedContext) -> CheckResult:
    remedy = "set `context` of the model to what its server has, or give the server a larger context"
    return warning("model context", f"{learned.model} {reads_less(learned)}", remedy)


def _key_finding(refused: RefusedKey) -> CheckResult:
    detail = f"{refused.model}, since {refused.at:%Y-%m-%d %H:%M} UTC: its provider refuses its key: {refused.why}"
    remedy = f"renew the key and restart the workers; if it is valid again: switchboard models test {refused.model}"
    return warning("model paused", detail, remedy)


def _cooldown_finding(cooldown: Cooldown) -> CheckResult:
    detail = f"{cooldown.model}, until {cooldown.until:%H:%M:%S} UTC: {cooldown.why}"
    return warning("model in cooldown", detail, "test it: switchboard models test")


def _cap_finding(cap: CapView) -> CheckResult:
    name, unit = ("cost_per_day", "dollars") if cap.name == "cost_usd_per_day" else (cap.name, "tokens")
    newcomers = cap.name == "newcomer_tokens_per_day"
    group, whose = ("classify", " for senders who are new today") if newcomers else ("spending", "")
    detail = f"{cap.spent} {unit} of {cap.cap} are spent: no model is used{whose} until tomorrow (UTC)"
    return warning(f"{group}.{name}", detail, "raise the limit, or see what used it up: switchboard models usage")
