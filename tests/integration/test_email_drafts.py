"""Drafts in a mailbox on a real server: one for each step, changed without a trace, and nothing else removed."""

from __future__ import annotations

import imaplib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from itertools import count
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from msgspec.structs import replace

from switchboard.transport.mail_servers.mailbox import Mailbox
from tests.address_book import AddressBook
from tests.mail_servers import PASSWORD, Dovecot, running_dovecot
from tests.mailboxes import SECRET, Mailboxes, a_mail, account_at, deliver, open_mailboxes

USERS: Final = count()
FOLDER: Final = "Unsent"
DRAFT: Final = {"to": ["ben@x.example"], "bcc": ["eva@x.example"], "subject": "Boiler", "text": "It leaks. Grüße"}


@pytest.fixture(scope="module")
def dovecot() -> Iterator[Dovecot]:
    with running_dovecot() as server:
        yield server


@dataclass
class Drafts:
    """Ann's mailbox with a folder for drafts, and the module."""

    server: Dovecot
    user: str
    boxes: Mailboxes

    def login(self) -> imaplib.IMAP4:
        client = self.server.login(self.user)
        client.select(FOLDER)
        return client

    def found(self) -> list[tuple[str, EmailMessage]]:
        """The flags and the content of what is there."""
        client = self.login()
        numbers = client.search(None, "ALL")[1][0].split()
        fetched = [client.fetch(number.decode(), "(FLAGS BODY.PEEK[])")[1][0] for number in numbers]
        client.logout()
        return [(one[0].decode(), _parsed(one[1])) for one in fetched if isinstance(one, tuple)]


def _parsed(raw: bytes) -> EmailMessage:
    found = message_from_bytes(raw, policy=default)
    assert isinstance(found, EmailMessage)
    return found


@pytest.fixture
async def drafts(dovecot: Dovecot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Drafts]:
    monkeypatch.setenv(SECRET, PASSWORD)
    user = f"ann{next(USERS)}"
    client = dovecot.login(user)
    client.create(FOLDER)
    client.logout()
    mine = account_at(dovecot.port, user, writes_as=["ann@home.example"])
    async with open_mailboxes({"ann": mine}, tmp_path) as boxes:
        yield Drafts(dovecot, user, boxes)


async def test_a_draft_is_kept_once_however_often_its_step_is_repeated(drafts: Drafts, tmp_path: Path) -> None:
    (tmp_path / "plan.pdf").write_bytes(b"%PDF-1")
    key = uuid4()
    told = [await drafts.boxes.told("draft", key=key, **DRAFT, files=["plan.pdf"]) for _ in range(2)]
    assert told[0] == told[1]
    assert told[0]["draft"].startswith(f"ann/{FOLDER}/")
    [(flags, draft)] = drafts.found()
    assert "\\Draft" in flags
    assert "\\Seen" in flags
    assert (draft["from"], draft["to"], draft["bcc"]) == ("ann@home.example", "ben@x.example", "eva@x.example")
    text, file = draft.iter_parts()
    assert text.get_content().strip() == "It leaks. Grüße"
    assert (file.get_filename(), file.get_content()) == ("plan.pdf", b"%PDF-1")


async def test_an_answer_is_drafted_in_its_thread_and_to_its_sender_alone(drafts: Drafts) -> None:
    fields = {"to": "ann@home.example, cat@x.example", "cc": "dan@x.example", "reply-to": "office@x.example"}
    deliver(
        drafts.server, drafts.user, a_mail("first", "The boiler", "It leaks.", answers=["zero"], sent=None, **fields)
    )
    mail = await drafts.boxes.id_of()
    await drafts.boxes.told("draft", text="On Friday.", answers=mail)
    await drafts.boxes.told("draft", text="On Friday.", answers="<first@x.example>", everybody=True)
    one, all_of_them = (draft for _, draft in drafts.found())
    for draft in (one, all_of_them):
        assert (draft["subject"], draft["in-reply-to"]) == ("Re: The boiler", "<first@x.example>")
        assert draft["references"] == "<zero@x.example> <first@x.example>"
        assert draft["to"] == "office@x.example"
    assert (one["cc"], all_of_them["cc"]) == (None, "cat@x.example, dan@x.example")


async def test_a_changed_draft_takes_the_place_of_the_older_one_alone(drafts: Drafts) -> None:
    deliver(drafts.server, drafts.user, a_mail("theirs", "Theirs", "x"), folder=FOLDER)
    client = drafts.login()
    client.store("1", "+FLAGS", "(\\Deleted)")
    client.logout()  # not by CLOSE, which would expunge it
    older = (await drafts.boxes.told("draft", **DRAFT))["draft"]
    key = uuid4()
    newer = [await drafts.boxes.told("draft", key=key, **{**DRAFT, "text": "New"}, replaces=older) for _ in range(2)]
    assert newer[0] == newer[1]
    assert [draft["subject"] for _, draft in drafts.found()] == ["Theirs", "Boiler"]
    assert drafts.found()[1][1].get_content().strip() == "New"


