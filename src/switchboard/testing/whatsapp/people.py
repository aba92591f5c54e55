"""The other side of the business: what people do in WhatsApp, as calls of a test; each returns the value of a change.

They are posted by `posting.py`; the first message of `value["messages"]` has the id. Next: `webhooks.py`.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from switchboard.domain.json_values import JsonObject
from switchboard.testing.whatsapp.business import BusinessMessage, WhatsAppBusiness
from switchboard.testing.whatsapp.posting import WebhookPoster
from switchboard.testing.whatsapp.webhooks import (
    ANN,
    CloudPerson,
    Status,
    WebhookSender,
    pressed_button,
    reaction_to,
    text_content,
)


class WhatsAppPeople:
    """People's actions, to the first number of the business unless another is given."""

    def __init__(self, business: WhatsAppBusiness, sender: WebhookSender, hooks: WebhookPoster) -> None:
        self._business, self._sender, self._hooks = business, sender, hooks

    def say(self, text: str, person: CloudPerson = ANN, **more: Any) -> JsonObject:
        """Write; `more` as in `send`."""
        return self.send(text_content(text), person, **more)

    def send(
        self,
        content: JsonObject,
        person: CloudPerson = ANN,
        *,
        number: str = "",
        answers: str | None = None,
        forwarded: bool = False,
        url: str = "",
    ) -> JsonObject:
        """Send a message of any content, such as `{"type": "location", …}`; `answers`: the id of a message.

        `url`: its webhook is posted there, as if another number had the same one.
        """
        number_id = number or next(iter(self._business.numbers))
        known = self._business.know(person)
        known.wrote[number_id] = self._business.clock()
        value = self._sender.said(number_id, person, content, answers=answers, forwarded=forwarded)
        self._business.heard[value["messages"][0]["id"]] = number_id
        self._hooks.add(value, url=url)
        return value

    def send_file(
        self, kind: str, data: bytes, media_type: str, person: CloudPerson = ANN, **about: object
    ) -> JsonObject:
        """Send a file; `kind`: image, video, audio, document or sticker, `about`: caption, filename, voice."""
        media = self._business.store(media_type, data, theirs=True)
        file = {"id": media.media_id, "mime_type": media_type, "sha256": media.hash, **about}
        return self.send({"type": kind, kind: file}, person)

    def lose_files(self) -> None:
        """Make all files that people have sent unavailable."""
        self._business.media = {name: one for name, one in self._business.media.items() if not one.theirs}

    def press(self, message: BusinessMessage, label: str) -> JsonObject:
        """Whoever has a message presses the button with this label below it."""
        buttons = [one["reply"] for one in message.content["interactive"]["action"]["buttons"]]
        value = next(one["id"] for one in buttons if one["title"] == label)
        return self.send(
            pressed_button(value, label), message.person or ANN, number=message.number_id, answers=message.wamid
        )

    def edit(self, value: JsonObject, text: str, person: CloudPerson = ANN) -> JsonObject:
        """Change a message, as Meta tells it where the number is also used in the app for businesses."""
        about = {"original_message_id": value["messages"][0]["id"], "message": text_content(text)}
        return self.send({"type": "edit", "edit": about}, person)

    def revoke(self, value: JsonObject, person: CloudPerson = ANN) -> JsonObject:
        """Delete a message, told as an edit is."""
        return self.send({"type": "revoke", "revoke": {"original_message_id": value["messages"][0]["id"]}}, person)

    def react(self, wamid: str, emoji: str, person: CloudPerson = ANN) -> JsonObject:
        """React to a message; an empty emoji takes it back."""
        return self.send(reaction_to(wamid, emoji), person)

    def change_number(self, person: CloudPerson, new: CloudPerson, *, is_bare: bool = False) -> JsonObject:
        """A person has another number, and so another id; `is_bare`: as Meta told it before August 2026."""
        known = self._business.know(person)
        value = self._sender.number_changed(next(iter(self._business.numbers)), person, new, is_bare=is_bare)
        known.person = new
        self._hooks.add(value)
        return value

    def hide_phone(self, person: CloudPerson = ANN) -> CloudPerson:
        """A person takes a username, and is known by the id only."""
        known = self._business.know(person)
        known.person = replace(person, phone=None, username=person.name.lower())
        return known.person

    def block(self, person: CloudPerson = ANN) -> None:
        """Messages to this person fail from now on."""
        self._business.know(person).has_blocked = True

    def unblock(self, person: CloudPerson = ANN) -> None:
        """They arrive again."""
        self._business.know(person).has_blocked = False

    def report(self, message: BusinessMessage, status: Status, error: int | None = None) -> JsonObject:
        """Meta reports what became of a message; `error`: the code of a failure."""
        opaque = message.content.get("biz_opaque_callback_data")
        person = message.person or ANN
        value = self._sender.status(message.number_id, person, message.wamid, status, opaque=opaque, error=error)
        self._hooks.add(value)
        return value
