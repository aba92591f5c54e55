"""Webhooks of WhatsApp as events: those of Meta's reference, and odd ones; and statuses as reports."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import given

from switchboard.connectors.whatsapp.events import read_message
from switchboard.connectors.whatsapp.posted import SplitWebhook, split_webhook
from switchboard.connectors.whatsapp.statuses import read_status
from switchboard.connectors.whatsapp.words import UNSHOWN
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.identity import conversation
from switchboard.core.turns.choices import is_press
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Inbound, Unreadable
from switchboard.testing.whatsapp import (
    ANN,
    NUMBER,
    OTHER_NUMBER,
    CloudPerson,
    WebhookSender,
    pressed_button,
    reaction_to,
    text_content,
    without_contacts,
)
from tests.strategies import json_values

NOW: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
SENT: Final = 1_748_849_400
BO: Final = CloudPerson("DE.7", name="Bo", username="bo")
CY: Final = CloudPerson("DE.8", "4930123456", name="Cy", parent_user_id="DE.ENT.9")
TOKEN: Final = f"choice:{'A' * 22}.1.{'B' * 16}"


def sender() -> WebhookSender:
    return WebhookSender("secret", clock=lambda: float(SENT))


def split(*values: JsonObject, number_id: str = NUMBER) -> SplitWebhook:
    found = split_webhook(sender().post(*values).body, number_id)
    assert isinstance(found, SplitWebhook)
    return found


def inbound(content: JsonObject, person: CloudPerson = ANN, **more: Any) -> Inbound:
    [value] = split(sender().said(NUMBER, person, content, **more)).messages
    found = read_message(value, NOW)
    assert isinstance(found, Inbound), found
    return found


def text_of(found: Inbound) -> str:
    return found.envelope.payload.normalized_text


@pytest.mark.parametrize(
    ("contact", "name"),
    [
        ({"user_id": "DE.7"}, "Ann"),
        ({"wa_id": "49301", "user_id": "US.1"}, None),
        ({"user_id": "US.1"}, None),
        ({"wa_id": "49302"}, None),
        ({"parent_user_id": "US.ENT.1"}, None),
        ({}, "Ann"),
    ],
)
def test_a_contact_with_ids_of_somebody_else_is_not_the_sender(contact: JsonObject, name: str | None) -> None:
    value = sender().said(NUMBER, CloudPerson("DE.7", "49301", parent_user_id="DE.ENT.9"), text_content("hi"))
    value["contacts"] = [{"profile": {"name": "Ann"}, **contact}]
    [message] = split(value).messages
    found = read_message(message, NOW)
    assert isinstance(found, Inbound)
    assert (found.envelope.sender.identity, found.envelope.sender.display_name) == ("DE.ENT.9", name)


def test_a_text() -> None:
    found = inbound(text_content("hello"))
    event, who = found.envelope.event, found.envelope.sender
    assert event.external_event_id.startswith("wamid.")
    assert (event.external_thread_id, event.kind, event.refers_to) == (ANN.user_id, "message", None)
    assert (event.sent_at, event.observed_at) == (datetime.fromtimestamp(SENT, UTC), NOW)
    known = {"to": ANN.phone, "recipient": ANN.user_id, "message": event.external_event_id, "at": SENT}
    assert event.reply_address == known
    assert (who.identity, who.display_name, who.chat_type) == (ANN.user_id, "Ann", "private")
    assert (text_of(found), found.direct, found.own, found.moved) == ("hello", True, False, None)
    assert found.envelope.source.endpoint_identity == NUMBER
    assert found.envelope.control.addressed


@pytest.mark.parametrize(
    ("person", "identity", "address"),
    [
        (ANN, ANN.user_id, {"to": ANN.phone, "recipient": ANN.user_id}),
        (BO, "DE.7", {"recipient": "DE.7"}),
        (CY, "DE.ENT.9", {"to": CY.phone, "recipient": "DE.8"}),
        (CloudPerson("", "49301"), "49301", {"to": "49301"}),
    ],
    ids=["phone and id", "a hidden phone", "a parent business", "a phone alone"],
)
def test_who_writes_and_where_to_answer(person: CloudPerson, identity: str, address: JsonObject) -> None:
    found = inbound(text_content("hi"), person)
    assert found.envelope.sender.identity == found.envelope.event.external_thread_id == identity
    answer = found.envelope.event.reply_address or {}
    assert {name: answer[name] for name in ("to", "recipient") if name in answer} == address
    assert found.moved == (("DE.8", "DE.ENT.9") if person == CY else None), "the parent is new, the id is not"


PLACE: Final = {"latitude": 52.52, "longitude": 13.4}
FILE: Final = {"id": "77", "mime_type": "audio/ogg; codecs=opus", "sha256": "s", "voice": True}
CARD: Final = {"name": {"formatted_name": "Di"}, "phones": [{"phone": "+49 30 1"}]}
ORDER: Final = {"product_items": [{"quantity": 2, "product_retailer_id": "tea", "item_price": 3.5, "currency": "EUR"}]}


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        (text_content("> quoted\nmine"), "message", "> quoted\n\nmine"),
        ({"type": "location", "location": PLACE}, "message", "(Location: 52.520000, 13.400000)"),
        (
            {"type": "location", "location": {**PLACE, "name": "Home"}},
            "message",
            "(Place: Home, 52.520000, 13.400000)",
        ),
        ({"type": "contacts", "contacts": [CARD]}, "message", "(Contact: Di +49 30 1)"),
        ({"type": "order", "order": ORDER}, "message", "(Order of 1 products)\n- 2 of tea, 3.5 EUR each"),
        ({"type": "audio", "audio": FILE}, "message", ""),
        ({"type": "image", "image": {"id": "78", "caption": "look"}}, "message", "look"),
        ({"type": "sticker", "sticker": {"id": "79"}}, "message", ""),
        (reaction_to("wamid.A", "👍"), "reaction", "👍"),
        (reaction_to("wamid.A", ""), "reaction", ""),
        (pressed_button(TOKEN, "Yes"), "button", TOKEN),
        ({"type": "button", "button": {"payload": "go", "text": "Go"}}, "button", "go"),
        ({"type": "unsupported", "unsupported": {"type": "poll"}}, "message", UNSHOWN),
        ({"type": "text", "errors": [{"code": 131051}]}, "message", UNSHOWN),
        (
            {"type": "edit", "edit": {"original_message_id": "wamid.A", "message": text_content("new")}},
            "edit",
            "new",
        ),
        ({"type": "revoke", "revoke": {"original_message_id": "wamid.A"}}, "delete", ""),
        ({"type": "hologram", "hologram": {}}, "membership", "(A message of a kind that is not read: hologram)"),
        ({**text_content("hi"), "group_id": "g"}, "membership", "(A message of a kind that is not read: group)"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_every_kind_of_message(content: JsonObject, kind: str, text: str) -> None:
    answers = "wamid.A" if content["type"] in ("interactive", "button") else None
    found = inbound(content, answers=answers)
    assert (found.envelope.event.kind, text_of(found)) == (kind, text)
    is_about = kind in ("reaction", "button", "edit", "delete")
    assert found.envelope.event.refers_to == ("wamid.A" if is_about else None)
    assert (found.unknown is not None) == (kind == "membership")


def test_a_voice_message_has_its_file_and_says_that_it_is_one() -> None:
    found = inbound({"type": "audio", "audio": FILE})
    [attachment] = found.envelope.payload.attachments
    assert (attachment.media_type, attachment.voice, attachment.source_attachment_id) == ("audio/ogg", True, "s")
    assert [one.handle for one in found.files] == [{"media": "77", "kind": "audio"}]


def test_others_words_are_marked_and_answers_name_their_message() -> None:
    forwarded = inbound(text_content("a chain letter"), forwarded=True)
    assert [one.kind for one in forwarded.envelope.payload.passages] == ["forwarded"]
    answer = inbound(text_content("yes"), answers="wamid.A").envelope
    assert CHANNELS["whatsapp"].replied_to(answer) == "wamid.A"


def test_a_press_of_ours_decides_in_the_conversation_of_who_pressed() -> None:
    pressed, said = (inbound(one).envelope for one in (pressed_button(TOKEN, "Yes"), text_content("hi")))
    channel = CHANNELS["whatsapp"]
    assert is_press(pressed, channel)
    assert conversation(pressed, channel) == conversation(said, channel)


@pytest.mark.parametrize(
    ("old", "new", "is_bare", "moved"),
    [
        (ANN, CloudPerson("US.2", "16505559999"), False, (ANN.user_id, "US.2")),
        (BO, CloudPerson("DE.70"), False, ("DE.7", "DE.70")),
        (CY, CloudPerson("DE.80", "49301", parent_user_id="DE.ENT.90"), False, ("DE.ENT.9", "DE.ENT.90")),
        (ANN, CloudPerson("US.2", "16505559999"), True, ("as known", "US.2")),
        (BO, CloudPerson("DE.70"), True, None),
    ],
    ids=["number and id", "an id alone", "a parent", "before August 2026", "nothing is known"],
)
def test_who_changes_the_number_takes_the_conversation_along(
    old: CloudPerson, new: CloudPerson, is_bare: bool, moved: tuple[str, str] | None
) -> None:
    [value] = split(sender().number_changed(NUMBER, old, new, is_bare=is_bare)).messages
    found = read_message(value, NOW, {ANN.phone: "as known"}.get)
    assert isinstance(found, Inbound)
    assert (found.moved, found.envelope.event.kind) == (moved, "membership")
    assert found.envelope.sender.identity == (new.parent_user_id or new.user_id)


def test_a_webhook_is_split_by_number_and_each_message_has_its_sender() -> None:
    ours = sender()
    said = [ours.said(NUMBER, one, text_content(one.name)) for one in (ANN, BO, CY)]
    other = ours.said(OTHER_NUMBER, BO, text_content("not for us"))
    reports = [ours.status(number, ANN, "wamid.X", "read") for number in (NUMBER, OTHER_NUMBER)]
    found = split(*said, other, *reports)
    assert [one["contacts"][0]["profile"]["name"] for one in found.messages] == ["Ann", "Bo", "Cy"]
    assert all(len(one["messages"]) == 1 for one in found.messages)
    assert (len(found.statuses), found.others, found.odd) == (1, 2, 0)
    changes = [{"field": "account_update", "value": {}}]
    assert split_webhook(json.dumps({"entry": [{"changes": changes}]}).encode(), NUMBER) == SplitWebhook(odd=1)


def test_a_message_from_quarantine_is_read_as_it_was() -> None:
    first = inbound(text_content("hello"))
    found = split_webhook(first.raw, NUMBER)
    assert isinstance(found, SplitWebhook)
    assert read_message(found.messages[0], NOW) == first


def test_what_a_status_reports() -> None:
    ours = sender()

    def reported(*about: Any, **more: Any) -> Any:
        [value] = split(ours.status(NUMBER, ANN, "wamid.X", *about, **more)).statuses
        return read_status(value, NOW)

    late, blocked = (reported("failed", error=code, opaque="key:0") for code in (131047, 131026))
    assert (late.is_too_late, late.failure.because, late.key) == (True, "blocked", "key:0")
    assert "has not written for 24 hours" in late.failure.reason
    assert late.failure.at == datetime.fromtimestamp(SENT, UTC)
    assert (blocked.failure.because, blocked.is_too_late) == ("blocked", False)
    assert reported("failed", error=131053).failure.because is None
    delivered = reported("delivered")
    assert (delivered.failure, delivered.is_delivered, delivered.is_billed) == (None, True, True)
    assert read_status(without_contacts(split(ours.status(NUMBER, ANN, "wamid.X", "read")).statuses[0]), NOW)
    assert read_status({"statuses": [{}]}, NOW) is None


@given(json_values())
def test_nothing_posted_raises(value: object) -> None:
    body = {"entry": [{"changes": [{"field": "messages", "value": value}]}]}
    found = split_webhook(json.dumps(body).encode(), NUMBER)
    assert isinstance(found, SplitWebhook | Unreadable)
    for odd in (value, {"metadata": {"phone_number_id": NUMBER}, "messages": [value], "statuses": [value]}):
        if isinstance(odd, dict):
            assert isinstance(read_message(odd, NOW), Inbound | Unreadable)
            read_status(odd, NOW)
    if isinstance(value, dict):
        message = {"id": "wamid.A", "timestamp": "1", "from_user_id": "DE.7", **value}
        assert isinstance(read_message({"messages": [message]}, NOW), Inbound | Unreadable)


def test_what_is_no_json_is_unreadable() -> None:
    found = split_webhook(b"\xff{", NUMBER)
    assert isinstance(found, Unreadable)
    assert found.raw == b"\xff{"
