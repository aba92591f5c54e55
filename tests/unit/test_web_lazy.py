"""Nobody pays for the page who does not look: a server imports Jinja2 with the first request below `/ui/`."""

from __future__ import annotations

import errno
import subprocess
import sys
from typing import Any, Final, cast

import pytest
from starlette.types import Receive, Scope, Send

from switchboard.server.web import guest
from switchboard.server.web.guest import WebGuest

ROOM_MB: Final = 16
SCRIPT: Final = """
import os, sys
import switchboard.server.app, switchboard.server.serve, switchboard.app.supervisor

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

assert not [name for name in sys.modules if name.partition(".")[0] in {"jinja2", "markupsafe"}], "of the page"
there = {name for name in sys.modules if name.startswith("switchboard.server.web")}
assert there == {"switchboard.server.web", "switchboard.server.web.guest"}, "9 kB, imported in 2 ms"
before = resident_mb()
import switchboard.server.web.site
from switchboard.server.web.static import StaticFiles
from switchboard.server.web.templates import PageTemplates
PageTemplates(StaticFiles(), None).render("sign_in.html", {
    "nonce": "", "menu": [], "here": "/", "theme": "auto", "insecure": False, "visitor": None, "back": "/ui/",
    "reload": None, "wrong": None, "number_waiting": 0, "address": str, "form_token": str, "names": {},
})
print(resident_mb() - before)
"""


def test_the_page_is_imported_by_the_first_request_and_costs_little() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) <= ROOM_MB


async def test_a_site_that_could_not_be_opened_is_opened_by_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    room = [False, True]

    async def site(scope: Scope, _receive: Receive, _send: Send) -> None:
        shown.append(scope["path"])

    def open_site(_: object) -> Any:
        if not room.pop(0):
            raise OSError(errno.EMFILE, "too many open files")
        return site

    monkeypatch.setattr(guest, "_open_site", open_site)
    pages, rest = WebGuest(cast(Any, None)), cast(Any, None)
    with pytest.raises(OSError, match="too many open files"):
        await pages({"path": "/first"}, rest, rest)
    for path in ("/second", "/third"):
        await pages({"path": path}, rest, rest)
    assert shown == ["/second", "/third"]
