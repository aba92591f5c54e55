"""Notices: what operators are told in chats that the setting `notify` names. Pure.

A notice is a message of the channel `notice`, which nobody else can submit to; its endpoint is the account through
which it goes (`telegram/bot:house`), its thread the address (`telegram/bot:house/41`), and its own text is its reply.
`app/notices.py` makes them, `journey/reply.py` says where their replies wait. In: addresses, and what has happened;
out: an envelope, and one sentence without a word that a sender wrote. Next: `app/notices.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

from msgspec import Struct

from switchboard.domain.envelope import Envelope, Event, Payload, Sender, Source
from switchboard.domain.json_values import JsonObject
from switchboard.domain.routing import SWITCHBOARD

NOTICE: Final = "notice"
"""The channel."""
ADDRESS: Final = r"^[^\s/]+/.+/[^/]+$"
"""The form of an address: channel, endpoint and chat."""
TEST: Final = "Switchboard: this is a test. What needs an operator is told here."
_SHOWN: Final = 5

NoticeKind = Literal["dead_letter", "stranger", "approval", "account", "sign_in_ended", "sign_in_ends"]
_SAID: Final[dict[NoticeKind, tuple[str, str, str]]] = {
    "dead_letter": ("dead letter", "dead letters", "switchboard dlq list"),
    "stranger": ("stranger who is not let in yet", "strangers who are not let in yet", "switchboard pairing list"),
    "approval": ("decision that people have to make", "decisions that people have to make", "switchboard approvals"),
    "account": ("account that does not work", "accounts that do not work", "switchboard doctor"),
    "sign_in_ended": ("sign-in that has ended", "sign-ins that have ended", "switchboard doctor"),
    "sign_in_ends": ("sign-in that ends within a day", "sign-ins that end within a day", "switchboard doctor"),
}


class ChatAddress(Struct, frozen=True):
    """A chat of an account, as the setting names it."""

    channel: str
    endpoint: str
    chat: str

    @property
    def account(self) -> str:
        """`telegram/bot:house`."""
        return f"{self.channel}/{self.endpoint}"

    @property
    def name(self) -> str:
        """`telegram/bot:house/41`."""
        return f"{self.account}/{self.chat}"


class Unnoticed(Struct, frozen=True):
    """Something that operators have not been told of. `key`: by which the database knows it.

    `detail`: its category, whose it is, or which one and why. `account`: whose trouble it is; `carried`: the address of
    the notice that it is about.
    """

    kind: NoticeKind
    key: str
    detail: str
    account: str | None = None
    carried: str | None = None


def address_in(name: str) -> ChatAddress:
    """The address that has this name, which has the form `ADDRESS`."""
    account, _, chat = name.rpartition("/")
    return ChatAddress(*account_in(account), chat)


def account_in(name: str) -> tuple[str, str]:
    """Channel and endpoint of an account such as `telegram/bot:house`."""
    channel, _, endpoint = name.partition("/")
    return channel, endpoint


def addresses_for(addresses: Sequence[ChatAddress], event: Unnoticed) -> Sequence[ChatAddress]:
    """The addresses that may be told of an event, in their order.

    What is about a notice is told only behind the address of that notice, so that notices about notices end.
    """
    names = [one.name for one in addresses]
    behind = 0 if event.carried is None else names.index(event.carried) + 1 if event.carried in names else len(names)
    return [one for one in addresses[behind:] if one.account != event.account]


def notice_text(kind: NoticeKind, count: int, details: Sequence[str]) -> str:
    """One sentence; `details`: those of the events."""
    one, several, command = _SAID[kind]
    by = Counter(details).most_common(_SHOWN)
    counted = len(set(details)) < len(details)
    which = ", ".join(f"{detail} {times}" if counted else detail for detail, times in by)
    more = ", …" if len(set(details)) > len(by) else ""
    return f"Switchboard: {count} {one if count == 1 else several} ({which}{more}). See: {command}"


def notice_envelope(to: ChatAddress, text: str, reply_address: JsonObject, request_id: UUID, at: datetime) -> Envelope:
    """The message; `reply_address` is that of a message in the chat, which the notice does not quote."""
    return Envelope(
        schema_version="ingest.v1",
        source=Source(channel=NOTICE, provider=SWITCHBOARD, endpoint_identity=to.account),
        event=Event(
            external_event_id=str(request_id),
            external_thread_id=to.name,
            observed_at=at,
            reply_address={key: value for key, value in reply_address.items() if key != "message"},
        ),
        sender=Sender(identity=SWITCHBOARD),
        payload=Payload(normalized_text=text),
    )
