"""The laws of passages: no word is missing, and nothing at or below a sign of others is the sender's own."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, datetime
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from switchboard.core.envelope.read import read_envelope
from switchboard.core.envelope.stored import stored_envelope, stored_json, with_texts
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.core.mail.passages import passages_of_text as passages_of_text_of_mail
from switchboard.core.mail.passages import passages_of_texts
from switchboard.core.mail.reading import Reading
from switchboard.core.mail.texts import MailText
from switchboard.core.passages.fitting import fitting
from switchboard.core.passages.own import JOINT, has_others_words, joined, own_text, part_of, passages_of
from switchboard.core.passages.plain import MailFacts, answering, passages_of_lines, passages_of_text, tags_of
from switchboard.core.turns.entries import entry_of
from switchboard.domain.envelope import MAX_PASSAGES, MAX_TEXT, Envelope, Passage
from switchboard.domain.errors import InvalidInput
from switchboard.ports.chat import is_called, words_of_sender
from switchboard.ports.surroundings import RecordedText
from switchboard.testing.engines import a_turn
from tests.unit.test_hypertext import calls

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)

SIGNS = (
    "On 27 Nov 2026, at 16:00, Desk <desk@home.example> wrote:",
    "Am Fr., 27. Nov. 2026 um 16:00 Uhr schrieb Desk <\ndesk@home.example>:",
    "2026年11月27日(金) 16:00 Desk <desk@home.example>:",
    "пт, 27 нояб. 2026 в 16:00, Desk <desk@home.example>:",
    "W dniu 2026-11-27 16:00, Desk napisał(a):",
    "-----Original Message-----",
    "---------- Forwarded message ---------",
    "Début du message transféré :",
    "From: Shop <shop@store.example>\nSent: Friday, November 27, 2026 10:00 AM\nTo: Ann\nSubject: Invoice",
    "Von: Laden\nGesendet: Freitag\nBetreff: Rechnung",
    "差出人: 店 <shop@store.example>\n送信日時: 2026年11月27日 10:00\n件名: 請求書",
    "Ismeretlen: bolt@store.example\nEkkor: 2026.11.27 10:00\nEz: számla",
    "> quoted",
    "\u200b> quoted",
    "\t&gt; quoted",
)
"""Each says that words of others follow, or is one."""
OWN = (
    "Please pay this by Friday.",
    "On your own machine you can try:",
    "Name: Berlin",
    "- one, two: three",
    "2 > 1",
    "Grüße, 山田",
    "--",
    "----",
    "",
    "   ",
)
UNMARKED = ("The sum is 45 euro.", "RUN THIS", "", "-- ", "Thanks: many")

own_lines = st.lists(st.sampled_from(OWN), max_size=4)
other_lines = st.lists(st.sampled_from((*SIGNS, *UNMARKED)), max_size=8)
mails = st.tuples(own_lines, st.none() | st.sampled_from(SIGNS), other_lines)
all_facts = st.builds(MailFacts, answers=st.none() | st.just("<m1@x>"), forwards=st.booleans())


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


@given(mails, all_facts)
def test_no_word_is_missing_and_nothing_from_the_first_sign_on_is_own(
    mail: tuple[list[str], str | None, list[str]], facts: MailFacts
) -> None:
    above, sign, below = mail
    own = "\n".join((*above, ""))
    lines = (own if sign is None else "\n".join((own, sign, *below))).split("\n")
    tags = tags_of(lines, (), facts)
    found = answering(passages_of_lines(lines, tags), tags, facts)
    assert words(joined(found)) == words("\n".join(lines))
    assert words(own_text(found)) == words(own)
    history = [n for n, one in enumerate(found) if one.refers_to]
    assert not history or history == [len(found) - 1]
    assert not history or (facts.answers and not facts.forwards and found[-1].kind == "quoted")


@given(st.text(alphabet="ab> :\n\t-_.<@1\u200b\u00a0年月日"), all_facts)
def test_no_word_of_any_text_is_missing(text: str, facts: MailFacts) -> None:
    lines = text.split("\n")
    assert words(joined(passages_of_lines(lines, tags_of(lines, (), facts)))) == words(text)
    assert words(joined(passages_of_text(text))) == words(text)


@given(mails, mails)
def test_a_line_is_own_only_if_neither_form_calls_it_others(
    plain: tuple[list[str], str | None, list[str]], html: tuple[list[str], str | None, list[str]]
) -> None:
    text = "\n".join((".", *plain[0], *filter(None, (plain[1],)), *plain[2]))
    shown = "".join(f"<p>{line.replace('<', '&lt;')}</p>" for line in html[0])
    quoted = "".join(f"<p>{line.replace('<', '&lt;')}</p>" for line in html[2])
    source = f"{shown}<blockquote>{quoted or '.'}</blockquote>"
    both = passages_of_text_of_mail(MailText(text, source), MailFacts("<m1@x>"), Reading())
    alone = passages_of_text_of_mail(MailText(text), MailFacts("<m1@x>"), Reading())
    assert words(joined(both)) == words(text)
    assert set(words(own_text(both))) <= set(words(own_text(alone)))
    others = set(words(" ".join(html[2]))) - set(words(" ".join(html[0])))
    assert not others & set(words(own_text(both))), "what only the quotation of the HTML has is not own"


@pytest.mark.parametrize(
    ("html", "kinds"),
    [
        ("<p>Yes.</p><blockquote>a</blockquote>", ["own", "quoted"]),
        ("<p>Yes.</p><blockquote>a</blockquote><p>b</p>", ["own", "quoted", "between"]),
        ("<p>Yes.</p><div class='gmail_quote'>a<blockquote>b</blockquote></div>", ["own", "between", "quoted"]),
        ("<p>Yes.</p><div class='x_gmail_attr'>who knows</div><blockquote>b</blockquote>", ["own", "quoted"]),
        ("<p>Yes.</p><div id='appendonsend'></div><p>a</p><p>b</p>", ["own", "quoted"]),
        ("<p>Yes.</p><div id='x_divRplyFwdMsg'>A: b</div><p>b</p>", ["own", "quoted"]),
        ("<p>Yes. <span class='gmail_quote'>a</span></p><p>b</p>", ["between"]),
        ("<blockquote type='cite'>Please do this.</blockquote>", ["quoted"]),
        ("<blockquote style='display:none'>hidden</blockquote><p>Yes.</p>", ["own"]),
        ("<table><tr><td><blockquote>a</table><p>b", ["quoted", "between"]),
    ],
)
def test_elements_that_hold_words_of_others(html: str, kinds: list[str]) -> None:
    assert [
        one.kind
        for one in passages_of_text_of_mail(MailText(html, html, rendered=True), MailFacts("<m1@x>"), Reading())
    ] == kinds


SHARED = "<blockquote type='cite'>Please do this.</blockquote>"


def test_a_mail_that_is_all_one_quotation_may_be_the_senders() -> None:
    [one] = passages_of_text_of_mail(MailText(SHARED, SHARED, rendered=True), MailFacts(), Reading())
    assert one.kind == "between"


def test_a_text_behind_others_words_is_not_own() -> None:
    texts = [MailText("Look:"), MailText("> a"), MailText("Do it.")]
    kinds = [one.kind for one in passages_of_texts(texts, MailFacts("<m@x>"), Reading())]
    assert kinds == ["own", "quoted", "between"]


@given(
    st.lists(
        st.tuples(st.sampled_from(("own", "between", "quoted", "forwarded")), st.integers(1, MAX_TEXT // 2)),
        min_size=1,
        max_size=9,
    )
)
def test_passages_fit_into_a_message(given_: list[tuple[str, int]]) -> None:
    passages = [msgspec.convert({"kind": kind, "text": "x" * size}, Passage) for kind, size in given_]
    kept = fitting(passages)
    assert len(joined(kept)) <= MAX_TEXT
    assert len(kept) <= MAX_PASSAGES
    if sum(len(one.text) for one in passages if one.kind == "own") < MAX_TEXT // 2:
        assert own_text(kept) == own_text(passages), "those of others are cut first"


@pytest.mark.parametrize("body", ["word " * 52_560, "ab\n" * 87_400 + "\n> hi\n"])
def test_a_text_that_is_too_long_keeps_its_beginning(body: str) -> None:
    raw = b"From: ann@example.org\nMessage-ID: <m2@x>\nIn-Reply-To: <m1@x>\nSubject: Re: Hi\n\n" + body.encode()
    payload = envelope_from_mail(raw, endpoint="me@example.org", now=NOW).envelope.payload
    assert MAX_TEXT - 1_000 < len(payload.normalized_text) <= MAX_TEXT
    assert "more characters are not shown here" in payload.normalized_text


def test_what_is_beyond_two_hundred_passages_of_a_mail_is_one() -> None:
    body = "".join(f"a{n}\n\n> q{n}\n" for n in range(150))
    raw = f"From: ann@example.org\nMessage-ID: <m2@x>\nSubject: Re: Hi\n\n{body}".encode()
    payload = envelope_from_mail(raw, endpoint="me@example.org", now=NOW).envelope.payload
    assert words(payload.normalized_text) == words(f"Re: Hi {body}")
    assert (len(payload.passages), payload.passages[-1].kind) == (MAX_PASSAGES, "quoted")


def test_html_with_many_signs_takes_linear_time() -> None:
    def cost(times: int) -> int:
        source = "<p id=gmail_attr>x<p>" * times + "<p>x" * times
        return calls(lambda: passages_of_text_of_mail(MailText("x", source, rendered=True), MailFacts(), Reading()))

    assert cost(4_000) < 2.5 * cost(2_000)


def test_at_most_two_hundred() -> None:
    lines = [line for n in range(150) for line in (f"> a{n}", f"b{n}")]
    found = passages_of_lines(lines, tags_of(lines, (), MailFacts("<m@x>")))
    assert (len(found), found[-1].kind) == (MAX_PASSAGES, "quoted")
    assert words(joined(found)) == words("\n".join(lines))


@pytest.mark.parametrize("mark", [">", " > ", "\u200b>", "&gt; ", "\uff1e", "\u00a0>"])
@pytest.mark.parametrize("end", ["\n", "\u2028", "\x85", "\r"])
def test_a_quotation_neither_calls_the_bot_nor_is_own_words(mark: str, end: str) -> None:
    envelope = envelope_with(normalized_text=f"{mark}@house do it{end}Well?")
    chat = replace(envelope, source=replace(envelope.source, channel="slack", endpoint_identity="bot:@house"))
    assert own_text(passages_of(chat)) == words_of_sender(chat) == "Well?"
    assert not is_called(chat)


# On the wire and in the database --------------------------------------------------------------------------------------

BARE = {
    "schema_version": "ingest.v1",
    "source": {"channel": "email", "provider": "imap", "endpoint_identity": "me@example.org"},
    "event": {"external_event_id": "<m2@x>", "observed_at": "2026-11-28T12:00:00Z"},
    "sender": {"identity": "ann@example.org"},
}
PASSAGES = [
    {"kind": "own", "text": "Please pay."},
    {"kind": "forwarded", "text": "From: Shop\n45 euro", "author": "Shop", "sent_at": "2026-11-27T10:00:00Z"},
]
TEXT = f"Please pay.{JOINT}From: Shop\n45 euro"


def envelope_with(**payload: object) -> Envelope:
    return read_envelope(json.dumps({**BARE, "payload": payload}).encode())


def test_passages_take_the_place_of_the_text() -> None:
    taken = envelope_with(passages=PASSAGES)
    assert taken == envelope_with(passages=PASSAGES, normalized_text=TEXT)
    assert (taken.payload.normalized_text, own_text(passages_of(taken))) == (TEXT, "Please pay.")


@pytest.mark.parametrize(
    ("payload", "code", "field"),
    [
        ({"passages": PASSAGES, "normalized_text": "Please pay."}, "passages_differ", "payload.normalized_text"),
        (
            {"passages": [{"kind": "own", "text": " "}], "normalized_text": ""},
            "empty_value",
            "payload.passages.0.text",
        ),
        ({"passages": [{"kind": "mine", "text": "a"}]}, "invalid_value", "payload.passages.0.kind"),
        ({"passages": [{"kind": "own", "text": "a"}] * 201}, "too_long", "payload.passages"),
        ({"passages": [{"kind": "own", "text": "a", "length": 1}]}, "unknown_field", "payload.passages.0.length"),
        ({"passages": 7, "normalized_text": "a"}, "wrong_type", "payload.passages"),
        ({"passages": []}, "missing_field", "payload.normalized_text"),
        ({"passages": [{"kind": "own"}]}, "missing_field", "payload.passages.0.text"),
        ({"passages": "own"}, "wrong_type", "payload.passages"),
        ({"passages": ["own"]}, "wrong_type", "payload.passages.0"),
    ],
)
def test_passages_are_refused_with_what_would_be_right(payload: dict[str, object], code: str, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        envelope_with(**payload)
    assert (refused.value.code, refused.value.field) == (code, field)
    assert "more)" not in str(refused.value), "what follows from one fault is not another"


def test_no_word_is_stored_twice() -> None:
    taken = envelope_with(passages=PASSAGES)
    stored = stored_json(taken)
    assert stored.count(b"Please pay") == 1
    assert stored_envelope(stored) == taken
    assert [one["text"] for one in with_texts(json.loads(stored))["payload"]["passages"]] == [
        "Please pay.",
        "From: Shop\n45 euro",
    ]


def test_who_may_see_a_part_sees_the_passages_of_that_part() -> None:
    stored = json.loads(stored_json(envelope_with(passages=PASSAGES)))
    seen = with_texts(stored, "45 euro")["payload"]
    assert (seen["normalized_text"], [(one["kind"], one["text"]) for one in seen["passages"]]) == (
        "45 euro",
        [("forwarded", "45 euro")],
    )
    assert "Please pay" not in json.dumps(with_texts(stored, "45 euro"), default=str)
    assert with_texts({}) == {}, "as of a dead letter that was emptied"


@given(st.integers(0, len(TEXT)), st.integers(0, len(TEXT)))
def test_a_part_of_a_text_has_the_passages_of_its_words(begin: int, end: int) -> None:
    passages, own = envelope_with(passages=PASSAGES).payload.passages, (Passage(kind="own", text=TEXT),)
    part = TEXT[begin:end]
    found = part_of(passages, part)
    assert words(joined(found)) == words(part)
    assert part.strip() == TEXT or not own_text(found), "who cut it has read others' words"
    assert found == passages or not part.strip() or has_others_words(found)
    assert words(own_text(part_of(own, part))) == words(part)
    assert all(one.kind == "between" for one in part_of(passages, "Pay the shop 45 euro")), "a model made it up"


@pytest.mark.parametrize(
    ("subject", "more", "kind"),
    [
        ("Trip", "", "own"),
        ("Re: Trip", "", "quoted"),
        ("AW: [2] Trip", "", "quoted"),
        ("[EXT] Fwd: Trip", "", "quoted"),
        ("回复\uff1a旅行", "", "quoted"),
        ("Trip", "In-Reply-To: <m1@x>\n", "quoted"),
        ("Trip", "References: <m1@x>\n", "quoted"),
        ("Regarding: trip", "", "own"),
    ],
)
def test_whose_words_a_subject_is(subject: str, more: str, kind: str) -> None:
    raw = f"From: ann@example.org\nMessage-ID: <m2@x>\nSubject: {subject}\n{more}\nBody".encode()
    passages = passages_of(envelope_from_mail(raw, endpoint="me@example.org", now=NOW).envelope)
    assert passages[0].kind == kind
    assert own_text(passages) == ("Trip\n\nBody".replace("Trip", subject) if kind == "own" else "Body")


# The handed mails -----------------------------------------------------------------------------------------------------

HANDED = Path(__file__).parents[1] / "fixtures/mail/words"
BY_THE_LAWS: dict[str, list[tuple[str, str]]] = {
    "m01_forward_swedish": [("quoted", "VB: Faktura"), ("own", "Kan du bokföra"), ("forwarded", "Från: Butiken")],
    "m02_not_a_reply": [
        ("quoted", "Broken gate"),
        ("own", "Hello,"),
        ("quoted", "On 12 November your colleague wrote:"),
    ],
    "m04_outlook_inline": [("quoted", "RE: Two"), ("own", "Hi, my answers"), ("quoted", "From: Desk")],
    "m09_starts_with_on": [("quoted", "Re: Tunnel"), ("own", "On your own machine"), ("quoted", "On 27 Nov 2026")],
    "m23_blockquote": [("quoted", "Text for"), ("own", "Please print"), ("quoted", "> Open day on Sunday")],
    "m38b_outlook_forward_renamed": [("quoted", "Please"), ("own", "Please pay this"), ("forwarded", "From: Shop")],
    "m47_list_of_facts": [("quoted", "Trip"), ("own", "Please book this:"), ("quoted", "From: Berlin")],
    "m58_plain_interleaved": [
        *(("quoted", "Re: Two"), ("quoted", "On 27 Nov 2026"), ("between", "Tuesday.")),
        *(("quoted", "> How many?"), ("between", "Five.")),
    ],
}
"""The beginnings of the passages."""


def passages_of_handed(name: str) -> tuple[Passage, ...]:
    raw = (HANDED / f"{name}.eml").read_bytes()
    return passages_of(envelope_from_mail(raw, endpoint="desk@home.example", now=NOW).envelope)


@pytest.mark.parametrize("name", BY_THE_LAWS)
def test_the_passages_of_a_handed_mail(name: str) -> None:
    found, expected = passages_of_handed(name), BY_THE_LAWS[name]
    assert [one.kind for one in found] == [kind for kind, _ in expected]
    assert [one.text[: len(begin)] for one, (_, begin) in zip(found, expected, strict=True)] == [b for _, b in expected]


def plain_text_in(file: Path) -> str:
    """The text as the standard library reads it; empty if that is another test's: of character sets, or of parts."""
    mail = message_from_bytes(file.read_bytes(), policy=default)
    assert isinstance(mail, EmailMessage)
    body = mail.get_body(("plain",)) if mail["from"] else None
    return body.get_content() if body and body.get_content_charset() == "utf-8" else ""


