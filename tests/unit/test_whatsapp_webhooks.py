"""The webhooks of WhatsApp that tests post: signed as they are sent, and read by the functions of the channel."""

from __future__ import annotations

import json
from typing import Any, Final

from switchboard.core.channels import whatsapp
from switchboard.testing.whatsapp import (
    ANN,
    NUMBER,
    OTHER_NUMBER,
    CloudPerson,
    WebhookSender,
    pressed_button,
    reaction_to,
    signature_of,
    text_content,
    without_contacts,
)

SECRET: Final = "app-secret"
HIDDEN: Final = CloudPerson("DE.7", name="Bo", username="bo")
BUSINESS: Final = CloudPerson("DE.8", "4930123456", name="Cy", parent_user_id="DE.ENT.9")


def sender() -> WebhookSender:
    return WebhookSender(SECRET, clock=lambda: 1_748_849_400.0)


def values_in(body: bytes) -> list[dict[str, Any]]:
    [entry] = json.loads(body)["entry"]
    assert {change["field"] for change in entry["changes"]} == {"messages"}
    return [change["value"] for change in entry["changes"]]


def test_the_signature_is_of_the_bytes_which_nobody_writes_alike() -> None:
    hook = sender().post(sender().said(NUMBER, ANN, text_content("größer </b> 👍")))
    assert hook.headers["x-hub-signature-256"] == signature_of(hook.body, SECRET)
    again = json.dumps(json.loads(hook.body), separators=(",", ":"), ensure_ascii=False).encode()
    assert signature_of(again, SECRET) != hook.headers["x-hub-signature-256"]
    assert signature_of(hook.body, "another") != hook.headers["x-hub-signature-256"]
    [value] = values_in(hook.body)
    assert value["messages"][0]["text"]["body"] == "größer </b> 👍"
    assert hook.body.isascii()


def test_one_webhook_holds_messages_of_several_people_numbers_and_statuses() -> None:
    ours = sender()
    said = [ours.said(NUMBER, one, text_content(f"from {one.name}")) for one in (ANN, HIDDEN, ANN)]
    hook = ours.post(
        *said, ours.said(OTHER_NUMBER, BUSINESS, text_content("hi")), ours.status(NUMBER, ANN, "wamid.X", "read")
    )
    first, second, third = values_in(hook.body)
    assert [one["text"]["body"] for one in first["messages"]] == ["from Ann", "from Bo", "from Ann"]
    assert [one["profile"]["name"] for one in first["contacts"]] == ["Ann", "Bo"], "each person once"
    assert [one["metadata"]["phone_number_id"] for one in (first, second, third)] == [NUMBER, OTHER_NUMBER, NUMBER]
    assert ("messages" in third, third["statuses"][0]["status"]) == (False, "read")
    assert len({one["id"] for value in (first, second) for one in value["messages"]}) == 4


def test_the_channel_reads_who_wrote_what_to_which_number() -> None:
    ours = sender()
    known = {
        "by phone and id": (ours.said(NUMBER, ANN, text_content("hi")), ANN.user_id, ANN.phone, None),
        "without a phone": (ours.said(NUMBER, HIDDEN, text_content("hi"), answers="wamid.A"), "DE.7", None, "wamid.A"),
        "of a parent business": (ours.said(NUMBER, BUSINESS, text_content("hi")), "DE.ENT.9", "4930123456", None),
        "from before there were ids": (
            ours.said(NUMBER, CloudPerson("", "49301"), text_content("hi")),
            "49301",
            "49301",
            None,
        ),
        "a forward": (ours.said(NUMBER, ANN, text_content("hi"), forwarded=True), ANN.user_id, ANN.phone, None),
        "a press": (
            ours.said(NUMBER, ANN, pressed_button("v", "Yes"), answers="wamid.A"),
            ANN.user_id,
            ANN.phone,
            "wamid.A",
        ),
        "a reaction": (ours.said(NUMBER, ANN, reaction_to("wamid.A", "👍")), ANN.user_id, ANN.phone, None),
    }
    for name, (value, author, phone, answers) in known.items():
        assert whatsapp.author_of(value) == author, name
        assert (whatsapp.phone_of(value), whatsapp.replied_to(value)) == (phone, answers), name
        assert whatsapp.event_key(value) == value["messages"][0]["id"], name
        assert whatsapp.number_id_of(value) == NUMBER, name


def test_a_status_tells_what_became_of_which_message() -> None:
    ours = sender()
    failed = ours.status(NUMBER, HIDDEN, "wamid.X", "failed", opaque="key:0", error=131047)
    assert whatsapp.event_key(failed) == "wamid.X:failed"
    [about] = failed["statuses"]
    assert (about["recipient_user_id"], about["biz_opaque_callback_data"]) == ("DE.7", "key:0")
    assert "recipient_id" not in about, "the phone is hidden"
    assert whatsapp.author_of(failed) is whatsapp.phone_of(failed) is None, "it is by nobody"
    assert whatsapp.event_key(without_contacts(failed)) == "wamid.X:failed"
    assert (about["errors"][0]["code"], "pricing" in about) == (131047, False)
    [billed] = ours.status(NUMBER, ANN, "wamid.X", "sent")["statuses"]
    assert billed["pricing"]["type"] == "regular"


def test_whoever_changes_the_number_is_named_by_the_old_and_the_new_one() -> None:
    new = CloudPerson("US.2", "16505559999")
    moved = sender().number_changed(NUMBER, ANN, new)
    [message] = moved["messages"]
    assert (message["from"], message["system"]["wa_id"], message["system"]["user_id"]) == (ANN.phone, new.phone, "US.2")
    assert "contacts" not in moved
