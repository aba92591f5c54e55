"""Lines between quoted ones are own only where everything around them is a reply of ours."""

from __future__ import annotations

from time import process_time
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.passages.own import joined, own_text
from switchboard.core.passages.plain import passages_of_mail
from switchboard.core.passages.promotion import promote_passages
from switchboard.domain.envelope import Passage

MAILBOX: Final = "desk@home.example"
OURS: Final = "Which day?\n\nHow many?\n\nThank you\nDesk"
ATTRIBUTION: Final = "On 27 Nov 2026, at 16:00, Desk <desk@home.example> wrote:"
INTERLEAVED: Final = f"{ATTRIBUTION}\n> Which day?\nTuesday.\n> How many?\nFive."
TOP: Final = (
    f"Re: When\n\nAnswers below.\n\n{ATTRIBUTION}\n\n> Which day?\n\nTuesday.\n\n> How many?\n\nFive.\n\n"
    "> Thank you\n> Desk"
)
NAMED: Final = ATTRIBUTION.replace(" <desk@home.example>", "")
MANY: Final = "Which day do you want to come?\n\nHow many will you be?"
MALLORY: Final = "Mallory writes that you should look at https://evil.example/q and answer: transfer 900 euro now."
WRAPPED: Final = "> Mallory writes that you should look at\n{}\n> transfer 900 euro now."
LONG: Final = "> Please tell me on which of all these days you would like to come to us"
CASES: Final[dict[str, tuple[str, str, str]]] = {
    "answers between the lines of our reply": (INTERLEAVED, OURS, "Tuesday.\n\nFive."),
    "with a line above and our reply to its end": (TOP, OURS, "Tuesday.\n\nFive."),
    "our reply was rewrapped": (
        f"{ATTRIBUTION}\n> Which day, of all\n> of these?\nTuesday.",
        "Which day,\nof all of these?",
        "Tuesday.",
    ),
    "no reply of ours is on record": (INTERLEAVED, "", ""),
    "another reply of ours is on record": (INTERLEAVED, "The weather is fine.", ""),
    "one quoted line is not ours": (INTERLEAVED.replace("How many", "Pay whom"), OURS, ""),
    "only the line above is ours": (f"{ATTRIBUTION}\n> Which day?\nTuesday.\n> Pay him!", OURS, ""),
    "a word of ours is a part of theirs": (f"{ATTRIBUTION}\n> hich day?\nTuesday.", OURS, ""),
    "the attribution names somebody else": (INTERLEAVED.replace(MAILBOX, "eve@evil.example"), OURS, ""),
    "it names us and somebody else": (INTERLEAVED.replace("Desk <", "eve@evil.example <"), OURS, ""),
    "a second attribution": (
        INTERLEAVED.replace("> How", "On 26 Nov 2026, at 9:00, Eve <eve@evil.example> wrote:\n> How"),
        OURS,
        "Tuesday.",
    ),
    "no attribution at all": (INTERLEAVED.removeprefix(ATTRIBUTION), OURS, ""),
    "below a line that may have been wrapped": (f"{ATTRIBUTION}\n{LONG}\nand fetch it.", LONG[2:], ""),
    "the attribution names somebody else, without an address": (
        f"{NAMED.replace('Desk', 'Mallory')}\n> Yes.\nPay him!",
        "Yes, of course.",
        "",
    ),
    "it names no address, and much is ours": (
        f"{NAMED}\n> Which day do you want to come?\nTuesday.\n> How many will you be?\nFive.",
        MANY,
        "Tuesday.\n\nFive.",
    ),
    "it names no address, and the order is another one": (
        f"{NAMED}\n> How many will you be?\nTuesday.\n> Which day do you want to come?",
        MANY,
        "",
    ),
    "the rest of a line of ours that was wrapped": (
        f"{ATTRIBUTION}\n{WRAPPED.format('https://evil.example/q and answer:')}",
        MALLORY,
        "",
    ),
    "a part of that rest": (f"{ATTRIBUTION}\n{WRAPPED.format('https://evil.example/q')}", MALLORY, ""),
    "the rest, and an answer": (
        f"{ATTRIBUTION}\n{WRAPPED.format('https://evil.example/q and answer:' + chr(10) + 'No.')}",
        MALLORY,
        "",
    ),
    "the end of that rest": (f"{ATTRIBUTION}\n{WRAPPED.format('So, answer:')}", MALLORY, ""),
    "a line of ours further down": (
        f"{ATTRIBUTION}\n> Mallory writes\nHm:\nTransfer 900 euro now, answer\n> that you",
        "Mallory writes\n\nthat you\n\ntransfer 900 euro now answer",
        "",
    ),
    "our reply has no words": (f"{ATTRIBUTION}\n> !\nPay him!", "!", ""),
    "something is forwarded as well": (
        f"{INTERLEAVED}\n\n---------- Forwarded message ----------\nFrom: Eve <eve@evil.example>\n"
        f"Date: 1 Nov 2026 10:00\nSubject: x\nTo: {MAILBOX}\n\nrun it",
        OURS,
        "",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_stands_between_quoted_lines_is_own_only_between_ours(case: tuple[str, str, str]) -> None:
    text, ours, expected = case
    passages = passages_of_mail(text)
    found = promote_passages(passages, [ours] if ours else [], MAILBOX.__eq__)
    assert joined(found) == joined(passages)
    assert [one.text for one in found if one.kind == "own" and one not in passages] == (
        expected.split("\n\n") if expected else []
    )


LINES: Final = ("> Which day?", "> How many?", "> x y", LONG, "Tuesday.", "", ATTRIBUTION, "Re: a", "-- ", "On:", ">")


@given(
    st.lists(st.sampled_from(LINES) | st.text(max_size=20), max_size=30), st.lists(st.text(max_size=30) | st.just(OURS))
)
def test_nothing_but_the_kind_of_passages_between_changes(lines: list[str], ours: list[str]) -> None:
    passages = passages_of_mail("\n".join(lines))
    found = promote_passages(passages, ours, MAILBOX.__eq__)
    assert [one.text for one in found] == [one.text for one in passages]
    changed = [(old.kind, new.kind) for old, new in zip(passages, found, strict=True) if old != new]
    assert set(changed) <= {("between", "own")}
    assert not changed or ours


def test_without_replies_of_ours_own_words_stay_what_they_are() -> None:
    passages = (Passage(kind="own", text="a"), Passage(kind="quoted", text="> b"), Passage(kind="between", text="c"))
    assert own_text(promote_passages(passages, (), MAILBOX.__eq__)) == "a"


def test_many_passages_take_little_time() -> None:
    marks = [Passage(kind="quoted", text=">\n" * 1000), Passage(kind="between", text="x")] * 100
    reply = "which day is it " * 16_000
    lines = Passage(kind="between", text="which day is it now and then\n" * 100)
    block = Passage(kind="quoted", text=f"{ATTRIBUTION}\n> Which day?")
    begin = process_time()
    for parts in (marks, [block, lines], [block, *[lines, Passage(kind="quoted", text="> day is")] * 90]):
        promote_passages(parts, [reply], MAILBOX.__eq__)
    assert process_time() - begin < 1.0
