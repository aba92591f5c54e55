"""Pages and their forms as a browser without script has them: read, filled in, sent, and followed."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from hashlib import sha256
from html.parser import HTMLParser

import httpx2
from msgspec import Struct

from tests.servers import NO_TLS


class FormOnPage(Struct):
    """A form, with what it has before anything is entered."""

    action: str
    fields: dict[str, str]
    known: set[str]
    """Also those that are sent only if something is chosen."""


class SentForm(Struct, frozen=True):
    """What a browser sends, as often as it is asked to."""

    path: str
    fields: Mapping[str, str]
    files: bool


class AnsweredForm(Struct, frozen=True):
    """The page that an answer led to. `refused`: why it was not done."""

    status: int
    place: str
    html: str

    @property
    def refused(self) -> str:
        """The sentence above the forms, or on the page of an error."""
        found = re.search(r'<p class="bar bad" role="alert"[^>]*>(.*?)</p>', self.html, re.DOTALL)
        if found is None and self.status >= 400:
            found = re.search(r"<main.*?</main>", self.html, re.DOTALL)
        return "" if found is None else " ".join(re.sub(r"<[^>]+>", " ", found[0]).split())


class _FormReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.forms: list[FormOnPage] = []
        self._open: FormOnPage | None = None
        self._select, self._textarea = "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name, kind, value = given.get("name", ""), given.get("type", "text"), given.get("value", "")
        if tag == "form":
            self._open = FormOnPage(given.get("action", ""), {}, set())
            self.forms += [self._open] if given.get("method") == "post" else []
        if self._open is None or not (name or tag == "option"):
            return
        self._open.known |= {name} - {""}
        if tag == "input" and (kind not in {"checkbox", "radio", "file"} or "checked" in given):
            self._open.fields[name] = value or ("on" if kind == "checkbox" else "")
        elif tag == "textarea":
            self._textarea = name
            self._open.fields[name] = ""
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select and ("selected" in given or self._select not in self._open.fields):
            self._open.fields[self._select] = value

    def handle_data(self, data: str) -> None:
        if self._open is not None and self._textarea:
            self._open.fields[self._textarea] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._textarea = ""
        elif tag == "select":
            self._select = ""
        elif tag == "form":
            self._open = None


class FormSender:
    """Somebody who is signed in, at one port."""

    def __init__(self, port: int, secret: str) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._secret = secret
        self._http = httpx2.AsyncClient(
            base_url=self._url,
            headers={"origin": self._url, "cookie": f"sb_session_{port}={secret}", "user-agent": "Firefox/130 Linux"},
            timeout=60,
            verify=NO_TLS,
        )

    async def aclose(self) -> None:
        """No more requests."""
        await self._http.aclose()

    async def open(self, path: str) -> str:
        """The HTML of a page."""
        answer = await self._http.get(f"/ui{path}", follow_redirects=True)
        assert answer.is_success, (path, answer.status_code, answer.text)
        return answer.text

    def fill_in(self, html: str, path: str, entered: Mapping[str, str], *, files: bool) -> SentForm:
        """The form that is posted there, filled in."""
        reader = _FormReader()
        reader.feed(html)
        found = [one for one in reader.forms if one.action.partition("#")[0] == f"/ui{path}"]
        fitting = [one for one in found if entered.keys() <= one.known] or [one for one in found if not entered]
        assert fitting, (
            f"no form for {path} with {sorted(entered)}: {[(one.action, one.known) for one in reader.forms]}"
        )
        last = fitting[-1]
        assert hmac.compare_digest(last.fields.get("form_token", ""), self._token_for(path)), "as pages sign theirs"
        return SentForm(path, {**last.fields, **entered}, files)

    def _token_for(self, path: str) -> str:
        return hmac.new(self._secret.encode(), f"form {path}".encode(), sha256).hexdigest()

    async def send(self, form: SentForm) -> AnsweredForm:
        """Send it, and follow where it leads. Raises HTTPError if the server does not answer."""
        if form.files:
            parts = {name: (None, value.encode()) for name, value in form.fields.items()}
            answer = await self._http.post(f"/ui{form.path}", files=parts)
        else:
            answer = await self._http.post(f"/ui{form.path}", data=dict(form.fields))
        status, place = answer.status_code, answer.headers.get("location", "")
        if status == 303:
            answer = await self._http.get(place)
            assert answer.status_code < 500, (place, answer.text)
        return AnsweredForm(status, place, answer.text)
