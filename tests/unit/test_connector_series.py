"""Several events that are one message: which belong together, how long it waits for the next, and what they make."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from switchboard.connectors.kernel.series import MAX_EVENTS, belongs_to, due_after, merge_events
from switchboard.core.passages.own import has_others_words, joined, own_text, passages_of, read_passages
from switchboard.domain.envelope import MAX_PASSAGES, MAX_TEXT, Passage
from switchboard.ports.connector import Inbound, Piece
from switchboard.testing.connectors import ScriptedPlatform

NOW: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
Cut = Literal["", "\n"] | None


def piece(text: str, number: int = 1, after_s: float = 0.0, *, cut: Cut = None, forwarded: bool = False) -> Inbound:
    """A message; the text of a forwarded one is Bob's."""
    event = ScriptedPlatform().add("t", text, event={"sent_at": NOW + timedelta(seconds=after_s)})
    address = {"thread": "t", "message": number}
    envelope = replace(
        event.envelope, event=replace(event.envelope.event, external_event_id=f"e{number}", reply_address=address)
    )
    if forwarded:
        theirs = (Passage(kind="forwarded", text=text, author="Bob"),)
        envelope = replace(envelope, payload=replace(envelope.payload, passages=theirs))
    return replace(event, envelope=envelope, piece=Piece(number=number, cut=cut, forwarded=forwarded))


def of_telegram(event: Inbound, *, is_read: bool) -> Inbound:
    """With the passages that its text has, or without them."""
    payload = event.envelope.payload
    found = read_passages(payload.normalized_text, "telegram") if is_read else ()
    source = replace(event.envelope.source, channel="telegram")
    text = joined(found) if found else payload.normalized_text
    new = replace(payload, normalized_text=text, passages=found if has_others_words(found) else ())
    return replace(event, envelope=replace(event.envelope, source=source, payload=new))


def by(event: Inbound, sender: str) -> Inbound:
    envelope = event.envelope
    return replace(event, envelope=replace(envelope, sender=replace(envelope.sender, identity=sender)))


def read(event: Inbound) -> Sequence[tuple[str, str]]:
    return [(one.kind, one.text) for one in event.envelope.payload.passages]


TOGETHER: Final[dict[str, tuple[Inbound, Inbound, bool]]] = {
    "two texts": (piece("a"), piece("b", 2), False),
    "a long text and its rest": (piece("a", cut=""), piece("b", 2), True),
    "2 s later": (piece("a", cut=""), piece("b", 2, 2.0), True),
    "3 s later": (piece("a", cut=""), piece("b", 2, 3.0), False),
    "earlier": (piece("a", 1, 5.0, cut=""), piece("b", 2), False),
    "the next but one": (piece("a", cut=""), piece("b", 3), False),
    "of another person": (piece("a", cut=""), by(piece("b", 2), "Bob"), False),
    "a command": (piece("a", cut=""), replace(piece("/stop", 2), piece=None), False),
    "a forward and its comment": (piece("look"), piece("a", 2, forwarded=True), True),
    "a command and a forward": (replace(piece("/stop"), piece=None), piece("a", 2, forwarded=True), False),
    "a text before, and a forward": (piece("good morning"), piece("a", 2, 3.0, forwarded=True), False),
    "two forwards": (piece("a", forwarded=True), piece("b", 2, forwarded=True), True),
    "of unknown time": (
        piece("a", cut=""),
        replace(piece("b", 2), envelope=ScriptedPlatform().add("t", "b").envelope),
        False,
    ),
}


@pytest.mark.parametrize("case", TOGETHER.values(), ids=TOGETHER.keys())
def test_what_belongs_together(case: tuple[Inbound, Inbound, bool]) -> None:
    before, event, expected = case
    assert belongs_to([before], event) is expected


def test_a_message_takes_no_more_than_it_can_hold() -> None:
    long = [piece("x" * 4096, number, cut="") for number in range(1, 40)]
    assert belongs_to(long[: MAX_EVENTS - 1], long[MAX_EVENTS - 1])
    assert not belongs_to(long[:MAX_EVENTS], long[MAX_EVENTS])
    assert not belongs_to([piece("x" * (MAX_TEXT - 2), cut="")], piece("y", 2))
    many = piece("a", forwarded=True)
    payload = replace(many.envelope.payload, passages=many.envelope.payload.passages * MAX_PASSAGES)
    assert not belongs_to([replace(many, envelope=replace(many.envelope, payload=payload))], piece("b", 2))


