"""The text of a fetched page, extracted in a child process: pages can be crafted to take long.

Called by `web_fetch.py`. In: bytes, media type and character set; out: text. Next: `page_process.py`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import Final

from switchboard.tools.page_process import CPU_S
from switchboard.tools.workspace import ToolRefusal
from switchboard.transport.child import without_secrets
from switchboard.transport.programs import Program, run_program

_PROGRAM: Final = "switchboard.tools.page_process"
_SECONDS: Final = CPU_S + 5.0
_HTML: Final = frozenset({"text/html", "application/xhtml+xml"})
_TEXT: Final = frozenset({"application/json", "application/xml", "application/javascript", "application/yaml", ""})


@dataclass(frozen=True, slots=True)
class Page:
    """A server's answer. `whole`: nothing of the body is missing."""

    url: str
    status: int
    media_type: str
    charset: str = ""
    body: bytes = field(default=b"", repr=False)
    whole: bool = True


def is_text(media_type: str) -> bool:
    """Whether text can be shown for this type; a body without a type is assumed to be text."""
    return media_type.startswith("text/") or media_type in _HTML | _TEXT or media_type.endswith(("+json", "+xml"))


async def text_of(page: Page) -> str:
    """The text that a person would read. Raises `ToolRefusal`, and OSError if no process can be started."""
    kind = "html" if page.media_type in _HTML else "text"
    argv = (sys.executable, "-m", _PROGRAM, kind, page.charset)
    ended = await run_program(Program(argv, without_secrets(os.environ), "/", page.body, _SECONDS), grace=0)
    if ended.late or ended.too_much or ended.status:
        raise ToolRefusal("the page takes too long to read, or is not text")
    return ended.text
