"""The window of a day on WhatsApp: answers that are too late, and the template that asks people to write again."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from switchboard.testing.connectors import passes
from switchboard.testing.connectors.running import until
from switchboard.testing.whatsapp import Cut, GraphError, WhatsAppServer
from tests.integration.test_connector_whatsapp import DAY_S, house, lived

_SENT: Final = "POST messages"


def test_an_answer_after_a_day_waits_for_the_person_and_asks_once() -> None:
    async def test(server: WhatsAppServer) -> None:
        server.business.templates.add(("come_back", "en"))
        async with house(server, reopen_template="come_back/en") as home:
            server.people.say("hello")
            [message] = await home.heard(1)
            server.skip(DAY_S + 1)
            outbox_id = home.switchboard.reply(message, "an answer")
            await until(lambda: home.templates() == 1, "the template is sent")
            await passes(600.0)
            assert (home.templates(), server.texts) == (1, ["come_back"])
            assert home.switchboard.outcome(outbox_id) == ""
            assert home.told("waits until the person writes")()
            server.people.say("here I am")
            await until(lambda: home.switchboard.outcome(outbox_id) == "sent", "the reply leaves", more_s=120.0)
            assert server.texts == ["come_back", "an answer"]

    lived(test)


@pytest.mark.parametrize(("code", "is_lost"), [(80007, False), (131042, False), (131056, False), (132001, True)])
def test_a_template_that_is_not_sent_now_loses_no_reply(code: int, is_lost: bool) -> None:
    async def test(server: WhatsAppServer) -> None:
        server.business.templates.add(("come_back", "en"))
        async with house(server, reopen_template="come_back/en") as home:
            server.people.say("hello")
            [message] = await home.heard(1)
            server.skip(DAY_S + 1)
            server.spoil(_SENT, GraphError(code))
            outbox_id = home.switchboard.reply(message, "an answer")
            if is_lost:
                await until(lambda: home.switchboard.outcome(outbox_id) == "failed", "it cannot be asked for")
            else:
                await until(lambda: server.texts == ["come_back"], "the template is sent later", more_s=120.0)

    lived(test)


def test_an_answer_after_a_day_has_failed_without_a_template() -> None:
    async def test(server: WhatsAppServer) -> None:
        async with house(server) as home:
            server.people.say("hello")
            [message] = await home.heard(1)
            server.skip(DAY_S + 1)
            await home.answered("an answer", message, "failed")
            assert home.switchboard.blocked
            assert server.calls_of(_SENT) == []

    lived(test)


@pytest.mark.parametrize("is_late", [True, False])
def test_meta_may_say_itself_that_it_is_too_late(is_late: bool) -> None:
    """As after a restart, when nobody knows what the person has written meanwhile."""

    async def test(server: WhatsAppServer) -> None:
        server.business.templates.add(("come_back", "en"))
        server.graph.refuses_late = is_late
        async with house(server) as home:
            server.people.say("hello")
            [message] = await home.heard(1)
        server.skip(DAY_S + 1)
        async with house(server, reopen_template="come_back/en", switchboard=home.switchboard) as again:
            outbox_id = again.switchboard.reply(message, "an answer")
            await until(lambda: again.templates() == 1, "the template is sent")
            await passes(120.0)
            assert (again.templates(), again.switchboard.outcome(outbox_id)) == (1, "")
            assert not again.switchboard.late.reports
            tried = len(server.business.sent)
            server.people.say("here I am")
            await until(lambda: again.switchboard.outcome(outbox_id) == "sent", "the reply leaves", more_s=120.0)
            assert len(server.business.sent) == tried + 1

    lived(test)


@pytest.mark.parametrize("what", ["its answer is lost", "it is reported again", "the process ends"])
def test_a_template_is_sent_once_a_day_whatever_happens(what: str) -> None:
    async def test(server: WhatsAppServer) -> None:
        server.business.templates.add(("come_back", "en"))
        async with house(server, reopen_template="come_back/en") as home:
            server.people.say("hello")
            [message] = await home.heard(1)
            server.skip(DAY_S + 1)
            if what == "its answer is lost":
                server.spoil(_SENT, Cut())
            home.switchboard.reply(message, "an answer")
            await until(lambda: home.templates() == 1, "the template is sent")
            await until(lambda: server.hooks.waiting == 0, "it is reported")
            reports = server.hooks.accepted[-2:]
            if what != "the process ends":
                await passes(600.0)
                assert home.templates() == 1
        async with house(server, reopen_template="come_back/en", switchboard=home.switchboard) as again:
            await passes(600.0)
            assert again.templates() == 1
            server.skip(DAY_S + 3600)
            await until(lambda: again.templates() == 2, "it is sent the next day", more_s=120.0)
            if what == "it is reported again":
                server.hooks.accepted += reports
                server.hooks.post_again(2)
            await passes(600.0)
            assert again.templates() == 2

    lived(test)


def test_reports_of_failures_send_no_templates() -> None:
    """Of another program's messages, or days old: the persons may have written since."""

    async def test(server: WhatsAppServer) -> None:
        server.business.templates.add(("come_back", "en"))
        async with house(server, reopen_template="come_back/en") as home:
            server.people.say("hello")
            [message] = await home.heard(1)
            await home.answered("hi", message)
            server.people.report(server.sent[-1], "failed", 131047)
            server.people.report(replace(server.sent[-1], wamid="wamid.X", content={}), "failed", 131047)
            await until(lambda: server.hooks.waiting == 0, "they are reported")
            await until(lambda: not home.switchboard.posted.events, "they are settled")
            await passes(60.0)
            assert (home.templates(), len(home.switchboard.late.reports)) == (0, 2)

    lived(test)


def test_a_template_waits_until_the_server_has_noted_it() -> None:
    async def test(server: WhatsAppServer) -> None:
        server.business.templates.add(("come_back", "en"))
        async with house(server, reopen_template="come_back/en") as home:
            server.people.say("hello")
            [message] = await home.heard(1)
            await until(lambda: not home.switchboard.posted.events, "it is settled")
            server.skip(DAY_S + 1)
            home.switchboard.closed.add("/v1/connectors/cursor")
            home.switchboard.reply(message, "an answer")
            await passes(120.0)
            assert home.templates() == 0
            home.switchboard.closed.clear()
            await until(lambda: home.templates() == 1, "the template is sent", more_s=120.0)

    lived(test)
