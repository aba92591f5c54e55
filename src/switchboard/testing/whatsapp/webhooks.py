"""Webhooks of the Cloud API in the form in which Meta posts them: values of changes, and signed bodies of them.

A `WebhookSender` makes them for one business account; the ids of messages are its own, like those of Meta. Text is
escaped as Meta escapes it, so that a receiver that writes the body again before it checks the signature fails.
"""

from __future__ import annotations

import hmac
import json
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count, groupby
from typing import Final, Literal

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.testing.whatsapp.errors import title_of

Status = Literal["sent", "delivered", "read", "failed"]
NUMBER: Final = "106540352242922"
"""The id of a number of the business."""
OTHER_NUMBER: Final = "206540352242922"
"""That of another one."""
_PHONES: Final = {NUMBER: "15550783881"}


class CloudPerson(Struct, frozen=True):
    """Somebody who writes to the business. `phone`: None if they hide it.

    `user_id` is the id that they have for this business; an empty one: it is from before there were such ids.
    """

    user_id: str
    phone: str | None = None
    name: str = "Ann"
    username: str | None = None
    parent_user_id: str | None = None


ANN: Final = CloudPerson("US.13491208655302741918", "16505551234")


class Pricing(Struct, frozen=True):
    """What a message costs, as a status tells it: `regular` ones are billed."""

    category: str = "service"
    type: Literal["regular", "free_customer_service", "free_entry_point"] = "regular"

    def as_json(self) -> JsonObject:
        """As it stands in a status."""
        about = {"pricing_model": "PMP", "category": self.category, "type": self.type}
        return {"billable": self.type == "regular", **about}


class SignedWebhook(Struct, frozen=True):
    """What is posted; names of headers are in lower case."""

    body: bytes
    headers: Mapping[str, str]


def without_contacts(status: JsonObject) -> JsonObject:
    """The value of a change as Meta's reference shows statuses; pywa relies on contacts, so that both may come."""
    return {name: value for name, value in status.items() if name != "contacts"}


def signature_of(body: bytes, app_secret: str) -> str:
    """The value of the header `X-Hub-Signature-256`."""
    return f"sha256={hmac.new(app_secret.encode(), body, sha256).hexdigest()}"


def text_content(body: str) -> JsonObject:
    """The content of a message of words."""
    return {"type": "text", "text": {"body": body}}


def pressed_button(value: str, label: str) -> JsonObject:
    """The content of a message by which somebody presses a reply button."""
    return {
        "type": "interactive",
        "interactive": {"type": "button_reply", "button_reply": {"id": value, "title": label}},
    }


def reaction_to(wamid: str, emoji: str) -> JsonObject:
    """The content of a reaction to a message; an empty emoji takes it back."""
    return {"type": "reaction", "reaction": {"message_id": wamid} | ({"emoji": emoji} if emoji else {})}


