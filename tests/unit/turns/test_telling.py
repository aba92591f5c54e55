"""The reply of a turn while it is written: whatever a model says in between, the pieces make exactly the reply."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from switchboard.agents.turns.telling import Telling
from switchboard.core.text.storable import storable_text
from switchboard.domain import llm
from switchboard.ports.engine import Delta

PIECES = st.one_of(
    st.builds(llm.ModelDelta, st.text(max_size=5)),
    st.just(llm.ModelDelta(reset=True)),
    st.just(llm.ModelDelta(reading=40)),
    st.builds(lambda text: llm.ModelDelta(end=llm.Reply(text)), st.text(max_size=5)),
)


@settings(max_examples=1000)
@given(st.lists(st.lists(PIECES, max_size=6), max_size=4), st.text(max_size=8), st.booleans())
def test_the_pieces_make_the_reply(requests: list[list[llm.ModelDelta]], text: str, as_told: bool) -> None:
    pieces: list[Delta] = []
    telling = Telling(pieces.append)
    for step, request in enumerate(requests, 1):
        telling.restart(step)
        for delta in request:
            telling.hear(delta)
    reply = telling.text.strip() if as_told else storable_text(text)
    telling.end(reply if as_told else text)
    so_far = ""
    for piece in pieces:
        assert 0 <= piece.offset <= len(so_far)
        so_far = so_far[: piece.offset] + piece.text
    assert so_far == reply == telling.text


def test_nobody_need_listen() -> None:
    telling = Telling(None)
    telling.hear(llm.ModelDelta("Once"))
    telling.end("Once upon a time")
    assert telling.text == "Once upon a time"
