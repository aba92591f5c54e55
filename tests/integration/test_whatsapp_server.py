"""The strict WhatsApp server: what it gives, refuses, and does wrong on purpose; also as a foreign client sees it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
import pytest
from pywa_async.client import WhatsApp
from pywa_async.types.callback import Button, CallbackButton
from pywa_async.types.message_status import MessageStatus
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from switchboard.domain.json_values import JsonObject
from switchboard.testing.connectors.clock import in_no_time
from switchboard.testing.loopback import Loopback
from switchboard.testing.whatsapp import (
    ACCOUNT,
    ANN,
    APP_SECRET,
    NUMBER,
    OTHER_NUMBER,
    TOKEN,
    CloudPerson,
    Cut,
    GraphError,
    MovableClock,
    Page,
    WhatsAppServer,
    signature_of,
)

BO: Final = CloudPerson("DE.7", name="Bo", username="bo")
HELLO: Final = {"messaging_product": "whatsapp", "to": ANN.phone, "text": {"body": "hi"}}


@dataclass(slots=True)
class Hook:
    """Where webhooks are posted. `status`: the answer to the next ones."""

    token: str = "right"
    status: int = 200
    bodies: list[bytes] = field(default_factory=list)

    async def answer(self, request: Request) -> Response:
        if request.method == "GET":
            right = request.query_params["hub.verify_token"] == self.token
            return PlainTextResponse(request.query_params["hub.challenge"], 200 if right else 403)
        body = await request.body()
        assert request.headers["x-hub-signature-256"] == signature_of(body, APP_SECRET)
        if self.status == 200:
            self.bodies.append(body)
        return PlainTextResponse("", self.status)

    def values(self) -> list[JsonObject]:
        return [change["value"] for body in self.bodies for change in json.loads(body)["entry"][0]["changes"]]

    def said(self) -> list[str]:
        return [one["text"]["body"] for value in self.values() for one in value.get("messages", ())]

    def statuses(self) -> list[tuple[str, int | None]]:
        found = [one for value in self.values() for one in value.get("statuses", ())]
        return [(one["status"], one["errors"][0]["code"] if "errors" in one else None) for one in found]


class Business:
    """A business that does nothing by itself, whose webhooks are posted to `hook`."""

    def __init__(self, server: WhatsAppServer, client: httpx2.AsyncClient, url: str) -> None:
        self._server, self.client, self.url, self.hook = server, client, url, Hook()

    async def __call__(self, verb: str, path: str, body: object = None, *, token: str = TOKEN) -> JsonObject:
        """The whole answer, a failure too."""
        headers = {"Authorization": f"Bearer {token}"}
        answer = await self.client.request(verb, f"{self._server.url}/v25.0/{path}", json=body, headers=headers)
        found: JsonObject = answer.json()
        return found

    async def send(self, **more: object) -> JsonObject:
        return await self("POST", f"{NUMBER}/messages", HELLO | more)

    async def upload(self, data: bytes, media_type: str) -> JsonObject:
        form, file = {"messaging_product": "whatsapp", "type": media_type}, {"file": ("a", data, media_type)}
        headers, url = {"Authorization": f"Bearer {TOKEN}"}, f"{self._server.url}/v25.0/{NUMBER}/media"
        found: JsonObject = (await self.client.post(url, data=form, files=file, headers=headers)).json()
        return found

    async def register(self, said: str = "right") -> JsonObject:
        configuration = {"override_callback_uri": self.url, "verify_token": said}
        return await self("POST", NUMBER, {"webhook_configuration": configuration})

    async def settled(self) -> None:
        await self._server.until(lambda: self._server.hooks.waiting == 0)


@asynccontextmanager
async def business_of(server: WhatsAppServer, *, registered: bool = True) -> AsyncIterator[Business]:
    async def answer(request: Request) -> Response:
        return await business.hook.answer(request)

    front = Loopback(Starlette(routes=[Route("/hook", answer, methods=["GET", "POST"])]))
    async with front, httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        business = Business(server, client, f"{front.url}/hook")
        if registered:
            assert await business.register() == {"success": True}
        yield business


def code_of(answer: JsonObject) -> object:
    return answer.get("error", {}).get("code")


# Webhooks -------------------------------------------------------------------------------------------------------------


async def test_a_url_is_used_once_it_has_answered_the_challenge() -> None:
    async with WhatsAppServer() as server, business_of(server, registered=False) as business:
        server.people.say("waits")
        assert code_of(await business.register("wrong")) == 2200
        assert server.business.numbers[NUMBER].override == ""
        assert await business.register() == {"success": True}
        await business.settled()
        assert business.hook.said() == ["waits"]
        found = await business("GET", f"{NUMBER}?fields=webhook_configuration,health_status")
        assert found["webhook_configuration"] == {"phone_number": business.url}
        assert {one["entity_type"]: one["id"] for one in found["health_status"]["entities"]}["WABA"] == ACCOUNT


def test_a_refused_webhook_comes_again_in_order_for_a_week() -> None:
    async def tried() -> None:
        async with WhatsAppServer() as server, business_of(server) as business:
            business.hook.status = 503
            for text in ("one", "two"):
                server.people.say(text)
            await server.until(lambda: len(server.hooks.refusals) >= 3)
            business.hook.status = 200
            await business.settled()
            assert business.hook.said() == ["one", "two"]
            business.hook.status = 500
            server.people.say("lost")
            server.skip(8 * 86_400)
            await server.until(lambda: bool(server.hooks.lost))

    in_no_time(tried())


async def test_webhooks_hold_several_numbers_come_twice_and_out_of_order() -> None:
    async with WhatsAppServer() as server, business_of(server) as business:
        server.hooks.batch, server.hooks.is_held = 10, True
        for text in ("one", "two"):
            server.people.say(text)
        server.people.say("to the other", BO, number=OTHER_NUMBER, url=business.url)
        server.hooks.release(reverse=True)
        await business.settled()
        assert business.hook.said() == ["to the other", "two", "one"]
        assert len(business.hook.bodies) == 1, "all in one webhook"
        assert len(business.hook.values()) == 2, "of two numbers"
        server.hooks.post_again()
        await business.settled()
        assert business.hook.bodies[0] == business.hook.bodies[1]


async def test_what_happens_while_the_app_hears_of_nothing_is_lost() -> None:
    async with WhatsAppServer() as server, business_of(server) as business:
        await business("DELETE", f"{ACCOUNT}/subscribed_apps")
        server.people.say("lost")
        assert await business("POST", f"{ACCOUNT}/subscribed_apps") == {"success": True}
        server.people.say("heard")
        await business.settled()
        assert business.hook.said() == ["heard"]


# Messages -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"messaging_product": "x"}, 100),
        ({"to": None}, 100),
        ({"text": {"body": "x" * 4097}}, 100),
        ({"text": {"body": " "}}, 131008),
        ({"text": {"body": "x", "links": True}}, 100),
        ({"biz_opaque_callback_data": "x" * 513}, 100),
        ({"context": {"message_id": "wamid.unknown"}}, 131009),
        ({"type": "poll", "poll": {}}, 131051),
        ({"type": "image", "image": {"id": "1"}}, 131009),
        ({"type": "template", "template": {"name": "hello", "language": {"code": "en"}}}, 132001),
        ({"status": "read", "message_id": "wamid.unknown"}, 131009),
    ],
    ids=str,
)
async def test_wrong_messages_are_refused_and_named(more: JsonObject, code: int) -> None:
    async with WhatsAppServer() as server, business_of(server) as business:
        server.people.say("hello")
        assert code_of(await business.send(**more)) == code
        assert server.texts == []


def button(title: str, value: str = "v") -> JsonObject:
    return {"type": "reply", "reply": {"id": value, "title": title}}


@pytest.mark.parametrize(
    ("buttons", "text", "code"),
    [
        ([button("Yes", "1"), button("No", "2")], "May I?", None),
        ([button("x" * 21)], "May I?", 100),
        ([button(str(n), str(n)) for n in range(4)], "May I?", 131009),
        ([button("Yes", "1"), button("Yes", "2")], "May I?", 131009),
        ([button("Yes")], "x" * 1025, 100),
    ],
)
async def test_buttons_are_three_with_short_titles(buttons: list[JsonObject], text: str, code: int | None) -> None:
    async with WhatsAppServer() as server, business_of(server) as business:
        server.people.say("hello")
        content = {"type": "button", "body": {"text": text}, "action": {"buttons": buttons}}
        assert code_of(await business.send(type="interactive", interactive=content)) == code


async def test_a_phone_number_goes_before_an_id_and_an_id_in_its_place_is_lost() -> None:
    async with WhatsAppServer() as server, business_of(server) as business:
        server.people.say("hello")
        server.people.say("hello", BO)
        await business.send(recipient=BO.user_id)
        await business.send(to=None, recipient=BO.user_id)
        assert [one.person for one in server.sent] == [ANN, BO]
        assert "messages" in await business.send(to=BO.user_id), "it looks as if it had been sent"
        await business.settled()
        assert len(server.sent) == 2
        assert [status for status, _ in business.hook.statuses()] == ["sent", "delivered"] * 2


async def test_after_a_day_only_a_template_arrives() -> None:
    async with WhatsAppServer() as server, business_of(server) as business:
        server.people.say("hello")
        server.business.templates.add(("hello", "en"))
        server.skip(86_401)
        assert "messages" in await business.send()
        template = {"name": "hello", "language": {"code": "en"}}
        await business.send(type="template", template=template)
        server.graph.refuses_late = False
        assert code_of(await business.send()) == 131047
        await business.settled()
        assert business.hook.statuses() == [("failed", 131047), ("sent", None), ("delivered", None)]
        server.people.say("again")
        await business.send()
        assert server.texts == ["hello", "hi"]


async def test_a_person_who_has_blocked_the_business_gets_nothing() -> None:
    async with WhatsAppServer() as server, business_of(server) as business:
        server.people.say("hello")
        server.people.block()
        await business.send(biz_opaque_callback_data="key:0")
        await business.settled()
        assert (business.hook.statuses(), server.texts) == ([("failed", 131026)], [])
        [status] = business.hook.values()[-1]["statuses"]
        assert status["biz_opaque_callback_data"] == "key:0"


class StandingClock(MovableClock):
    """Moved by hand alone, so that a slow machine cannot be slow."""

    def __call__(self) -> float:
        return self._start + self._added


def test_limits_of_a_pair_and_of_a_number_are_told_apart() -> None:
    async def tried() -> None:
        async with WhatsAppServer(limits=True, clock=StandingClock()) as server, business_of(server) as business:
            people = [CloudPerson(f"US.{n}", f"1650555{n:04}") for n in range(9)]
            for person in people:
                server.people.say("hello", person)
            codes = [code_of(await business.send(to=people[0].phone)) for _ in range(11)]
            assert codes == [None] * 10 + [131056]
            codes = [code_of(await business.send(to=one.phone)) for one in people[1:] for _ in range(10)]
            assert codes == [None] * 70 + [130429] * 10
            server.skip(60)
            assert code_of(await business.send(to=people[0].phone)) is None

    in_no_time(tried())


async def test_answers_are_billed_after_those_that_are_free() -> None:
    async with WhatsAppServer() as server, business_of(server) as business:
        server.people.say("hello")
        server.business.numbers[NUMBER].free_left = 1
        server.graph.statuses = ("sent",)
        for _ in range(2):
            await business.send()
        await business.settled()
        prices = [one["statuses"][0]["pricing"] for one in business.hook.values()[-2:]]
        assert [(one["billable"], one["type"]) for one in prices] == [
            (False, "free_customer_service"),
            (True, "regular"),
        ]


# Files and tokens -----------------------------------------------------------------------------------------------------


async def test_a_url_of_a_file_wants_the_token_and_ends_after_five_minutes() -> None:
    async with WhatsAppServer() as server, business_of(server) as business:
        value = server.people.send_file("audio", b"OggS", "audio/ogg", voice=True)
        media_id = value["messages"][0]["audio"]["id"]
        found = await business("GET", media_id)
        assert (found["mime_type"], found["file_size"]) == ("audio/ogg", 4)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert (await business.client.get(found["url"])).status_code == 401
        assert (await business.client.get(found["url"], headers=headers)).content == b"OggS"
        server.skip(301)
        assert (await business.client.get(found["url"], headers=headers)).status_code == 404
        server.people.lose_files()
        assert code_of(await business("GET", media_id)) == 100


@pytest.mark.parametrize(
    ("data", "media_type", "code"),
    [
        (b"x", "application/pdf", None),
        (b"", "application/pdf", 131053),
        (b"x" * (5 * 1024 * 1024 + 1), "image/png", None),  # as a document it fits
    ],
    ids=["a document", "nothing", "a large picture"],
)
async def test_files_are_uploaded_within_their_limits(data: bytes, media_type: str, code: int | None) -> None:
    async with WhatsAppServer() as server, business_of(server) as business:
        server.people.say("hello")
        found = await business.upload(data, media_type)
        assert code_of(found) == code
        if code is None:
            assert code_of(await business.send(type="document", document={"id": found["id"], "filename": "a"})) is None
            kind = "image" if media_type == "image/png" else "audio"
            assert code_of(await business.send(type=kind, **{kind: {"id": found["id"]}})) == 131053


async def test_a_caption_of_a_sound_is_refused() -> None:
    async with WhatsAppServer() as server, business_of(server) as business:
        media = (await business.upload(b"OggS", "audio/ogg"))["id"]
        assert code_of(await business.send(type="audio", audio={"id": media, "caption": "listen"})) == 100


async def test_tokens_and_permissions_are_checked_and_faults_are_made() -> None:
    async with WhatsAppServer() as server, business_of(server) as business:
        server.people.say("hello")
        assert code_of(await business("GET", NUMBER, token="another")) == 190
        assert code_of(await business("GET", "12345")) == 100
        server.spoil("POST messages", GraphError(80007), Page(502), Cut())
        assert code_of(await business.send()) == 80007
        with pytest.raises(json.JSONDecodeError):
            await business.send()
        with pytest.raises(httpx2.HTTPError):
            await business.send()
        assert server.texts == ["hi"], "the last one arrived, and its answer was lost"
        server.permissions.discard("whatsapp_business_messaging")
        assert code_of(await business.send()) == 200


# A foreign client -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def pywa_at(server: WhatsAppServer, got: list[Any]) -> AsyncIterator[Any]:
    """pywa as a client and receiver, which keeps what it gets."""
    whatsapp: Any = WhatsApp(phone_id=NUMBER, token=TOKEN, server=None, verify_token="v", app_secret=APP_SECRET)
    whatsapp.api._session.base_url = f"{server.url}/v25.0"  # there is no public name for it

    async def keep(_: object, one: Any) -> None:
        got.append(one)
        server.wake_waiting()

    for event in ("message", "message_status", "callback_button", "phone_number_change"):
        getattr(whatsapp, f"on_{event}")(keep)

    async def answer(request: Request) -> Response:
        if request.method == "GET":
            asked = request.query_params
            return PlainTextResponse(
                *await whatsapp.webhook_challenge_handler(asked["hub.verify_token"], asked["hub.challenge"])
            )
        body = await request.body()
        bad = await whatsapp.webhook_update_validator(body, request.headers.get("x-hub-signature-256"))
        return PlainTextResponse(*(bad or await whatsapp.webhook_update_handler(body)))

    async with Loopback(Starlette(routes=[Route("/hook", answer, methods=["GET", "POST"])])) as front:
        await whatsapp.override_phone_callback_url(f"{front.url}/hook", "v")
        yield whatsapp
    await whatsapp.api._session.aclose()


async def test_pywa_reads_what_people_do_and_answers_them() -> None:
    got = list[Any]()
    async with WhatsAppServer() as server, pywa_at(server, got) as whatsapp:
        assert (await whatsapp.get_business_phone_number()).verified_name == "House"
        server.people.say("hello")
        await server.until(lambda: bool(got))
        [message] = got
        assert (message.text, message.from_user.wa_id, message.from_user.bsuid) == ("hello", ANN.phone, ANN.user_id)
        sent = await message.reply("hi", quote=True, tracker="key:0")
        await message.mark_as_read()
        await message.indicate_typing()
        await server.until(lambda: len(got) == 3)
        assert [(one.id, one.status, one.tracker) for one in got[1:]] == [
            (sent.id, status, "key:0") for status in ("sent", "delivered")
        ]
        assert len(server.graph.read) == 2
        await whatsapp.send_message(to=ANN.phone or "", text="choose", buttons=[Button("Yes", "v1")])
        server.people.press(server.sent[-1], "Yes")
        await server.until(lambda: isinstance(got[-1], CallbackButton))
        assert (got[-1].data, got[-1].title) == ("v1", "Yes")
        server.people.change_number(ANN, CloudPerson("US.2", "16505559999"))
        await server.until(lambda: hasattr(got[-1], "new_wa_id"))
        assert (got[-1].old_wa_id, got[-1].new_wa_id, got[-1].new_user_id) == (ANN.phone, "16505559999", "US.2")


async def test_pywa_exchanges_files_and_hears_of_failures() -> None:
    got = list[Any]()
    async with WhatsAppServer() as server, pywa_at(server, got) as whatsapp:
        server.people.send_file("image", b"\xff\xd8\xff", "image/jpeg", caption="look")
        await server.until(lambda: bool(got))
        assert (await got[0].image.get_bytes(), got[0].image.caption) == (b"\xff\xd8\xff", "look")
        media = await whatsapp.upload_media(b"%PDF-", mime_type="application/pdf", filename="a.pdf")
        await whatsapp.send_document(to=ANN.user_id, document=media, filename="a.pdf", caption="here")
        assert (server.sent[-1].person, server.texts) == (ANN, ["here"])
        await server.until(lambda: server.hooks.waiting == 0)
        server.skip(86_401)
        await whatsapp.send_message(to=ANN.phone or "", text="late")
        await server.until(lambda: isinstance(got[-1], MessageStatus) and got[-1].error is not None)
        assert got[-1].error.code == 131047
