"""A real Whisper hears a spoken file in a whole installation. Skipped where `make voice` has not built it.

How many words it finds of ten files is shown by `make voice`; here only what must always work.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.places import passable
from tests.whisper.interview import interview
from tests.whisper.places import MODEL, missing
from tests.whisper.report import found
from tests.whisper.server import real_whisper

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.skipif(bool(missing()), reason=missing() or "-")]


async def test_the_interviewer_reads_what_whisper_has_heard(tmp_path: Path) -> None:
    with passable("switchboard voice ") as place, real_whisper(tmp_path / "whisper.log") as url:
        happened = await interview(place, url, str(MODEL), within=300.0)
    [heard] = happened.explained["transcriptions"]
    assert found("four people in our house", heard["text"]) >= 4
    assert f"transcribed by a machine] {heard['text']}" in happened.reply
