"""Where to cut what a client sends, so that no piece completes more than one request.

`heads.py` gives the parser one piece after the other, and stops when enough requests wait. Pure. In: data, and what the
parser awaits next; out: where the next piece ends. The parser gets every byte in any case: a wrong cut could only let
it complete more or fewer requests at a time. Next: `heads.py`.
"""

from __future__ import annotations

import re
from typing import Final

MOST_CHUNKED: Final = 16_384
"""Bytes of a chunked body in one piece: a chunk of one byte costs as much as a large one."""
_BLANK_LINE: Final = re.compile(rb"\n\r?\n")
_BEGUN_BEFORE: Final = re.compile(rb"[\r\n]+")


def piece_end(data: bytes, begin: int, body: int | None) -> int:
    """Where the piece of `data` ends that begins at `begin`.

    `body`: so many bytes of a body come next; 0: a head; None: a body in chunks, which ends with a blank line like a
    head does.
    """
    if body:
        return min(len(data), begin + body)
    if begin == 0 and (blank := _BEGUN_BEFORE.match(data)) is not None:  # its beginning may have come before
        return blank.end()
    ends = len(data) if body == 0 else min(len(data), begin + MOST_CHUNKED)
    found = _BLANK_LINE.search(data, begin, ends)
    return ends if found is None else found.end()