ORDINARY = [file for file in sorted(HANDED.glob("*.eml")) if "placeholder" not in file.stem and plain_text_in(file)]


@pytest.mark.parametrize("file", ORDINARY, ids=lambda file: file.stem)
def test_no_word_that_a_person_typed_is_missing(file: Path) -> None:
    shown = words(joined(passages_of_handed(file.stem)))
    assert not [word for word in words(plain_text_in(file)) if word not in shown]


@pytest.mark.parametrize(
    ("name", "record", "folds"),
    [
        ("m46d_roundcube", "", 2),
        ("m10_yahoo", "", 3),
        ("m58_plain_interleaved", "Which day? How many?", 0),
        ("m12b_outlook_german_app", "", 0),
        ("m12b_outlook_german_app", "Something else", 0),
        ("m12b_outlook_german_app", "Welcher Tag\npasst?", 7),
        ("m38b_outlook_forward_renamed", "The sum is 45 euro, IBAN XX00 1234.", 0),
    ],
)
def test_history_becomes_a_mark_for_a_model_and_stays_in_what_is_stored(name: str, record: str, folds: int) -> None:
    """Below an attribution surely, below a head of fields only what is on record; what is forwarded never."""
    turn = a_turn({}, "x")
    raw = (HANDED / f"{name}.eml").read_bytes()
    envelope = envelope_from_mail(raw, endpoint="desk@home.example", now=NOW).envelope
    turn = dataclasses.replace(turn, envelope=envelope)
    entry = entry_of(turn, (), (RecordedText(record, answered=True),) if record else ())
    assert (f"[{folds} more lines quoted]" in entry.text) is bool(folds)
    assert ("more lines quoted" in entry.text) is bool(folds)
    assert entry.told
