"""What a page is made of: its path, who may see it, and the function that answers. Next: `site.py`, `pages/`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct
from starlette.responses import Response

from switchboard.app.access import Action
from switchboard.server.web.forms import Entered, Fields
from switchboard.server.web.visit import Visit


class WebPage(Struct, frozen=True):
    """A page, or a part of one, at `path` below `/ui`; with `menu`, it is in the navigation under that name.

    `show` is called for those whose role has `needs`, and only reads.
    """

    path: str
    show: Callable[[Visit], Awaitable[Response]]
    needs: Action
    menu: str | None = None


class WebForm(Struct, frozen=True):
    """Where forms are posted: `act` gets the fields of a form that one of our own pages has shown this visitor.

    It is called for those whose role has `needs`, and answers with `Visit.go`; or with a page, if to look at that is on
    the record. What it refuses is shown by `if_refused`, the page with the form, above what was entered; without that,
    by a page of its own.
    """

    path: str
    act: Callable[[Visit, Fields], Awaitable[Response]]
    needs: Action
    if_refused: Callable[[Visit, Entered], Awaitable[Response]] | None = None
    with_files: bool = False
    """Files may come with it (`Visit.files`); they are stored nowhere until `act` does so."""
