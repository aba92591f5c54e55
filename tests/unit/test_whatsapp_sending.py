"""Parts as messages of the Graph API, refusals as outcomes; and what makes a webhook Meta's."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

import pytest

from switchboard.connectors.kernel.requests import NotAnswered, NotWritten
from switchboard.connectors.whatsapp.asked import PeopleAsked
from switchboard.connectors.whatsapp.graph import GraphClient, GraphRefusal
from switchboard.connectors.whatsapp.hook import challenge_word, hook_of
from switchboard.connectors.whatsapp.manifest import MANIFEST
from switchboard.connectors.whatsapp.memory import NumberCursor, NumberMemory
from switchboard.connectors.whatsapp.moves import NumberMove
from switchboard.connectors.whatsapp.sending import (
    destination_of,
    file_message,
    kind_of_file,
    outcome_of_failure,
    outcome_of_upload,
    text_message,
)
from switchboard.connectors.whatsapp.settings import GRAPH_URL, MEDIA_HOST, MIB, WINDOW_S, WhatsAppAccountSettings
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import ReplyChoice
from switchboard.ports.connector import Account, FileOut, Later, Outcome, Part, Posted, Refused, Uncertain

NOW: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
ADDRESS: Final[JsonObject] = {"to": "49301", "recipient": "DE.7", "message": "wamid.A", "at": 1}
CHOICES: Final = (ReplyChoice("Yes", "v1"), ReplyChoice("No", "v2"))


async def nothing() -> AsyncIterator[bytes]:
    yield b""


def file_of(media_type: str, size: int = 1) -> FileOut:
    return FileOut("a.x", media_type, size, nothing)


def part(
    text: str = "hi",
    *,
    choices: tuple[ReplyChoice, ...] | None = None,
    files: tuple[FileOut, ...] = (),
    rendered: JsonObject | None = None,
) -> Part:
    return Part(address=ADDRESS, text=text, choices=choices, files=files, rendered=rendered)


def test_a_phone_goes_before_an_id_which_never_takes_its_place() -> None:
    assert destination_of(ADDRESS) == {"to": "49301"}
    assert destination_of({"recipient": "DE.7"}) == {"recipient": "DE.7"}
    assert destination_of({}) is None


def test_texts_show_no_preview_and_carry_the_key() -> None:
    body = text_message(part(rendered={"whatsapp": "*hi*"}), "key:0")
    assert body["text"] == {"body": "*hi*", "preview_url": False}
    assert (body["to"], body["biz_opaque_callback_data"], "context" in body) == ("49301", "key:0", False)


@pytest.mark.parametrize(("text", "kind"), [("May I?", "interactive"), ("x" * 1025, "text")])
def test_buttons_stand_below_texts_that_are_short_enough(text: str, kind: str) -> None:
    body = text_message(part(text, choices=CHOICES), "key:0")
    assert body["type"] == kind
    if kind == "interactive":
        titles = [one["reply"] for one in body["interactive"]["action"]["buttons"]]
        assert titles == [{"id": "v1", "title": "Yes"}, {"id": "v2", "title": "No"}]


@pytest.mark.parametrize(
    ("media_type", "size", "kind", "about"),
    [
        ("image/jpeg", 5 * MIB, "image", {"caption": "hi"}),
        ("image/png", 5 * MIB + 1, "document", {"caption": "hi", "filename": "a.x"}),
        ("video/mp4", 1, "video", {"caption": "hi"}),
        ("audio/ogg; codecs=opus", 1, "audio", {"voice": True}),
        ("audio/mpeg", 16 * MIB, "audio", {}),
        ("application/zip", 1, "document", {"caption": "hi", "filename": "a.x"}),
        ("image/webp", 1, "document", {"caption": "hi", "filename": "a.x"}),
    ],
)
def test_files_are_shown_as_what_they_are(media_type: str, size: int, kind: str, about: JsonObject) -> None:
    file = file_of(media_type, size)
    assert kind_of_file(file) == kind
    assert file_message(part(files=(file,)), "key:0", kind, "77")[kind] == {"id": "77", **about}


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NotWritten("no"), Later(2.0, "no")),
        (NotAnswered("no"), Uncertain("no")),
        (GraphRefusal(4, "many"), Later(60.0, "many (4)", account=True)),
        (GraphRefusal(80007, "many"), Later(60.0, "many (80007)", account=True)),
        (GraphRefusal(130429, "many"), Later(5.0, "many (130429)", account=True)),
        (GraphRefusal(131056, "many"), Later(64.0, "many (131056)")),
        (GraphRefusal(131016, "away"), Later(15.0, "away (131016)")),
        (GraphRefusal(0, "HTTP 429", 0, 429), Later(15.0, "HTTP 429")),
        (GraphRefusal(131000, "odd"), Uncertain("odd (131000)")),
        (GraphRefusal(131051, "odd"), Refused("odd (131051)", "other")),
    ],
    ids=str,
)
def test_what_becomes_of_a_part(error: GraphRefusal | NotWritten | NotAnswered, outcome: Outcome) -> None:
    assert outcome_of_failure(error, part(), 2) == outcome


@pytest.mark.parametrize("code", [10, 200, 190, 368, 131031, 131042, 133010])
def test_what_a_person_must_change_loses_no_reply_and_is_said_in_words(code: int) -> None:
    outcome = outcome_of_failure(GraphRefusal(code, "odd words"), part(), 0)
    assert isinstance(outcome, Later)
    assert outcome.account
    told = outcome.reason
    assert told.startswith(("Meta ", "the ")), told
    assert f"odd words ({code})" in told


def test_a_refusal_says_what_could_help() -> None:
    wrong = GraphRefusal(131009, "wrong")
    assert [
        outcome_of_failure(GraphRefusal(131026, ""), part(), 0),
        outcome_of_failure(wrong, part(choices=CHOICES), 0),
        outcome_of_failure(wrong, part(files=(file_of("a/b"),), rendered={"whatsapp": "*hi*"}), 0),
    ] == [
        Refused(
            "WhatsApp cannot deliver to this person, who may have blocked the number or have no WhatsApp "
            "(Meta: error 131026)",
            "blocked",
        ),
        Refused("wrong (131009)", "markup"),
        Refused("wrong (131009)", "other"),
    ]


def test_an_upload_without_an_answer_is_tried_again_as_nobody_sees_it() -> None:
    with_file = part(files=(file_of("a/b"),))
    assert outcome_of_upload(NotAnswered("no"), with_file) == Later(15.0, "no")
    assert outcome_of_upload(GraphRefusal(100, "type"), with_file) == Refused("type (100)", "other")


@pytest.mark.parametrize(
    ("api_url", "gets"),
    [(GRAPH_URL, True), (f"{GRAPH_URL}/", True), (f"{GRAPH_URL}.example", False), ("http://graph.facebook.com", False)],
)
async def test_the_host_of_metas_files_gets_the_token_if_the_api_is_metas(api_url: str, *, gets: bool) -> None:
    client = GraphClient(WhatsAppAccountSettings(phone_number_id="12345", api_url=api_url), "token")
    assert client.may_get_token(f"https://{MEDIA_HOST}/x") == gets
    await client.close()


@pytest.mark.parametrize(
    "url",
    [
        "https://elsewhere.example/x",
        "http://lookaside.fbsbx.com/x",
        "https://lookaside.fbsbx.com:444/x",
        "https://lookaside.fbsbx.com.elsewhere.example/x",
        "https://lookaside.fbsbx.com@elsewhere.example/x",
        "https://[/",
    ],
)
async def test_a_token_is_not_given_to_another_host_than_metas(url: str) -> None:
    settings = MANIFEST.settings.model_validate({"phone_number_id": "12345"})
    assert isinstance(settings, WhatsAppAccountSettings)
    client = GraphClient(settings, "token")
    with pytest.raises(ValueError, match="gets no token"):
        async with client.download(url):
            pass
    await client.close()


# The hook -------------------------------------------------------------------------------------------------------------


def account(signed: str = "secret", name: str = "house") -> Account:
    settings = MANIFEST.settings.model_validate({"phone_number_id": "12345"})
    return Account(name, settings, {"token": "t", "app_secret": f"{signed}\n"}, "https://x.example/hooks/house")


def test_the_challenge_is_answered_to_who_knows_the_word_of_the_account() -> None:
    hook = hook_of(account())
    assert hook is not None
    assert (hook.endpoint, hook.read) == ("12345", None)
    assert hook.challenge is not None
    right = {"hub.mode": "subscribe", "hub.challenge": "42", "hub.verify_token": challenge_word(account())}
    assert hook.challenge(account(), right, NOW) == "42"
    for wrong in (
        {"hub.mode": "x"},
        {"hub.challenge": "x" * 513},
        {"hub.verify_token": "\udcff"},
        {"hub.challenge": ""},
    ):
        assert hook.challenge(account(), right | wrong, NOW) is None
    assert len({challenge_word(one) for one in (account(), account("other"), account(name="other"))}) == 3


@pytest.mark.parametrize("body", [b'{"a":"\\u00e9"}', b""])
def test_a_signature_is_of_the_bytes_as_they_came(body: bytes) -> None:
    hook = hook_of(account())
    assert hook is not None
    right = f"sha256={hmac.digest(b'secret', body, 'sha256').hex()}"
    assert hook.verify(account(), Posted(body, {"x-hub-signature-256": right}), NOW) is None
    for given in ("", "sha256=00", right.upper(), "\udcff"):
        why = hook.verify(account(), Posted(body, {"x-hub-signature-256": given} if given else {}), NOW)
        assert why is not None
        assert "secret" not in why.replace("app secret", "")
    assert hook.verify(account(), Posted(body + b" ", {"x-hub-signature-256": right}), NOW) is not None


# What is remembered ---------------------------------------------------------------------------------------------------


def test_the_window_is_closed_only_if_nothing_can_have_been_written_since() -> None:
    memory = NumberMemory(since=1000.0)
    later = 1000.0 + WINDOW_S
    assert not memory.is_window_closed(("DE.7",), 999.0, later), "an earlier process may have heard more"
    assert memory.is_window_closed(("DE.7",), 1000.0, later)
    memory.note_written(ADDRESS, "DE.7", 1500.0)
    assert not memory.is_window_closed(("DE.7",), 1000.0, later)
    assert memory.is_window_closed(("49301",), 1000.0, later + 500.0)


def test_what_meta_has_closed_is_open_once_the_person_writes() -> None:
    memory = NumberMemory(since=1000.0)
    memory.note_closed(("DE.7", "49301"))
    assert memory.is_window_closed(("49301",), 999.0, 1000.0)
    memory.note_written(ADDRESS, "DE.7", 1000.0)
    assert not memory.is_window_closed(("49301",), 999.0, 1000.0)


def test_a_number_is_of_who_has_written_last_in_whatever_order_it_arrives() -> None:
    memory = NumberMemory(since=0.0)
    memory.note_written({"to": "49301", "recipient": "DE.EVE"}, "DE.EVE", 2000.0)
    memory.note_written(ADDRESS, "DE.7", 1000.0)
    assert destination_of(memory.address_now(ADDRESS)) == {"recipient": "DE.7"}
    assert memory.phones["49301"] == "DE.EVE"


def test_who_was_asked_and_what_was_billed_outlives_the_process() -> None:
    memory = NumberMemory(since=0.0)
    assert memory.asked.note(("DE.7", "49301"), 100_000.0)
    for wamid in ("wamid.A", *(f"wamid.{number}" for number in range(400)), "wamid.A", "wamid.B"):
        memory.note_billed(wamid, NOW)
    after = NumberMemory(since=5.0)
    after.restore(NumberCursor.read(memory.cursor(7)))
    asked = [after.asked.was_asked((name,), 150_000.0) for name in ("DE.7", "49301", "DE.8")]
    assert asked == [True, True, False]
    assert after.asked.was_asked(("DE.7",), 100_000.0 + WINDOW_S - 1)
    assert not after.asked.was_asked(("DE.7",), 100_000.0 + WINDOW_S + 3600)
    after.note_billed("wamid.B", NOW)
    assert after.counters() == {"billed in 2026-01": 402}
    assert NumberCursor.read(memory.cursor(7)).posted == 7
    assert NumberCursor.read("another form") == NumberCursor()
    assert len(NumberCursor.read(None).counted) == 0


def test_nobody_is_forgotten_for_others_who_are_asked() -> None:
    asked = PeopleAsked()
    people = [(f"DE.{number}", f"49{number}") for number in range(2000)]
    noted = [one for number, one in enumerate(people) if asked.note(one, 40.0 * number)]
    assert len(noted) == len(people) - 500, "others are not asked until there is room, a day later"
    assert [one for one in people if asked.was_asked(one, 40.0 * 1499)] == people[:1500]


def test_a_cursor_stays_smaller_than_the_server_takes() -> None:
    memory = NumberMemory(since=0.0)
    for number in range(2000):
        memory.asked.note((f"DE.{number:030}", f"49{number:018}"), 40.0 * number)
        memory.note_billed(f"wamid.{number}", NOW)
        memory.note_move(NumberMove((f"{number:0128}", f"49{number:018}"), "4" * 20, "D" * 128, 10**10 + number))
    assert len(memory.cursor(10**15)) < 65_536
    assert memory.counters() == {"billed in 2026-01": 2000}