@dataclass(slots=True)
class WebhookSender:
    """Makes the webhooks of a business account; `clock` gives seconds since 1970."""

    app_secret: str = field(repr=False)
    account_id: str = "102290129340398"
    clock: Callable[[], float] = time.time
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def said(
        self,
        number_id: str,
        person: CloudPerson,
        content: JsonObject,
        *,
        answers: str | None = None,
        forwarded: bool = False,
    ) -> JsonObject:
        """The value of a change: a person has sent this; `answers`: the id of the message that it answers."""
        message: JsonObject = {"id": self.next_wamid(), "timestamp": str(int(self.clock())), **content}
        ids = {"": person.phone, "_user_id": person.user_id or None, "_parent_user_id": person.parent_user_id}
        message |= {f"from{kind}": value for kind, value in ids.items() if value is not None}
        if answers is not None:
            message["context"] = {"from": display_of(number_id), "id": answers}
        elif forwarded:
            message["context"] = {"forwarded": True}
        return {**_metadata_of(number_id), "contacts": [_contact_of(person)], "messages": [message]}

    def status(
        self,
        number_id: str,
        person: CloudPerson,
        wamid: str,
        status: Status,
        *,
        opaque: str | None = None,
        error: int | None = None,
    ) -> JsonObject:
        """The value of a change: what became of a message of the business.

        `opaque`: the `biz_opaque_callback_data` that it was sent with; `error`: the code of a failure.
        """
        about: JsonObject = {"id": wamid, "status": status, "timestamp": str(int(self.clock()))}
        ids = {"": person.phone, "user_": person.user_id or None, "parent_user_": person.parent_user_id}
        about |= {f"recipient_{kind}id": value for kind, value in ids.items() if value is not None}
        if opaque is not None:
            about["biz_opaque_callback_data"] = opaque
        if error is not None:
            said = title_of(error)
            about["errors"] = [{"code": error, "title": said, "message": said, "error_data": {"details": said}}]
        elif status in ("sent", "delivered"):
            about["pricing"] = Pricing().as_json()
        return {**_metadata_of(number_id), "contacts": [_contact_of(person)], "statuses": [about]}

    def number_changed(
        self, number_id: str, old: CloudPerson, new: CloudPerson, *, is_bare: bool = False
    ) -> JsonObject:
        """The value of a change: a person has another number, and so another id. Such a message has no contacts.

        Without a phone number it tells of the ids alone. `is_bare`: without the ids of before, as until August 2026.
        """
        has_phone = new.phone is not None and old.phone is not None
        kind = "user_changed_number" if has_phone else "user_changed_user_id"
        of, to = (old.phone, new.phone) if has_phone else (old.user_id, new.user_id)
        ids = {"wa_id": new.phone, "user_id": new.user_id or None, "parent_user_id": new.parent_user_id}
        if not is_bare:
            ids |= {"previous_user_id": old.user_id or None, "previous_parent_user_id": old.parent_user_id}
        system: JsonObject = {"type": kind, "body": f"User {old.name} changed from {of} to {to}"}
        system |= {name: value for name, value in ids.items() if value is not None}
        about = {"id": self.next_wamid(), "timestamp": str(int(self.clock())), "type": "system"}
        known = {"from": old.phone} if old.phone is not None else {}
        return {**_metadata_of(number_id), "messages": [{**about, **known, "system": system}]}

    def post(self, *values: JsonObject) -> SignedWebhook:
        """One webhook with these values; neighbours of one number and one kind share a change."""
        changes = [{"field": "messages", "value": value} for value in _joined_values(values)]
        entries = [{"id": self.account_id, "changes": changes}]
        escaped = json.dumps({"object": "whatsapp_business_account", "entry": entries}, separators=(",", ":"))
        body = escaped.replace("/", "\\/").encode("ascii")
        signature = signature_of(body, self.app_secret)
        return SignedWebhook(body, {"content-type": "application/json", "x-hub-signature-256": signature})

    def next_wamid(self) -> str:
        """An id that no other message has."""
        number = f"{self.account_id}:{next(self._numbers):08}"
        return f"wamid.{b64encode(number.encode()).decode('ascii')}"


def _metadata_of(number_id: str) -> JsonObject:
    known = {"display_phone_number": display_of(number_id), "phone_number_id": number_id}
    return {"messaging_product": "whatsapp", "metadata": known}


def display_of(number_id: str) -> str:
    """The phone number, in digits."""
    return _PHONES.get(number_id, f"1555{number_id[-7:]:0>7}")


def _contact_of(person: CloudPerson) -> JsonObject:
    profile = {"name": person.name} | ({"username": person.username} if person.username else {})
    ids = {"wa_id": person.phone, "user_id": person.user_id or None, "parent_user_id": person.parent_user_id}
    return {"profile": profile} | {name: value for name, value in ids.items() if value is not None}


def _joined_values(values: Sequence[JsonObject]) -> list[JsonObject]:
    """Values with what neighbours have in common once; a person is among the contacts once."""
    found = []
    for (metadata, _), alike in groupby(values, key=lambda one: (one["metadata"], "statuses" in one)):
        several, joined = list(alike), dict[str, list[JsonObject]]()
        for name in ("contacts", "messages", "statuses"):
            for one in (item for value in several for item in value.get(name, ())):
                if name != "contacts" or one not in joined.get(name, ()):
                    joined.setdefault(name, []).append(one)
        found.append({"messaging_product": "whatsapp", "metadata": metadata, **joined})
    return found
