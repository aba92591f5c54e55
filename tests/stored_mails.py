"""Mails in `fixtures/mail/words`, and the envelopes that the release before passages made of them.

`fixtures/mail/stored.json` was written once by that release (commit 187d2b01) and is never written again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from switchboard.core.files.imports import read_mbox
from switchboard.domain.envelope import Envelope

_FIXTURES: Final = Path(__file__).parent / "fixtures" / "mail"
_STORED: Final = json.loads((_FIXTURES / "stored.json").read_bytes())
DESK: Final = "desk@home.example"
RECEIVED: Final = datetime(2026, 11, 28, 12, tzinfo=UTC)
FAMILIES: Final[Mapping[str, str]] = _STORED["families"]
"""For each family of `mail_corpus.py`: the SHA-256 of all texts."""
CONTENTS: Final[Mapping[str, str]] = _STORED["contents"]
"""The same of what was compared: keys, senders and words, of these mails and of broken copies of them."""
_BROKEN: Final = (0x80, 0xC3, 0xE9, 0x1B, 0x5C, 0x0A, 0x3D)


def broken(raw: bytes, seed: int) -> bytes:
    """A copy with a few other bytes: parts of characters, escapes, ends of lines."""
    chance, data = Random(seed), bytearray(raw)
    for _ in range(chance.randrange(1, 12)):
        data[chance.randrange(len(data))] = chance.choice(_BROKEN)
    return bytes(data)


def handed_mails() -> dict[str, bytes]:
    """All mails that this release takes, by name."""
    mbox = (_FIXTURES / "words" / "b1.mbox").read_bytes()
    single = {path.name: path.read_bytes() for path in sorted((_FIXTURES / "words").glob("*.eml"))}
    several = {f"b1.mbox#{n}": raw for n, (_, raw) in enumerate(read_mbox(BytesIO(mbox)))}
    return {name: raw for name, raw in (single | several).items() if _STORED["envelopes"][name] is not None}


def stored_envelopes() -> dict[str, Envelope]:
    """The envelopes of the same mails as they were stored."""
    return {name: msgspec.convert(one, Envelope) for name, one in _STORED["envelopes"].items() if one is not None}
