"""Automatic mail is handled, but not answered: two programs that answer each other never end."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from switchboard.domain.routing import SystemId
from switchboard.journey.reply import PullRequest
from tests.hands import assert_balanced
from tests.integration.test_mail_threads import HOUSE, explained, mail, posted
from tests.routing import member, rule, team_of
from tests.servers import open_server
from tests.waiting import eventually

ECHO, CHATTY = SystemId("System1/echo"), SystemId("System1/chatty")
TREE = (
    (team_of(ECHO, member(CHATTY, reply_to_automatic=True)),),
    (
        rule(CHATTY, channel="email", email_automatic="yes", email_domain="y.example"),
        replace(rule(ECHO, channel="email", email_domain="z.example"), reply_to_automatic=True),
        rule(ECHO, channel="email"),
    ),
)


@pytest.mark.parametrize(
    ("sender", "fields", "sign"),
    [
        ("ann@x.example", {"List_Id": "News <news.x.example>"}, "list-id"),
        ("ann@x.example", {"List_Unsubscribe": "<mailto:off@x.example>"}, "list-unsubscribe"),
        ("ann@x.example", {"Auto_Submitted": "auto-replied"}, "auto-submitted: auto-replied"),
        ("ann@x.example", {"Precedence": "bulk"}, "precedence: bulk"),
        ("no-reply@x.example", {}, "from no-reply@x.example"),
    ],
)
async def test_automatic_mail_gets_a_turn_and_no_reply(
    database_url: str, tmp_path: Path, sender: str, fields: dict[str, str], sign: str
) -> None:
    async with open_server(database_url, tmp_path, tree=TREE, worker=True) as server:
        message = await posted(server, mail(sender, "hello", "m1", **fields))
        await eventually(lambda: server.lab.count("select count(*) from delivery where state = 'declined'"))
        explanation = await explained(server, message)
        assert explanation["replies"] == []
        [attempt] = explanation["deliveries"][0]["attempts"]
        assert attempt["outcome"] == "declined"
        assert attempt["error"] == f"no reply is made to automatic messages ({sign}); it would have been: hello"
        await assert_balanced(server.lab)


async def test_a_person_gets_a_reply_and_a_machine_if_butler_or_rule_allow_it(
    database_url: str, tmp_path: Path
) -> None:
    async with open_server(database_url, tmp_path, tree=TREE, worker=True) as server:
        person = await posted(server, mail("ann@x.example", "hello", "m1"))
        machine = await posted(server, mail("bot@y.example", "hello", "m2", Auto_Submitted="auto-generated"))
        shop = await posted(server, mail("bot@z.example", "hello", "m3", Auto_Submitted="auto-generated"))
        for message in (person, machine, shop):
            await eventually(partial(server.lab.replies_to, message))


async def test_the_person_behind_a_form_is_answered_where_a_rule_allows_it(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path, tree=TREE, worker=True) as server:
        form = {"Reply_To": "Noor <noor@people.example>"}
        unanswered = await posted(server, mail("no-reply@x.example", "open?", "m1", **form))
        await posted(server, mail("no-reply@z.example", "open?", "m2", **form))
        [reply] = await server.lab.replies.pull(PullRequest("email", HOUSE, wait_s=20))
        assert (reply.text, (reply.address or {}).get("to")) == ("open?", "noor@people.example")
        await eventually(lambda: server.lab.count("select count(*) from delivery where state = 'declined'"))
        assert await server.lab.replies_to(unanswered) == []


@pytest.mark.parametrize("sender", ["bot@y.example", "bot@z.example"], ids=["butler", "rule"])
async def test_nothing_allows_a_loop_of_switchboards(database_url: str, tmp_path: Path, sender: str) -> None:
    async with open_server(database_url, tmp_path, tree=TREE, worker=True) as server:
        fields = {"Auto_Submitted": "auto-replied", "X_Switchboard_Hops": "4"}
        fourth = await posted(server, mail(sender, "hello", "m1", **fields))
        await eventually(lambda: server.lab.replies_to(fourth))
        fifth = await posted(server, mail(sender, "hello", "m2", **fields | {"X_Switchboard_Hops": "5"}))
        await eventually(lambda: server.lab.count("select count(*) from delivery where state = 'declined'"))
        assert await server.lab.replies_to(fifth) == []
        [attempt] = (await explained(server, fifth))["deliveries"][0]["attempts"]
        assert "x-switchboard-hops: 5" in attempt["error"]
        await assert_balanced(server.lab)
