"""Shows the progress of a message. In: the events of its stream; out: text for people.

Called by `chat.py` and `send.py`. On a terminal a reply appears while it is written, with its Markdown rendered;
otherwise it appears when complete, as it was written. Next: `markdown.py`, `talk.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from rich.live_render import LiveRender
from rich.text import Text

from switchboard.cli.messages.markdown import RenderedBlock, length_of_finished_blocks, markdown
from switchboard.cli.messages.talk import Take, show_files, show_reply
from switchboard.cli.output import Json, clean, errors, one_line, out, wants_json

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

    The block that is being written is drawn again with each piece; those before it stay. A withdrawn text stays on the
    screen; its replacement begins on a new line.
    """

    def __init__(self) -> None:
        self._console = out()
        self._system_id = ""
        self._text = ""
        self._shown = ""
        self._settled = 0
        """Characters of what is shown that are not drawn again."""
        self._drawn = LiveRender("", vertical_overflow="visible")
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
                self._end_text()
            case "delta":
                self._text = self._text[: data["offset"]] + data["text"]
                self._show()
            case "tool":
                self._end_text()
                said = f"{data['system_id']} uses {data['name']} {data.get('arguments', '')}"
                errors().print(one_line(said), style="dim", soft_wrap=True)
            case "tool_end":
                self._end_text()
                errors().print(one_line(f"{data['name']}: {'done' if data['ok'] else 'failed'}"), style="dim")
            case "status":
                self._end_text()
                note = f"{data['system_id']} is {data['phase']}, about {data['seconds']} s"
                errors().print(clean(note), style="dim")
            case "reply":
                if self._shown:
                    self._end_text()
                    show_files(data)
                else:
                    self._show_whole(data)
                self._end()

    def _show(self) -> None:
        """Show the new part, except spaces at the ends, until it is clear whether they stay."""
        text = clean(self._text).strip()
        if not text.startswith(self._shown):
            self._end_text()
        self._shown = text
        if not text:
            return
        self._erase()
        if end := length_of_finished_blocks(text[self._settled :]):
            self._console.print(self._block(text[self._settled : self._settled + end]), end="")
            self._console.print()
            self._settled += end
        if self._console.is_terminal:
            self._drawn.set_renderable(self._block(text[self._settled :], tail=True))
            self._console.print(self._drawn, end="")

    def _erase(self) -> None:
        self._console.control(self._drawn.position_cursor())
        self._drawn = LiveRender("", vertical_overflow="visible")

    def _block(self, text: str, *, tail: bool = False) -> RenderedBlock:
        """The text, after the name of the butler if it is the beginning."""
        return markdown(text, "" if self._settled else clean(self._system_id), tail=tail)

    def _end_text(self) -> None:
        self._erase()
        if rest := self._shown[self._settled :]:
            self._console.print(self._block(rest), end="")
        self._shown, self._settled = "", 0

    def _end(self) -> None:
        self._end_text()
        later, self._system_id, self._text, self._later = self._later, "", "", []
        for reply in later:
            self._show_whole(reply)

    def _show_whole(self, reply: Json) -> None:
        self._console.print(markdown(clean(reply["text"]), clean(reply["system_id"])), end="")
        show_files(reply)


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
