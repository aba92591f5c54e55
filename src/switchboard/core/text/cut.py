"""Cuts a long text to its head, a mark, and its tail. Pure.

Called by `tools/results.py` for results shown to a model, and by `core/planning/views.py` for results of other steps
shown to a specialist. In: a text and a number of characters; out: never more than that.
"""

from __future__ import annotations

_SHORT = "[…]"


def cut(text: str, most: int, where: str = "") -> str:
    """`text` if it has at most `most` characters; otherwise its head, a mark, and a tail a third as long.

    `where` is a phrase that says where the rest is. If there is no room for the mark, a short one is used.
    """
    if len(text) <= most:
        return text
    said = f"; {where}" if where else ""
    mark = f"\n\n[… of {len(text)} characters, those in the middle are left out here{said}]\n\n"
    mark = mark if 4 * len(mark) <= 3 * most else _SHORT[:most]
    room = most - len(mark)
    tail = room // 4
    return text[: room - tail] + mark + (text[-tail:] if tail else "")