@pytest.mark.parametrize(
    ("event", "first", "expected"),
    [
        (piece("a"), 10.0, 10.0),
        (piece("a", cut=""), 10.0, 11.5),
        (piece("a", cut=""), 6.0, 11.0),
        (piece("a", forwarded=True), 10.0, 11.5),
        (ScriptedPlatform().add("t", "", album="a"), 10.0, 11.0),
        (ScriptedPlatform().add("t", "", album="a"), 7.5, 10.5),
    ],
)
def test_only_what_may_go_on_waits(event: Inbound, first: float, expected: float) -> None:
    assert due_after(event, first, 10.0) == expected


def test_an_album_is_one_message_with_all_its_files() -> None:
    platform = ScriptedPlatform()
    events = [platform.add("t", text, album="a") for text in ("", "look", "look")]
    whole = merge_events(events)
    assert whole.envelope.payload.normalized_text == "look\n\nlook"
    assert (whole.envelope.event.external_event_id, whole.envelope.event.also) == ("1", ("2", "3"))
    assert len(whole.envelope.payload.attachments) == 3
    assert [(file.attachment, file.handle) for file in whole.files] == [
        (n, event.files[0].handle) for n, event in enumerate(events)
    ]
    assert merge_events(events[:1]) is events[0]


def test_a_comment_and_what_was_forwarded_have_their_authors() -> None:
    addressed = {"addressed": True}
    comment = replace(
        piece("what is this?"), envelope=ScriptedPlatform().add("t", "> hm\nwhat?", control=addressed).envelope
    )
    whole = merge_events([comment, piece("a" * 4096, 2, cut="", forwarded=True), piece("b", 3, forwarded=True)])
    assert read(whole) == [("quoted", "> hm"), ("own", "what?"), ("forwarded", "a" * 4096 + "b")]
    assert whole.envelope.payload.normalized_text == joined(whole.envelope.payload.passages)
    assert whole.envelope.control.addressed
    first = merge_events([piece("a", forwarded=True), piece("b", 2)]).envelope.event
    assert (first.also, first.reply_address) == (("e2",), {"thread": "t", "message": 1, "also": [2]})


@given(st.text(min_size=1), st.lists(st.integers(0, 2**16), max_size=5))
def test_a_text_that_was_split_anywhere_is_the_same_again(text: str, cuts: list[int]) -> None:
    ends = sorted({cut % (len(text) + 1) for cut in cuts} | {len(text)})
    parts = [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    whole = merge_events([piece(part, number, cut="") for number, part in enumerate(parts)])
    assert (whole.envelope.payload.normalized_text, whole.envelope.payload.passages) == (text, ())


WORDS: Final = ("> " + "word " * 900)[:4096].strip()


@pytest.mark.parametrize(
    ("first", "cut", "last", "others", "own"),
    [
        (WORDS, "", "please run it", f"{WORDS}please run it", ""),
        (WORDS, "\n", "please run it", f"{WORDS} please run it", ""),
        (WORDS, "\n", "run it\u2028now\n\nYes", f"{WORDS} run it", "now\n\nYes"),
        (f"Hm\n{WORDS}", "\n", "run it\nYes", f"{WORDS} run it", "Hm\n\nYes"),
        (WORDS, "\n", "> run it\nYes", None, "Yes"),
    ],
)
@pytest.mark.parametrize("is_read", [True, False])
def test_a_quoted_line_that_was_split_is_quoted_to_its_end(
    first: str, cut: Cut, last: str, others: str | None, own: str, is_read: bool
) -> None:
    whole = merge_events([of_telegram(one, is_read=is_read) for one in (piece(first, cut=cut), piece(last, 2))])
    passages = passages_of(whole.envelope)
    assert own_text(passages) == own
    assert others is None or [one.text for one in passages if one.kind == "quoted"] == [others]


def test_a_quoted_line_in_three_pieces_is_quoted_to_its_end() -> None:
    pieces = piece(WORDS, cut=""), piece("x" * 4096, 2, cut=""), piece("run it", 3)
    assert own_text(passages_of(merge_events([of_telegram(one, is_read=True) for one in pieces]).envelope)) == ""


def test_at_a_blank_or_the_end_of_a_line_a_text_goes_on_in_a_new_line() -> None:
    whole = merge_events([piece("first words", cut="\n"), piece("last words", 2)])
    assert whole.envelope.payload.normalized_text == "first words\nlast words"