@pytest.mark.parametrize("died_after", ["append", "open"])
async def test_a_change_that_is_interrupted_is_completed(
    drafts: Drafts, monkeypatch: pytest.MonkeyPatch, died_after: str
) -> None:
    """Between the new draft and the removal of the older one, both are there; never neither."""
    older = (await drafts.boxes.told("draft", **DRAFT))["draft"]
    key, change = uuid4(), {**DRAFT, "text": "New", "replaces": older}

    def die(*_: object, **__: object) -> bool:
        raise ConnectionError("the connection was lost")

    with monkeypatch.context() as broken:
        if died_after == "append":
            broken.setattr(Mailbox, "remove", die)
        else:
            broken.setattr(Mailbox, "append", die)
        await drafts.boxes.refused("draft", key=key, **change)
    assert len(drafts.found()) == (2 if died_after == "append" else 1)
    await drafts.boxes.told("draft", key=key, **change)
    [(_, draft)] = drafts.found()
    assert draft.get_content().strip() == "New"


async def test_only_a_draft_that_is_there_is_replaced(drafts: Drafts) -> None:
    deliver(drafts.server, drafts.user, a_mail("first", "The boiler", "It leaks."))
    mail = await drafts.boxes.id_of()
    gone = f"ann/{FOLDER}/1.1/{'a' * 40}@x.example"
    for replaces, said in ((mail, "the id of a draft"), (gone, "not there any more"), ("x", "the id of a draft")):
        assert said in await drafts.boxes.refused("draft", **DRAFT, replaces=replaces)
    assert drafts.found() == []


async def test_what_the_person_has_drafted_is_not_replaced(drafts: Drafts) -> None:
    """Nobody is asked about a draft, so that a mail which gives orders could remove what somebody is writing."""
    deliver(drafts.server, drafts.user, a_mail("theirs", "My own words", "x"), folder=FOLDER)
    client = drafts.login()
    [validity] = client.response("UIDVALIDITY")[1]
    client.logout()
    assert isinstance(validity, bytes)
    for name in ("theirs@x.example", f'{"a" * 40}@x.example"'):
        own = f"ann/{FOLDER}/{validity.decode()}.1/{name}"
        assert "the person's own" in await drafts.boxes.refused("draft", **DRAFT, replaces=own)
    assert [draft["subject"] for _, draft in drafts.found()] == ["My own words"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"to": ["Ben"]}, "no contacts here to look up 'Ben'"),
        ({"subject": "a\nBcc: eve@x.example"}, "one line"),
        ({"sender": "eve@x.example"}, "cannot be written from 'eve@x.example'"),
        ({"files": ["../secret"]}, "cannot contain '..'"),
        ({"files": ["nothing.txt"]}, "does not exist"),
        ({"answers": "ann/INBOX/1.1/none@x.example"}, "not there"),
        ({"answers": "bob/INBOX/1.1/none@x.example"}, "not there"),
        ({"everybody": True}, "is for answers without"),
        ({"text": " "}, "a text"),
    ],
)
async def test_what_cannot_be_meant_is_not_written(drafts: Drafts, wrong: dict[str, Any], said: str) -> None:
    assert said in await drafts.boxes.refused("draft", **{**DRAFT, **wrong})
    assert drafts.found() == []


async def test_a_name_that_two_contacts_have_is_asked_about_and_never_guessed(drafts: Drafts) -> None:
    boxes = drafts.boxes
    boxes.module = replace(boxes.module, contacts=AddressBook())
    for names in (["Ben"], ["Noor", "Ben"]):
        said = await boxes.refused("draft", **{**DRAFT, "to": names})
        assert "Ben Ado (ben@ado.example, id home/b/1); Ben Ruiz (ben@ruiz.example, id home/b/2)" in said
    assert drafts.found() == []
    await boxes.told("draft", **{**DRAFT, "to": ["home/b/2", "noor"]})
    [(_, draft)] = drafts.found()
    assert draft["to"] == "ben@ruiz.example, noor@home.example"


async def test_a_mailbox_without_a_folder_for_drafts_is_left_alone(
    dovecot: Dovecot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET, PASSWORD)
    mine = account_at(dovecot.port, f"ann{next(USERS)}", writes_as=["ann@home.example"])
    async with open_mailboxes({"ann": mine}, tmp_path) as boxes:
        assert "no folder for drafts" in await boxes.refused("draft", **DRAFT)
