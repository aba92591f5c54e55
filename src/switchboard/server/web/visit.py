"""One request of somebody who is signed in: what pages read from it, and how they answer.

`site.py` makes one for each request; functions of `pages/` take it. Next: `templates.py`.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from msgspec import Struct
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from switchboard.app.access import Action, Principal
from switchboard.app.people.naming import NOBODY_CALLED
from switchboard.app.web_sessions import WebSession, WebVisitor
from switchboard.domain.errors import InvalidInput, NotFound
from switchboard.server.http.web_sessions import WEB_SESSION_SERVICE
from switchboard.server.paths import WEB
from switchboard.server.services import Services
from switchboard.server.web.arrivals import WebArrival
from switchboard.server.web.headers import new_nonce, page_headers
from switchboard.server.web.templates import PageTemplates

_FORM: Final = "application/x-www-form-urlencoded"
_FORM_WITH_FILES: Final = "multipart/form-data"
_MOST_FIELDS: Final = 200
MOST_FILES: Final = 10
_LONGEST_FIELD: Final = 2_097_152
LARGEST: Final = 2_147_483_647
"""Numbers in paths and forms: a larger one is none of ours, and the database refuses it."""


class MenuEntry(Struct, frozen=True):
    """A line of the navigation."""

    path: str
    name: str
    needs: Action


class Frame(Struct, frozen=True):
    """What all pages are made with."""

    templates: PageTemplates
    menu: Sequence[MenuEntry]


class Visit:
    """A request, who made it, and the parts behind the pages."""

    def __init__(
        self, request: Request, services: Services, frame: Frame, arrival: WebArrival, visitor: WebVisitor | None
    ) -> None:
        self.request = request
        self.services = services
        self.arrival = arrival
        self._frame = frame
        self._visitor = visitor
        self._nonce = new_nonce()
        self.number_waiting = 0
        """How much waits for the visitor, as all pages say."""
        self.files: Sequence[UploadFile] = ()

    @property
    def session(self) -> WebSession:
        """The session of this request."""
        return self._signed_in.session

    @property
    def caller(self) -> Principal:
        """The caller of use cases."""
        return self._signed_in.principal

    @property
    def _signed_in(self) -> WebVisitor:
        if self._visitor is None:
            raise RuntimeError("only sign-in pages are shown to strangers")
        return self._visitor

    @property
    def first_page(self) -> str:
        """The first page that the visitor may see: where they are led after signing in."""
        return self._entries[0].path if self._entries else "/"

    @property
    def _entries(self) -> list[MenuEntry]:
        role = None if self._visitor is None else self._visitor.session.role
        return [entry for entry in self._frame.menu if role in entry.needs.roles]

    def asked(self, name: str) -> str | None:
        """A parameter of the address; None if it is missing or empty."""
        return self.request.query_params.get(name) or None

    def path_id(self, name: str) -> UUID:
        """An id in the path, such as `{request_id:uuid}`."""
        return UUID(self.path_text(name))

    def path_text(self, name: str) -> str:
        """A name in the path, such as `{channel}`."""
        return str(self.request.path_params[name])

    def path_number(self, name: str) -> int:
        """A number in the path, such as `{n:int}`. Raises NotFound for those that number nothing."""
        number = int(self.path_text(name))
        if number > LARGEST:
            raise NotFound("there is no such page")
        return number

    def address(self, **changes: str | None) -> str:
        """The address of this page with other parameters; None removes one."""
        kept = {name: value for name, value in self.request.query_params.items() if value} | changes
        query = urlencode({name: value for name, value in kept.items() if value is not None})
        path = f"{WEB}{self._path}"
        return f"{path}?{query}" if query else path

    @property
    def _path(self) -> str:
        return str(self.request.scope["path"]).removeprefix(WEB)

    async def read_fields(self, *, with_files: bool = False) -> Mapping[str, str]:
        """What was entered into a form, each field once; the gate limits its bytes. Raises InvalidInput.

        The files of a form that may have some are in `files` then, on the disk as long as the request lasts.
        """
        wanted = _FORM_WITH_FILES if with_files else _FORM
        if self.request.headers.get("content-type", "").partition(";")[0].strip().lower() != wanted:
            raise InvalidInput(f"a form comes as {wanted}")
        announced = self.request.headers.get("content-length", "").isdigit()
        if with_files and (not announced or "transfer-encoding" in self.request.headers):
            raise InvalidInput("a form with files says how long it is")
        try:
            form = await self.request.form(
                max_files=MOST_FILES if with_files else 0, max_fields=_MOST_FIELDS, max_part_size=_LONGEST_FIELD
            )
        except HTTPException as error:
            raise InvalidInput(f"this is no form: {error.detail}") from None
        self.files = [value for _, value in form.multi_items() if isinstance(value, UploadFile) and value.filename]
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        if wrong := next((name for name, value in fields.items() if "\x00" in value), None):
            raise InvalidInput("what was entered has a character that is in no text", field=wrong)
        return fields

    def form_token(self, path: str) -> str:
        """What a form of this visitor that is posted to `path` must carry."""
        signed = hmac.new(self._signed_in.secret.encode(), f"form {path}".encode(), sha256)
        return signed.hexdigest()

    def has_form_token(self, fields: Mapping[str, str]) -> bool:
        """Whether these fields are of a form that we have shown this visitor, for this path."""
        return hmac.compare_digest(fields.get("form_token", "").encode(), self.form_token(self._path).encode())

    def page(self, template: str, http_status: int = 200, **values: object) -> Response:
        """A page made by a template of `templates/`, or a part of one for a page that is open already."""
        return HTMLResponse(self.render(template, **values), http_status, self.headers)

    def render(self, template: str, **values: object) -> str:
        """The HTML that a template makes for this visit; it goes with `headers`."""
        return self._frame.templates.render(template, {**self._common_values(), **values})

    @property
    def headers(self) -> Mapping[str, str]:
        """Those of every answer to this visit."""
        return page_headers(self._nonce)

    async def is_still_signed_in(self) -> bool:
        """Whether the session of an answer that takes long still holds."""
        return await self.services.of(WEB_SESSION_SERVICE).find_visitor(self._signed_in.secret) is not None

    def go(self, path: str) -> Response:
        """After a form: lead to a page, below `/ui`."""
        return RedirectResponse(f"{WEB}{path}", 303, page_headers(self._nonce))

    def _common_values(self) -> dict[str, object]:
        return {
            "nonce": self._nonce,
            "menu": self._entries,
            "here": self._path,
            "visitor": None if self._visitor is None else self._visitor.session,
            "theme": self._chosen_theme(),
            "insecure": not self.arrival.https and self.services.runtime.settings.web.insecure,
            "form_token": self.form_token,
            "address": self.address,
            "number_waiting": self.number_waiting,
            "names": NOBODY_CALLED,
        }

    def _chosen_theme(self) -> str:
        chosen = self.request.cookies.get("sb_theme", "")
        return chosen if chosen in {"light", "dark"} else "auto"
