"""Texts that were split and forwards with their comments: redelivered, in a backlog, and beside other conversations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations_with_replacement
from typing import Final

from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Piece
from switchboard.testing.connectors import ScriptedPlatform, in_no_time
from switchboard.testing.connectors.clock import passes
from switchboard.testing.connectors.running import connector, scripted, texts, until

PIECES: Final = ("one,", "two,", "three,", "four")
_HOUR_S: Final = 3600


def split(platform: ScriptedPlatform, pieces: Sequence[str], number: int = 1) -> None:
    """All but the last are as long as can be."""
    now = datetime.now(UTC)
    for n, text in enumerate(pieces):
        piece = Piece(number=number + n, cut="" if n < len(pieces) - 1 else None)
        platform.add("t", text, event={"sent_at": now}, piece=piece)


def test_whatever_was_stored_before_each_word_arrives_once_and_in_order() -> None:
    """Two prefixes of the series arrive first, and then all of it again, as after a kill."""

    async def stored(lengths: Sequence[int]) -> list[str]:
        platform, switchboard = ScriptedPlatform(), scripted()
        split(platform, PIECES)
        whole, switchboard.cursor = platform.events, None
        for length in (*lengths, len(PIECES)):
            platform.events = whole[:length]
            async with connector(platform.configured, switchboard) as running:
                await until(lambda: switchboard.cursor == (str(length) if length else None), "all is settled")  # noqa: B023
                await running.killed()
            switchboard.cursor = None
        return texts(switchboard.accepted)

    for lengths in combinations_with_replacement(range(len(PIECES) + 1), 2):
        found = in_no_time(stored(lengths))
        assert "".join(found) == "".join(PIECES), (lengths, found)


def test_in_an_hours_backlog_only_what_belongs_together_is_joined() -> None:
    platform, expected = ScriptedPlatform(), dict[str, list[str]]()
    begin = datetime.now(UTC) - timedelta(seconds=_HOUR_S)
    said: tuple[tuple[str, float, Piece], ...] = (
        ("good morning", 0, Piece(number=1)),
        ("x" * 4096, 60, Piece(number=2, cut="")),
        ("x" * 4096, 60, Piece(number=3, cut="")),
        ("rest", 61, Piece(number=4)),
        ("thanks", 61, Piece(number=5)),
        ("what is this?", 1800, Piece(number=6)),
        ("news", 1800, Piece(number=7, forwarded=True)),
        ("so?", 1900, Piece(number=8)),
        ("y" * 4096, 2000, Piece(number=9, cut="")),
        ("unrelated", 2010, Piece(number=10)),
        ("more news", 3000, Piece(number=11, forwarded=True)),
        ("z" * 4096, 3500, Piece(number=12, cut="")),
        ("of another chat came between", 3500, Piece(number=14)),
    )
    together = ["good morning", "x" * 8192 + "rest", "thanks", "what is this?\n\nnews", "so?", "y" * 4096, "unrelated"]
    together += ["more news", "z" * 4096, "of another chat came between"]
    for text, at_s, piece in said:
        for thread in ("a", "b", "c"):
            event = {"sent_at": begin + timedelta(seconds=at_s)}
            platform.add(thread, text, event=event, piece=piece)
            expected[thread] = together

    async def received() -> Sequence[JsonObject]:
        switchboard = scripted()
        async with connector(platform.configured, switchboard):
            await until(lambda: switchboard.cursor == str(len(platform.events)), "all is settled")
        return switchboard.accepted

    accepted = in_no_time(received())
    found = {t: texts([one for one in accepted if one["event"]["external_thread_id"] == t]) for t in expected}
    assert found == expected


def test_a_text_waiting_for_its_rest_holds_back_only_its_own_conversation() -> None:
    async def received() -> tuple[list[str], list[str]]:
        platform, switchboard = ScriptedPlatform(), scripted()
        split(platform, PIECES[:1])
        now = datetime.now(UTC)
        platform.add("t", "x" * 4096, event={"sent_at": now}, piece=Piece(number=1, cut=""))
        platform.add("t", "after it", event={"sent_at": now}, piece=Piece(number=3))
        platform.add("u", "short", event={"sent_at": now}, piece=Piece(number=1))
        async with connector(platform.configured, switchboard):
            await until(lambda: bool(switchboard.accepted), "the first is accepted")
            await passes(1.0)
            early = texts(switchboard.accepted)
            await until(lambda: len(switchboard.accepted) == 4, "all are accepted")
        return early, texts(switchboard.accepted)

    early, all_of_them = in_no_time(received())
    assert sorted(early) == ["one,", "short"]
    assert all_of_them[2:] == ["x" * 4096, "after it"]


def test_a_forward_joins_its_comment_only_while_that_is_on_no_way_yet() -> None:
    async def received(*, comment_first: bool) -> list[str]:
        platform, switchboard = ScriptedPlatform(), scripted()
        event = {"sent_at": datetime.now(UTC)}
        async with connector(platform.configured, switchboard):
            platform.add("t", "what is this?", event=event, piece=Piece(number=1))
            if comment_first:
                await until(lambda: bool(switchboard.accepted), "the comment is accepted, since it does not wait")
            platform.add("t", "news", event=event, piece=Piece(number=2, forwarded=True))
            await until(lambda: switchboard.cursor == "2", "both are settled")
        return texts(switchboard.accepted)

    assert in_no_time(received(comment_first=True)) == ["what is this?", "news"]
    assert in_no_time(received(comment_first=False)) == ["what is this?\n\nnews"]
