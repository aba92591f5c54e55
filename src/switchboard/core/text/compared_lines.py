"""Whether two objects have the same lines, whoever has written them again. Pure.

`transport/dav/writing.py` and the modules that write ask it, to know what they have written before. Next:
`content_lines.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from switchboard.core.text.content_lines import ContentLine, content_lines, unescape_text


def has_all_lines(found: bytes, written: bytes, replaced: bytes = b"") -> bool:
    """Whether the server has what was written. Servers order and fold the lines of events again, and add their own.

    They also note beside each guest what became of the invitation (RFC 6638, 7.3). What was written in place of
    `replaced` is not there while a line is that it left out: a write that only removes lines is else never missed.
    """
    there, wanted = counted_lines(content_lines(found)), counted_lines(content_lines(written))
    left_out = counted_lines(content_lines(replaced)) - wanted
    return not wanted - there and not (there - wanted) & left_out


def counted_lines(lines: Iterable[ContentLine]) -> Counter[tuple[object, ...]]:
    """How often each line is there, however it is folded and escaped, with its parameters in any order."""
    return Counter(
        (line.group.upper(), line.name, tuple(sorted(_sent_parameters(line))), unescape_text(line.value).strip())
        for line in lines
        if line.name
    )


def _sent_parameters(line: ContentLine) -> Iterator[tuple[str, tuple[str, ...]]]:
    return ((name, values) for name, values in line.parameters.items() if name != "SCHEDULE-STATUS")
