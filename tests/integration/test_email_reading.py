"""The tools that search and read mailboxes, with real servers: what is found, what is told of it, and to whom."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from itertools import count
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from switchboard.modules.email import connections, looking
from switchboard.modules.email.connections import Deadline
from switchboard.modules.email.looking import MailSearch
from switchboard.modules.email.wanted import WantedMails
from switchboard.ports.people_seen import SeenPerson
from switchboard.testing.modules import CHECKS, ModuleCheck
from tests.mail_servers import PASSWORD, Dovecot, Imap, imap_proxy, running_dovecot, running_pymap
from tests.mailboxes import SECRET, Mailboxes, a_mail, account_at, deliver, names_in, open_mailboxes

DAY: Final = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)
USERS: Final = count()


@pytest.fixture(scope="module")
def dovecot() -> Iterator[Dovecot]:
    with running_dovecot() as server:
        yield server


@dataclass
class Inbox:
    """The mailbox of a user whom no other test knows, as Ann's account, and the household's."""

    server: Imap
    user: str
    boxes: Mailboxes

    def deliver(self, *mails: EmailMessage, folder: str = "INBOX") -> None:
        deliver(self.server, self.user, *mails, folder=folder)


@pytest.fixture
async def inbox(dovecot: Dovecot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Inbox]:
    monkeypatch.setenv(SECRET, PASSWORD)
    user = f"ann{next(USERS)}"
    mine = account_at(dovecot.port, user, writes_as=["Ann@home.example"], trusted_servers=["mx.home.example"])
    async with open_mailboxes({"ann": mine}, tmp_path) as boxes:
        yield Inbox(dovecot, user, boxes)


def boiler() -> EmailMessage:
    first = a_mail("first", "The boiler", "It leaks. When can you come?", DAY)
    first["Authentication-Results"] = "mx.home.example; dmarc=pass header.from=x.example"
    first.add_attachment("drops,3\n", subtype="csv", filename="../leaks \u202e.csv")
    return first


def answer() -> EmailMessage:
    text = "On Friday at 9.\n\nOn Tuesday, Ben wrote:\n> It leaks.\n> When can you come?\n"
    fields = {"from": "Ann <ann@home.example>", "to": "ben@x.example"}
    return a_mail("answer", "Re: The boiler", text, DAY + timedelta(hours=2), answers=["first"], **fields)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_module_passes_the_checks(inbox: Inbox, check: ModuleCheck) -> None:
    inbox.deliver(boiler())
    mail = await inbox.boxes.id_of()
    calls = {"email_search": {"words": "boiler"}, "email_read": {"mail": mail}}
    await check(replace(inbox.boxes.subject, calls={**calls, "email_attachment": {"mail": mail, "number": 1}}))


async def test_a_mail_is_told_with_its_sender_files_and_thread(inbox: Inbox) -> None:
    inbox.deliver(boiler())
    inbox.deliver(answer(), folder="Sent")
    sent, got = (await inbox.boxes.told("search", words="boiler", since="2026-03", until="2026-03"))["mails"]
    assert (sent["folder"], sent["sent_by_the_person"], got["from"]) == ("Sent", True, "Ben <ben@x.example>")
    assert (got["date"], got["has_attachment"]) == ("Tue 2026-03-10 10:30 Europe/Berlin", True)
    assert "sent_by_the_person" not in got
    read = await inbox.boxes.told("read", mail=got["id"])
    assert (read["text"], read["sender_authentication"]) == ("It leaks. When can you come?", "pass")
    assert read["attachments"] == [{"number": 1, "name": "leaks .csv", "type": "text/csv", "size": "9 bytes"}]
    assert names_in(read["thread"]) == ["answer"]
    assert read["thread"][0]["text"] == "On Friday at 9.", "what the person answered is told at once"
    read = await inbox.boxes.told("read", mail=sent["id"])
    assert (read["text"], read["quoted"].split(" lines")[0], names_in(read["thread"])) == (
        "On Friday at 9.",
        "3",
        ["first"],
    )
    assert "text" not in read["thread"][0]
    whole = await inbox.boxes.told("read", mail=sent["id"], quoted=True)
    assert "| > It leaks." in whole["text"]
    assert "quoted" not in whole
    client = inbox.server.login(inbox.user)
    client.select("INBOX", readonly=True)
    assert client.search(None, "UNSEEN")[1] == [b"1"], "what is read here is not marked as read"
    client.logout()


async def test_a_file_of_a_mail_is_text_and_a_file_for_other_tools(inbox: Inbox) -> None:
    first = boiler()
    first.add_attachment(b"%PDF-1.4 offer", maintype="application", subtype="pdf", filename="Angebot.pdf")
    inbox.deliver(first)
    mail = await inbox.boxes.id_of(attachment=True)
    table = await inbox.boxes.told("attachment", mail=mail, number=1)
    assert (table["text"], (inbox.boxes.results / table["file"]).read_text()) == ("drops,3\n", "drops,3\n")
    offer = await inbox.boxes.told("attachment", mail=mail, number=2)
    assert (inbox.boxes.results / offer["file"]).read_bytes() == b"%PDF-1.4 offer"
    assert "text" not in offer
    assert "no attachment 3; it has 2" in await inbox.boxes.refused("attachment", mail=mail, number=3)


async def test_a_long_text_and_html_are_told_in_parts_as_text(inbox: Inbox) -> None:
    page = a_mail("page", "News", "see the page", DAY)
    page.set_content(f"<p>Hello <b>Ann</b><img src=https://evil.example/x>{'wo<!-- -->rd ' * 3000}</p>", subtype="html")
    inbox.deliver(page, a_mail("signed", "S", "x", DAY))
    mail = await inbox.boxes.id_of(subject="News")
    read = await inbox.boxes.told("read", mail=mail)
    assert read["text"].startswith("Hello Ann")
    assert ("evil" in read["text"], len(read["text"]), read["more"]) == (
        False,
        12_000,
        f"{len('Hello Ann') + 15_000 - 1 - 12_000} more characters; go on with start=12000",
    )
    rest = await inbox.boxes.told("read", mail=mail, start=12_000)
    assert ("more" in rest, set(rest["text"].split()) <= {"word", "rd", "ord", "d"}) == (False, True)


# What servers do ------------------------------------------------------------------------------------------------------

WRITTEN: Final = {
    "Heizung": "Die größte Überweisung für den Heizkessel steht noch aus.",
    "ボイラー": "先月のボイラー修理の請求書です。",
    "🎉": "Party 🎉 on Friday",
    "Plain": "nothing but letters",
}
SOUGHT: Final = [
    ({"words": "Überweisung größte"}, ["Heizung"]),
    ({"words": "steht Heizkessel"}, ["Heizung"]),
    ({"words": "ボイラー"}, ["ボイラー"]),
    ({"words": "🎉 friday"}, ["🎉"]),
    ({"subject": "ボイラー", "sender": "björn"}, ["ボイラー"]),
    ({"words": '"but letters"'}, ["Plain"]),
    ({"words": "größte", "sender": "nobody"}, []),
    ({"sender": 'a"b\\c'}, []),
]


def refuse_charsets(line: bytes) -> bytes | None:
    """As Exchange does, and with BAD as others do."""
    said = b"{tag} BAD what is that?\r\n" if b"{9}" in line else b"{tag} NO [BADCHARSET (US-ASCII)] no\r\n"
    return said if b" CHARSET " in line.upper() else None


@pytest.fixture(params=["dovecot", "pymap", "no charsets"])
async def written(
    request: pytest.FixtureRequest, dovecot: Dovecot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Mailboxes]:
    monkeypatch.setenv(SECRET, PASSWORD)
    with ExitStack() as stack:
        server: Imap = stack.enter_context(running_pymap()) if request.param == "pymap" else dovecot
        refuses = request.param == "no charsets"
        port = stack.enter_context(imap_proxy(server, refuse_charsets)) if refuses else server.port
        user = "bot" if request.param == "pymap" else f"ann{next(USERS)}"
        sender = {"from": "Björn <b@x.example>"}
        deliver(server, user, *(a_mail(f"m{n}", one, WRITTEN[one], DAY, **sender) for n, one in enumerate(WRITTEN)))
        async with open_mailboxes({"ann": account_at(port, user)}, tmp_path) as boxes:
            yield boxes


async def test_every_script_is_searched_for_whatever_the_server_takes(
    written: Mailboxes, request: pytest.FixtureRequest
) -> None:
    refuses = "no charsets" in request.node.name
    for wanted, subjects in SOUGHT:
        found = await written.told("search", since="2026", until="2026", **wanted)
        assert [one["subject"] for one in found["mails"]] == subjects, wanted
        assert ("approximate" in found) == (refuses and not all(one.isascii() for one in wanted.values())), wanted


async def test_a_mail_is_found_again_when_its_folder_was_made_anew(inbox: Inbox) -> None:
    mails = [a_mail(name, name, f"about {name}", DAY) for name in ("one", "two")]
    inbox.deliver(*mails, folder="Work")
    ids = {name: await inbox.boxes.id_of(subject=name, folder="Work") for name in ("one", "two")}
    client = inbox.server.login(inbox.user)
    client.delete("Work")
    client.create("Work")
    client.logout()
    inbox.deliver(mails[1], folder="Work")
    inbox.deliver(mails[0])
    for name in ("one", "two"):
        read = await inbox.boxes.told("read", mail=ids[name])
        assert (read["text"], read["id"] != ids[name]) == (f"about {name}", True)
    without = ids["one"].rpartition("/")[0] + "/"
    assert "not there any more" in await inbox.boxes.refused("read", mail=without)


async def test_days_are_those_of_the_person_by_the_date_of_the_mail(inbox: Inbox) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    late = datetime(2026, 2, 28, 23, 50, tzinfo=berlin)
    early = a_mail("early", "early", "x", late + timedelta(minutes=20))
    undated = a_mail("undated", "undated", "x")
    inbox.deliver(a_mail("late", "late", "x", late), early, undated)
    assert await inbox.boxes.subjects(since="2026-02", until="2026-02") == ["late"]
    assert await inbox.boxes.subjects(since="2026-03-01", until="2026-03-01") == ["early"]
    assert await inbox.boxes.subjects(since="today") == ["undated"]
    assert "before the first" in await inbox.boxes.refused("search", since="2026-03", until="2026-02")
    assert "write a day" in await inbox.boxes.refused("search", since="whenever")


async def test_many_mails_come_in_pages_and_too_many_are_counted(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "PAGE", 5)
    mails = [a_mail(f"n{n}", f"n{n}", "x", DAY + timedelta(hours=n)) for n in range(12)]
    inbox.deliver(*mails)
    inbox.deliver(*mails[-3:], folder="Sent")
    pages, starts = [], [0]
    for start in starts:
        found = await inbox.boxes.told("search", start=start)
        pages.append(found["mails"])
        starts += [found["next"]] if "next" in found else []
    assert [len(page) for page in pages] == [5, 5, 2]
    assert [one["subject"] for page in pages for one in page] == [f"n{n}" for n in reversed(range(12))]
    monkeypatch.setattr(looking, "MOST_LISTED", 10)
    found = await inbox.boxes.told("search")
    assert (found["found"], found["per_month"], "mails" in found) == (15, {"2026-03": 15}, False)


async def test_what_a_server_does_not_say_in_time_is_told_as_missing(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "COMMAND_S", 3.0)
    inbox.deliver(boiler())
    opened: list[bytes] = []

    def silent_in_sent(line: bytes) -> bytes | None:
        opened.extend([line] if b"EXAMINE" in line else [])
        return b"" if b"SEARCH" in line and b"Sent" in opened[-1] else None

    with imap_proxy(inbox.server, silent_in_sent) as port:
        boxes = inbox.boxes.module
        account = replace(boxes.held.accounts["ann"], imap=replace(boxes.held.accounts["ann"].imap, port=port))
        search = MailSearch(boxes.connections, boxes.contents, WantedMails(), ZoneInfo("UTC"), Deadline())
        found = json.loads(json.dumps(await search.search({"ann": account}, 0)))
    assert found["problems"]["ann"][0].startswith("not searched: Sent: the mail server took too long")
    assert names_in(found["mails"]) == ["first"]


# Who is told ----------------------------------------------------------------------------------------------------------


async def test_only_those_whose_mailbox_it_is_are_told_anything(
    dovecot: Dovecot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET, PASSWORD)
    users = {name: f"{name}{next(USERS)}" for name in ("ann", "bob", "home")}
    whose = {"ann": {"person": "ann"}, "bob": {"person": "bob"}, "home": {"group": "family"}}
    accounts = {name: account_at(dovecot.port, users[name], **whose[name]) for name in users}
    for name, user in users.items():
        deliver(dovecot, user, a_mail(name, f"secret of {name}", "x", DAY))
    async with open_mailboxes(accounts, tmp_path) as boxes:
        ids: dict[str, str] = {}
        for seen, own in (
            (SeenPerson("ann", frozenset({"family"}), private=True), {"ann", "home"}),
            (SeenPerson("bob", private=True), {"bob"}),
            (SeenPerson("cem", frozenset({"family"}), private=True), {"home"}),
            (SeenPerson(household=True, private=True), {"home"}),
            (SeenPerson("ann", frozenset({"family"})), set[str]()),
            (SeenPerson(private=True), set[str]()),
        ):
            boxes.people.seen = seen
            outcome = await boxes.call("search")
            assert outcome.ok == bool(own)
            found = json.loads(outcome.text)["mails"] if outcome.ok else []
            ids |= {one["id"].partition("/")[0]: one["id"] for one in found}
            assert {one["id"].partition("/")[0] for one in found} == own
            for name, mail in ids.items():
                for tool in ({"mail": mail}, {"mail": mail, "number": 1}):
                    told = await boxes.call("attachment" if "number" in tool else "read", **tool)
                    assert (name in own) == (told.ok or "no attachment 1" in told.text), (seen, name)
                    assert name in own or "secret" not in told.text
