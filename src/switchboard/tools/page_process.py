"""The program of a child process that turns one page into text: `pages.py` starts it.

A stranger wrote the page, so memory and processor time are limited here. In: the bytes on standard input, their kind
and character set as arguments; out: the text. Next: `core/mail/hypertext.py`.
"""

from __future__ import annotations

import re
import resource
import sys
from typing import Final

from switchboard.core.mail.charsets import as_text
from switchboard.transport.child import limit

MEMORY_BYTES: Final = 512 * 1024**2
CPU_S: Final = 15
_DECLARED: Final = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]{1,40})", re.IGNORECASE)
"""The character set that a page declares, used if the server did not name one."""


def main(kind: str, charset: str) -> None:
    """Write the text of a page to standard output. `kind`: html or text."""
    limit(resource.RLIMIT_AS, MEMORY_BYTES)
    limit(resource.RLIMIT_CPU, CPU_S)
    limit(resource.RLIMIT_CORE, 0)
    data = sys.stdin.buffer.read()
    if kind == "html" and not charset and (declared := _DECLARED.search(data[:1024])):
        charset = declared[1].decode("ascii")
    text = as_text(data, charset)
    if kind == "html":
        from switchboard.core.mail.hypertext import text_of_html

        text = text_of_html(text)
    sys.stdout.buffer.write(text.encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
