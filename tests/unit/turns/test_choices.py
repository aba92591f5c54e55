"""Buttons: whatever a model writes, their labels are one visible line, and their tokens say what was asked of whom."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.text.visible import visible
from switchboard.core.turns.choices import choices_of, mark_of, press_of
from switchboard.domain.ledger import MAX_CHOICES
from switchboard.domain.shown import ShownApproval

NOW = datetime(2026, 1, 31, tzinfo=UTC)
TEXTS = st.text(max_size=200)


def asked(n: int, **more: Any) -> ShownApproval:
    given_ = {"approval_id": UUID(int=n), "kind": "question", "state": "pending", "arguments": {}, "answer": None}
    who = {"system_id": "System1/a", "tool": "pay", "channel": "telegram", "endpoint": "bot:1", "sender": "42"}
    about = {"why": "", "digest": "", "request_id": UUID(int=0), "message": "", "asked_at": NOW, "deadline_at": NOW}
    return ShownApproval(**{**given_, **who, **about, "decided_at": None, "decided_by": None, **more})


REQUESTS = st.lists(
    st.builds(
        lambda n, options, end: asked(n, arguments={"options": options}, **end),
        st.integers(min_value=0, max_value=2**128 - 1),
        st.lists(TEXTS, max_size=10),
        st.one_of(
            st.just({}),
            st.builds(lambda by, said: {"state": "answered", "decided_by": by, "answer": said}, TEXTS, TEXTS),
        ),
    ),
    max_size=6,
    unique_by=lambda one: one.approval_id,
)


@given(REQUESTS, TEXTS)
def test_labels_are_one_line_and_tokens_name_request_choice_and_person(
    requests: list[ShownApproval], name: str
) -> None:
    choices = choices_of(requests, mark_of("telegram/bot%3A1/42"), name)
    assert len(choices) <= MAX_CHOICES
    for one in choices:
        assert one.label.strip()
        assert "\n" not in one.label
        assert visible(one.label) == one.label
        assert len(one.label) <= 60
        assert len(one.value.encode()) <= 48
        press = press_of(one.value)
        assert press is not None
        assert press.recipient == mark_of("telegram/bot%3A1/42")
        [request] = [some for some in requests if some.approval_id == press.approval_id]
        command = press.command
        if command is None:
            assert request.state == "answered"
        else:
            assert request.state == "pending"
            assert one.label.startswith(f"{command.text}.")


@given(TEXTS | st.from_regex(r"choice:[\w-]{20,24}\.[a-z0-9]\.[\w-]{15,17}", fullmatch=True))
def test_whatever_an_app_sends_is_a_press_or_it_is_none(data: str) -> None:
    press = press_of(data)
    assert press is None or len(data) == 48
    if press is not None and press.command is not None:
        assert press.command.start == press.approval_id.hex


def test_what_cannot_be_shown_whole_has_no_buttons() -> None:
    call = {"kind": "call", "arguments": {"text": "x" * 3000}}
    many = {"arguments": {"options": [str(n) for n in range(9)]}}
    assert choices_of([asked(1, **call), asked(2, **many), asked(3)], mark_of("x"), "Ann") == ()
