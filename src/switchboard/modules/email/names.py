"""The ids of mails, as the tools tell and take them: `ann/INBOX/1764460800.42/abc@x.example`. Pure.

A mail is known by its Message-ID. Where it was found, folder, UIDVALIDITY and UID, is a hint: servers number mails
again, and people move them. `looking.py` makes ids; `locating.py` finds the mails that they name.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

from msgspec import Struct

_ID: Final = re.compile(r"([a-z0-9][a-z0-9-]{0,39})/([^/]{1,600})/(\d{1,10})\.(\d{1,10})/([^<>\s]{0,300})")
_MESSAGE_ID: Final = re.compile(r"<([\x21-\x3b\x3d\x3f-\x7e]{1,300})>")
"""With other characters, strangers could hide something in an id."""


class MailPlace(Struct, frozen=True):
    """Where a mail is at present. `validity`: the UIDVALIDITY of its folder."""

    folder: str
    validity: int
    uid: int


class MailId(Struct, frozen=True):
    """A mail of an account. `message_id` is empty if it has none, and without brackets."""

    account: str
    place: MailPlace
    message_id: str

    @property
    def text(self) -> str:
        """As tools tell it."""
        place = self.place
        return f"{self.account}/{quote(place.folder, safe=' ')}/{place.validity}.{place.uid}/{self.message_id}"


def read_mail_id(text: str) -> MailId | None:
    """The id that a model has written; None if it is none."""
    found = _ID.fullmatch(text.strip())
    if found is None:
        return None
    account, folder, validity, uid, message_id = found.groups()
    return MailId(account, MailPlace(unquote(folder), int(validity), int(uid)), message_id)


def message_ids_in(field: str) -> tuple[str, ...]:
    """The ids in a field such as Message-ID or References, without brackets."""
    return tuple(_MESSAGE_ID.findall(field[:20_000]))
