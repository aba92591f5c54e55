"""Shows the progress of a message. In: the events of its stream; out: text for people.

Called by `chat.py` and `send.py`. On a terminal a reply appears while it is written, otherwise when complete. Next:
`talk.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from rich.text import Text

from switchboard.cli.messages.talk import Take, show_files, show_reply
from switchboard.cli.output import Json, clean, errors, out, wants_json

_TROUBLE: Final[Mapping[str, str]] = {"overload": "takes no more at the moment", "timeout": "does not answer in time"}


def screen() -> Take:
    """The function that shows the events of one message here."""
    if wants_json():
        return lambda _kind, _data: None
    return LiveScreen().take if sys.stdout.isatty() else show_whole


def show_whole(kind: str, data: Json) -> None:
    """Show replies when they are complete."""
    if kind == "reply":
        show_reply(data)
    elif kind == "waiting":
        _show_waiting(data)


class LiveScreen:
    """Shows one butler's text while it is written; other texts follow after it.

    A withdrawn text stays on the screen; its replacement begins on a new line.
    """

    def __init__(self) -> None:
        self._system_id = ""
        self._text = ""
        self._shown = ""
        self._later: list[Json] = []

    def take(self, kind: str, data: Json) -> None:
        """Show one event."""
        if kind == "done":
            self._end()
        elif kind == "waiting":
            self._end()
            _show_waiting(data)
        elif self._system_id in ("", data["system_id"]):
            self._system_id = data["system_id"]
            self._take_own(kind, data)
        elif kind == "reply":
            self._later.append(data)

    def _take_own(self, kind: str, data: Json) -> None:
        match kind:
            case "reset":
                self._text = ""
                self._end_line()
            case "delta":
                self._text = self._text[: data["offset"]] + data["text"]
                self._show()
            case "tool":
                self._end_line()
                errors().print(f"{clean(data['system_id'])} uses {clean(data['name'])}", style="dim")
            case "status":
                self._end_line()
                note = f"{data['system_id']} is {data['phase']}, about {data['seconds']} s"
                errors().print(clean(note), style="dim")
            case "reply":
                if self._shown:
                    self._end_line()
                    show_files(data)
                else:
                    show_reply(data)
                self._end()

    def _show(self) -> None:
        """Show the new part, except spaces at the ends, until it is clear whether they stay."""
        text = clean(self._text).strip()
        if not text.startswith(self._shown):
            self._end_line()
        if text and not self._shown:
            out().print(Text(f"{clean(self._system_id)}: ", style="bold cyan"), end="")
        out().print(Text(text[len(self._shown) :]), end="", soft_wrap=True)
        self._shown = text

    def _end_line(self) -> None:
        if self._shown:
            out().print()
        self._shown = ""

    def _end(self) -> None:
        self._end_line()
        later, self._system_id, self._text, self._later = self._later, "", "", []
        for reply in later:
            show_reply(reply)


def _show_waiting(data: Json) -> None:
    if asked := data.get("asked"):
        _show_asked(data["system_id"], asked)
        return
    what = "the model" if data["engine"] == "model" else "what it works with"
    trouble = _TROUBLE.get(data["error_class"], "cannot be reached")
    note = f"{data['system_id']} waits: {what} {trouble}; it retries automatically"
    errors().print(Text(clean(note), style="dim"), soft_wrap=True)


def _show_asked(system_id: str, asked: Sequence[Json]) -> None:
    for one in asked:
        short = one["approval_id"][:8]
        if one["kind"] == "question":
            note = f"{system_id} waits for your answer: /answer {short} and your answer"
        else:
            note = f"{system_id} waits for a decision about {one['tool']}: switchboard approvals show {short}"
        errors().print(Text(clean(note), style="dim"), soft_wrap=True)
