"""Style, scripts and pictures of the page, served under names with the hash of their content.

`site.py` opens them once. What others wrote lies in `static/vendored` beside `vendored.toml`, which says where it is
from. Next: `static/style.css`.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec import Struct
from starlette.responses import Response

from switchboard.server.paths import WEB
from switchboard.server.web.headers import FOREVER

_HERE: Final = Path(__file__).with_name("static")
FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "style.css": ("style.css",),
    "icon.svg": ("icon.svg",),
    # Extensions register themselves with what comes before them. One file is one request.
    "scripts.js": ("vendored/htmx.min.js", "vendored/hx-csp.min.js", "vendored/hx-sse.min.js", "app.js", "chat.js"),
}
"""What is served, and the files that it is made of."""
_TYPES: Final = {".css": "text/css", ".svg": "image/svg+xml", ".js": "text/javascript"}


class _File(Struct, frozen=True):
    content: bytes
    media_type: str


class StaticFiles:
    """The files, in memory: less than 100 kB."""

    def __init__(self) -> None:
        self._served: dict[str, _File] = {}
        self._names: dict[str, str] = {}
        for name, parts in FILES.items():
            content = b"\n;\n".join((_HERE / part).read_bytes() for part in parts)
            whole = Path(name)
            served = f"{whole.stem}-{sha256(content).hexdigest()[:16]}{whole.suffix}"
            self._names[name] = f"{WEB}/static/{served}"
            self._served[served] = _File(content, _TYPES[whole.suffix])

    def address(self, name: str) -> str:
        """Where a file is served."""
        return self._names[name]

    def answer(self, served: str) -> Response:
        """The file with this name and hash, or 404."""
        found = self._served.get(served)
        if found is None:
            return Response(status_code=404, headers={"cache-control": "no-store"})
        return Response(found.content, headers=FOREVER, media_type=found.media_type)
