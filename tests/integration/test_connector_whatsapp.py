"""What is particular to WhatsApp: batches, numbers, ids that change, the window of a day, reports, and the webhook."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import pytest
from msgspec.structs import replace as with_fields
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from switchboard.connectors.kernel.intake import Handling
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Account, SignInRefused
from switchboard.testing.connectors import ScriptedSwitchboard, in_no_time, passes
from switchboard.testing.connectors.running import connector, listening, scripted, texts, until
from switchboard.testing.loopback import Loopback
from switchboard.testing.whatsapp import (
    ACCOUNT,
    ANN,
    NUMBER,
    OTHER_NUMBER,
    TOKEN,
    CloudPerson,
    Cut,
    GraphError,
    Page,
    WhatsAppServer,
)
from tests.whatsapp_driver import WhatsAppDriver, whatsapp_driver

BO: Final = CloudPerson("DE.7", name="Bo", username="bo")
DAY_S: Final = 86_400.0
_SENT: Final = "POST messages"


class House:
    """A number with its connector."""

    def __init__(self, driver: WhatsAppDriver, switchboard: ScriptedSwitchboard) -> None:
        self.driver, self.server, self.switchboard = driver, driver.server, switchboard

    async def heard(self, count: int) -> list[JsonObject]:
        await until(lambda: len(self.switchboard.accepted) >= count, f"{count} events are accepted")
        return self.switchboard.accepted

    async def answered(self, text: str, to: JsonObject, outcome: str = "sent") -> str:
        outbox_id = self.switchboard.reply(to, text)
        await until(lambda: self.switchboard.outcome(outbox_id) == outcome, f"the reply is {outcome}")
        return outbox_id

    @property
    def counters(self) -> JsonObject:
        return self.switchboard.heartbeats[-1]["counters"] if self.switchboard.heartbeats else {}

    @property
    def states(self) -> list[tuple[str, str]]:
        return [(one["state"], one["error_message"] or "") for one in self.switchboard.heartbeats]

    def told(self, words: str) -> Callable[[], bool]:
        return lambda: any(words in why for _, why in self.states)

    def templates(self) -> int:
        return sum(call.request.body.get("type") == "template" for call in self.server.calls_of(_SENT))


@asynccontextmanager
async def house(
    server: WhatsAppServer,
    handling: Handling | None = None,
    switchboard: ScriptedSwitchboard | None = None,
    **more: Any,
) -> AsyncIterator[House]:
    async with whatsapp_driver(server) as driver:
        driver.settings = more
        configured = driver.configured if handling is None else with_fields(driver.configured, handling=handling)
        switchboard = switchboard or scripted()
        async with connector(configured, switchboard):
            yield House(driver, switchboard)


def lived(test: Callable[[WhatsAppServer], Coroutine[Any, Any, None]]) -> None:
    async def living() -> None:
        async with WhatsAppServer() as server:
            await test(server)

    in_no_time(living())


# What arrives ---------------------------------------------------------------------------------------------------------


def test_a_batch_that_comes_again_is_one_message_each() -> None:
    async def test(server: WhatsAppServer) -> None:
        server.hooks.batch, server.hooks.is_held = 10, True
        for number in range(5):
            server.people.say(f"message {number}", BO if number % 2 else ANN)
        async with house(server) as home:
            server.hooks.release()
            await home.heard(5)
            server.hooks.post_again()
            server.people.say("the last")
            accepted = await home.heard(6)
            assert len({one["event"]["external_event_id"] for one in accepted}) == 6
            await until(lambda: not home.switchboard.posted.events, "the webhooks are settled")
        assert texts(accepted) == [*(f"message {number}" for number in range(5)), "the last"]

    lived(test)


def test_what_is_for_another_number_is_dropped_and_counted() -> None:
    async def test(server: WhatsAppServer) -> None:
        async with house(server) as home:
            for _ in range(2):
                server.people.say("for the others", BO, number=OTHER_NUMBER, url=home.driver.hook_url)
            server.people.say("for us")
            assert texts(await home.heard(1)) == ["for us"]
            await until(lambda: home.counters.get("for other numbers") == 2, "they are counted")
            assert not home.switchboard.quarantined

    lived(test)


def test_messages_out_of_order_and_days_late_are_held() -> None:
    async def test(server: WhatsAppServer) -> None:
        server.hooks.is_held = True
        server.clock.move(-3 * DAY_S)
        server.people.say("three days ago")
        server.clock.move(3 * DAY_S)
        server.people.say("just now")
        async with house(server, Handling(start="all")) as home:
            server.hooks.release(reverse=True)
            accepted = await home.heard(2)
        tiers = [(one["payload"]["normalized_text"], one["control"]["ingestion_tier"]) for one in accepted]
        assert tiers == [("just now", "full"), ("three days ago", "held")]

    lived(test)


def test_a_conversation_moves_with_the_number_and_answers_go_to_the_new() -> None:
    async def test(server: WhatsAppServer) -> None:
        new = CloudPerson("US.2", "16505559999")
        async with house(server) as home:
            server.people.say("hello")
            [first] = await home.heard(1)
            server.people.change_number(ANN, new)
            server.people.say("me again", new)
            *_, second = await home.heard(3)
            assert home.switchboard.moved == {"US.2": ANN.user_id}
            assert [one["event"]["external_thread_id"] for one in (first, second)] == [ANN.user_id] * 2
            await home.answered("hi", second)
            assert server.sent[-1].person == new

    lived(test)


@pytest.mark.parametrize(
    ("is_told", "is_taken", "is_restarted"),
    [(True, False, False), (True, True, True), (False, True, False)],
    ids=["told", "told and restarted", "seen"],
)
def test_an_answer_never_goes_to_who_has_the_number_now(*, is_told: bool, is_taken: bool, is_restarted: bool) -> None:
    """The address of a message has the number of then; if only the id of then is known, nobody gets the answer."""
    new, eve = CloudPerson("US.2", "16505559999"), CloudPerson("US.EVE", ANN.phone, "Eve")

    async def test(server: WhatsAppServer) -> None:
        async with house(server) as home:
            server.people.say("my secret is 42")
            [message] = await home.heard(1)
            if is_told:
                server.people.change_number(ANN, new)
            if is_taken:
                server.people.say("hello from Eve", eve)
            await home.heard(1 + is_told + is_taken)
            await until(lambda: not home.switchboard.posted.events, "the webhooks are settled")
            if not is_restarted:
                await home.answered("your secret is 42", message, "sent" if is_told else "failed")
        if is_restarted:
            async with house(server, switchboard=home.switchboard) as again:
                await again.answered("your secret is 42", message)
        assert [one.person for one in server.sent] == ([new] if is_told else [])

    lived(test)


def test_who_gets_a_number_that_was_left_has_another_conversation() -> None:
    """Of people who are known by the phone alone; and Meta tells the change once more."""
    old, new = CloudPerson("", "16505550001", "Ann"), CloudPerson("", "16505550002", "Ann")
    eve = CloudPerson("", "16505550001", "Eve")

    async def test(server: WhatsAppServer) -> None:
        async with house(server) as home:
            server.people.say("my secret is 42", old)
            await home.heard(1)
            server.people.change_number(old, new, is_bare=True)
            server.people.say("me again", new)
            await home.heard(3)
            server.skip(90 * DAY_S)
            server.people.say("what was said here?", eve)
            *_, first, _, again, hers = await home.heard(4)
            assert again["event"]["external_thread_id"] == first["event"]["external_thread_id"]
            assert hers["event"]["external_thread_id"] != first["event"]["external_thread_id"]
            await home.answered("nothing", hers)
            assert server.sent[-1].person == eve

    lived(test)


def test_a_business_with_a_new_parent_knows_its_people_still() -> None:
    async def test(server: WhatsAppServer) -> None:
        person = CloudPerson("DE.8", "4930123456", name="Cy", parent_user_id="DE.ENT.9")
        async with house(server) as home:
            server.people.say("before", CloudPerson("DE.8", "4930123456", name="Cy"))
            await home.heard(1)
            for number in range(3):
                server.people.say(f"after {number}", person)
            accepted = await home.heard(4)
            assert {one["event"]["external_thread_id"] for one in accepted} == {"DE.8"}
            assert home.switchboard.requests.count("POST /v1/connectors/moves") == 1

    lived(test)


def test_an_idle_number_saves_nothing() -> None:
    async def test(server: WhatsAppServer) -> None:
        async with house(server) as home:
            server.people.say("hello")
            await home.heard(1)
            await until(lambda: not home.switchboard.posted.events, "it is settled")
            before = len(home.switchboard.requests)
            await passes(600.0)
            asked = set(home.switchboard.requests[before:])
            assert not any("cursor" in one or one.startswith("DELETE") for one in asked), asked

    lived(test)


def test_who_hides_the_phone_number_is_answered_by_id() -> None:
    async def test(server: WhatsAppServer) -> None:
        async with house(server) as home:
            server.people.say("hello", server.people.hide_phone())
            [message] = await home.heard(1)
            assert message["sender"]["identity"] == ANN.user_id
            await home.answered("hi", message)
            [body] = [call.request.body for call in server.calls_of(_SENT) if "text" in call.request.body]
            assert ("to" in body, body["recipient"]) == (False, ANN.user_id)
            assert server.texts == ["hi"]

    lived(test)


def test_what_is_no_message_is_kept_as_it_came() -> None:
    async def test(server: WhatsAppServer) -> None:
        async with house(server) as home:
            home.switchboard.post(b"\xffno JSON")
            server.people.send({"type": "hologram", "hologram": {}})
            server.people.say("after it")
            accepted = await home.heard(2)
            assert [one["event"].get("kind", "message") for one in accepted] == ["membership", "message"]
            [reason] = home.switchboard.quarantined.values()
            assert "JSON" in reason
            await until(lambda: home.counters.get("unknown_kinds") == 1, "it is counted")

    lived(test)


# What Meta reports ----------------------------------------------------------------------------------------------------


def test_a_failure_reported_twice_is_told_once_and_billing_counts_once() -> None:
    async def test(server: WhatsAppServer) -> None:
        server.business.numbers[NUMBER].free_left = 1
        async with house(server) as home:
            server.people.say("hello")
            [message] = await home.heard(1)
            for text in ("free", "billed"):
                await home.answered(text, message)
            server.graph.statuses = ()
            await home.answered("lost", message)
            for _ in range(2):
                server.people.report(server.sent[-1], "failed", 131049)
            await until(lambda: len(home.switchboard.late.reports) == 1, "the failure is reported")
            [report] = home.switchboard.late.reports.values()
            assert "Meta withholds" in report["reason"]
            assert "because" not in report
            server.hooks.post_again(6)
            await until(lambda: server.hooks.waiting == 0, "the reports have come again")
            await until(lambda: any("billed" in one for one in home.counters), "what is billed is counted")
            month = next(one for one in home.counters if one.startswith("billed in "))
            assert home.counters[month] == 1

    lived(test)


@pytest.mark.parametrize(("statuses", "outcome"), [(("sent",), "sent"), ((), "uncertain")])
def test_a_report_proves_that_an_uncertain_part_was_sent(statuses: tuple[Any, ...], outcome: str) -> None:
    async def test(server: WhatsAppServer) -> None:
        server.graph.statuses = statuses
        async with house(server, Handling(start="all", on_uncertain="ask")) as home:
            server.people.say("hello")
            [message] = await home.heard(1)
            server.spoil(_SENT, Cut())
            await home.answered("hi", message, outcome)
        assert server.texts == ["hi"]

    lived(test)


def test_a_report_of_the_first_try_proves_nothing_of_a_second() -> None:
    async def test(server: WhatsAppServer) -> None:
        async with house(server, Handling(start="all", on_uncertain="ask")) as home:
            server.people.say("hello")
            [message] = await home.heard(1)
            outbox_id = await home.answered("hi", message)
            await until(lambda: server.hooks.waiting == 0, "the reports have come")
            failure = server.people.report(server.sent[-1], "failed", 131053)
            await until(lambda: home.switchboard.outcome(outbox_id) == "failed", "the reply has failed")
            server.spoil(_SENT, Cut(taken=False))
            home.switchboard.resend(outbox_id)
            await until(lambda: len(server.calls_of(_SENT)) == 2, "it is sent again")
            server.hooks.add(failure)
            await until(lambda: home.switchboard.outcome(outbox_id) == "uncertain", "nobody knows")

    lived(test)


# The webhook ----------------------------------------------------------------------------------------------------------


def test_the_webhook_of_the_number_is_set_and_the_app_hears_of_the_account() -> None:
    async def test(server: WhatsAppServer) -> None:
        server.business.subscribed = False
        async with house(server) as home:
            await until(lambda: server.business.numbers[NUMBER].override == home.driver.hook_url, "it is set")
            assert server.business.subscribed
            await passes(300.0)
        posted = [call.name for call in server.calls if call.name.startswith("POST")]
        assert posted == ["POST subscribed_apps", "POST number"], "once each"
        async with house(server):
            await passes(1.0)
        assert [call.name for call in server.calls_of("POST subscribed_apps")] == ["POST subscribed_apps"]
        assert server.calls_of("POST subscribed_apps")[0].request.node == ACCOUNT

    lived(test)


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("foreign", "another program receives for this number, at elsewhere.example: delete that webhook"),
        ("unreached", "Meta does not reach http://127.0.0.1:"),
        ("token", "Meta does not accept the token"),
        ("permission", "the token lacks a permission"),
        ("number", "Meta shows no number 106540352242922 to this token"),
        ("deleted", "somebody has deleted the webhook of this number"),
        ("blocked", "Meta lets the number send nothing"),
    ],
)
def test_trouble_is_named_and_ends_unaided(trouble: str, words: str) -> None:
    async def test(server: WhatsAppServer) -> None:
        number = server.business.numbers[NUMBER]
        if trouble == "foreign":
            number.override = "https://elsewhere.example/secret/path"
        elif trouble == "unreached":
            server.spoil("POST number", GraphError(2200, "HTTP Status Code = 502"))
        async with house(server) as home:
            if trouble not in ("foreign", "unreached"):
                await until(lambda: number.override, "it is set")
                make_trouble(server, trouble)
            await until(home.told(words), "it is named", more_s=150.0)
            assert not home.told("secret/path")()
            number.override = "" if trouble == "foreign" else number.override
            server.graph.blocked_for = None
            server.business.numbers[NUMBER] = number
            server.tokens.add(TOKEN)
            server.permissions |= {"whatsapp_business_management", "whatsapp_business_messaging"}
            server.people.say("hello", number=NUMBER)
            await until(lambda: bool(home.switchboard.accepted), "it receives again", more_s=1000.0)

    lived(test)


def make_trouble(server: WhatsAppServer, trouble: str) -> None:
    match trouble:
        case "token":
            server.tokens.clear()
        case "permission":
            server.permissions.clear()
        case "number":
            del server.business.numbers[NUMBER]
        case "deleted":
            server.business.numbers[NUMBER].override = ""
        case "blocked":
            server.graph.blocked_for = GraphError(131031)


def test_what_a_person_must_change_is_told_while_replies_wait() -> None:
    async def test(server: WhatsAppServer) -> None:
        async with house(server) as home:
            server.people.say("hello")
            [message] = await home.heard(1)
            server.graph.blocked_for = GraphError(131042)
            outbox_id = home.switchboard.reply(message, "hi")
            await until(home.told("no valid payment method"), "it is named")
            assert home.switchboard.outcome(outbox_id) == ""
            server.graph.blocked_for = None
            await until(lambda: home.switchboard.outcome(outbox_id) == "sent", "it is sent", more_s=120.0)

    lived(test)


@pytest.mark.parametrize(("call", "padding"), [(_SENT, 0), ("GET number", 468)], ids=["sent", "signed in, cut off"])
def test_a_token_that_meta_repeats_in_its_error_is_shown_to_nobody(call: str, padding: int) -> None:
    async def test(server: WhatsAppServer) -> None:
        with listening() as said:
            async with house(server) as home:
                server.people.say("hello")
                [message] = await home.heard(1)
                error = GraphError(190, title=f"{'x' * padding} Malformed access token {TOKEN}")
                server.spoil(call, *(error for _ in range(3)))
                home.switchboard.reply(message, "an answer")
                await until(home.told("Meta does not accept the token"), "it is told", more_s=150.0)
                assert TOKEN[:8] not in str(home.states)
        assert not [one for one in said() if "access token" in one and TOKEN[:8] in one]

    lived(test)


@pytest.mark.parametrize(
    ("url", "words"),
    [(None, "set public_url"), ("http://x.example/hooks/house", "HTTPS"), (f"https://x/{'x' * 200}", "200")],
)
def test_without_a_public_address_nobody_signs_in(url: str | None, words: str) -> None:
    async def test(server: WhatsAppServer) -> None:
        async with whatsapp_driver(server) as driver:
            configured = driver.configured
            account = replace(configured.account, hook_url=url)
            with pytest.raises(Exception, match=words):
                await configured.manifest.open(account)
        assert server.calls == []

    lived(test)


# Files ----------------------------------------------------------------------------------------------------------------


def test_the_token_goes_to_no_other_host() -> None:
    asked = list[str]()

    async def keep(request: Request) -> PlainTextResponse:
        asked.append(request.headers.get("authorization", ""))
        return PlainTextResponse("mine")

    async def test(server: WhatsAppServer) -> None:
        async with Loopback(Starlette(routes=[Route("/{path:path}", keep)])) as other, house(server) as home:
            server.business.media_host = other.url
            server.people.send_file("image", b"\xff\xd8\xff", "image/jpeg", caption="look")
            [message] = await home.heard(1)
        [attachment] = message["payload"]["attachments"]
        assert "which gets no token" in attachment["unavailable"]
        assert asked == []

    lived(test)


@pytest.mark.parametrize(
    ("fault", "arrives"),
    [(Page(404), True), (Page(200), False), (Cut(), True)],
    ids=["old URL", "a page", "broken off"],
)
def test_a_file_is_what_it_was_said_to_be_or_unavailable(fault: Page | Cut, arrives: bool) -> None:
    async def test(server: WhatsAppServer) -> None:
        server.spoil("download", fault)
        async with house(server) as home:
            server.people.send_file("image", b"\xff\xd8\xff", "image/jpeg")
            [message] = await home.heard(1)
            [attachment] = message["payload"]["attachments"]
            assert ("unavailable" not in attachment) == arrives, attachment

    lived(test)


def test_a_file_that_meta_does_not_take_is_named_in_the_text() -> None:
    async def test(server: WhatsAppServer) -> None:
        server.graph.document_types = {"application/pdf"}
        async with house(server) as home:
            server.people.say("send me")
            [message] = await home.heard(1)
            outbox_id = home.switchboard.reply(
                message, "here", [("a.bin", b"\x00\x01"), ("b.ogg", b"OggS" + bytes(60))]
            )
            await until(lambda: home.switchboard.outcome(outbox_id) == "sent", "it is sent")
            first, voice = server.sent[-2:]
            assert ("a.bin" in first.text, first.content["type"]) == (True, "text")
            assert (voice.content["type"], voice.content["audio"]["voice"]) == ("audio", True)

    lived(test)


def test_typing_marks_the_message_as_read() -> None:
    async def test(server: WhatsAppServer) -> None:
        async with house(server) as home:
            value = server.people.say("hello")
            [message] = await home.heard(1)
            home.switchboard.answering = {"c": message["event"]["reply_address"]}
            await until(lambda: bool(server.graph.typing), "it is typing")
            assert server.graph.typing[0] == value["messages"][0]["id"]

    lived(test)


@pytest.mark.parametrize(
    ("secrets", "why"),
    [({"token": "two words"}, "one word"), ({"app_secret": "f" * 32}, "is not that of the app")],
)
def test_wrong_secrets_are_told_when_signing_in(secrets: Mapping[str, str], why: str) -> None:
    async def test(server: WhatsAppServer) -> None:
        async with whatsapp_driver(server) as driver:
            made = driver.configured
            account = Account("house", made.account.settings, {**made.account.secrets, **secrets}, driver.hook_url)
            with pytest.raises(SignInRefused, match=why):
                await made.manifest.open(account)

    lived(test)
