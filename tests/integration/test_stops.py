"""Stopping a turn from elsewhere: another process, with connections of its own, asks for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from switchboard.core.policy.retry import OutagePolicy
from switchboard.core.turns.stop import STOPPED
from switchboard.domain.routing import Team
from switchboard.journey.accept import AcceptLeg, Submission
from switchboard.journey.admission import AcceptLimits
from switchboard.journey.decide import DecideLeg
from switchboard.journey.stopping import announce
from switchboard.journey.turn import TurnLimits
from switchboard.store.stopping import stop_message
from switchboard.testing.scripted_llm import Reply, Request, ScriptedLlm, Status
from tests.hands import a_hand, assert_balanced, at_work, settled
from tests.lab import OWN_CLOCK, ROOT, Lab, butler, lab, rule, submission, to
from tests.obeying import TRUSTING
from tests.turning import OWNER, a_model_engine
from tests.waiting import eventually

TEAM = Team(ROOT, None, members=(butler("clerk", "model", owners=OWNER),))
RULES = [rule(ROOT, [to("System1/clerk")])]
LIMITS = TurnLimits(attempts=3, timeout=30, backoff_base=0.02, backoff_cap=0.05)
LONG = OutagePolicy(least=600.0, most=600.0, told=3600.0, given_up=7200.0)


def away(_: Request) -> Reply:
    return Reply(fault=Status(503))


async def waits(parts: Lab) -> bool:
    """Whether a lane waits for its next attempt."""
    return await parts.count("select count(*) from lane where state = 'ready' and delayed") == 1


@pytest.mark.parametrize("how", ["command", "request"])
async def test_a_turn_that_waits_for_its_model_ends_at_once(database_url: str, how: str) -> None:
    async with (
        lab(database_url, [TEAM], RULES) as parts,
        lab(database_url, [TEAM], RULES) as other,
        ScriptedLlm(away) as llm,
        a_model_engine(llm) as (engine, _),
        at_work(parts.worker({"model": engine}, limits=replace(LIMITS, outage=LONG))),
    ):
        message = await other.accept.accept(submission("long", channel="api", sender="x", event="m"))
        await eventually(lambda: waits(parts))
        asked = len(llm.requests)
        if how == "command":
            await other.accept.accept(submission("/stop", channel="api", sender="x", event="s"))
        else:
            await announce(other.database, other.notifier, await stop_message(other.database, message.request_id))
        await eventually(lambda: settled(parts))
        assert await parts.replies_to(message.request_id) == [STOPPED]
        assert len(llm.requests) == asked
        reasons = "select stop_reason from attempt where request_id = $1 and outcome = 'answered'"
        assert await parts.database.value(reasons, message.request_id) == "aborted"
        await assert_balanced(parts)


async def test_nobody_stops_the_turn_of_another_in_their_name(database_url: str) -> None:
    async with lab(database_url, [TEAM], RULES) as parts, a_hand(parts.database) as hand:
        decide = DecideLeg(parts.rule_book, TRUSTING)
        accept = AcceptLeg(parts.database, decide, parts.notifier, AcceptLimits(), TRUSTING, OWN_CLOCK)
        await accept.accept(mail("long", "mx.example; dkim=pass header.d=example.org"))
        [item] = await hand.claim()
        for auth, stopped in [
            ("mx.example; dkim=fail header.d=example.org", 0),
            ("mx.example; dkim=pass header.d=evil.example", 0),
            ("mx.evil.example; dkim=pass header.d=example.org", 0),
            ("mx.example; dkim=pass header.d=example.org", 1),
        ]:
            await accept.accept(mail("/stop", auth))
            assert await parts.count("select count(*) from stopped where lane = $1", item.lane) == stopped, auth


def mail(text: str, auth: str) -> Submission:
    """A mail that says it is Ann's."""
    headers = {"to": "bot@house.example", "references": "<first@x>", "authentication-results": auth}
    endpoint, sender = "imap:bot@house.example", "ann@example.org"
    return submission(text, channel="email", endpoint=endpoint, sender=sender, raw={"headers": headers})
