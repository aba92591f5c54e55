"""Posts webhooks to the business: signed, several at a time, again until they are accepted, and out of order if told.

`server.py` runs it. In: values of changes; out: requests to the URL of their number. As Meta does, it gives up after
seven days; it tries a webhook again before the ones behind it, so that order is lost only where a test wants it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import httpx2

from switchboard.domain.json_values import JsonObject
from switchboard.testing.whatsapp.business import WhatsAppBusiness
from switchboard.testing.whatsapp.errors import GraphError
from switchboard.testing.whatsapp.webhooks import SignedWebhook, WebhookSender

MAX_URL: Final = 200
_FIRST_S: Final = 1.0
_LONGEST_S: Final = 10.0
_WEEK_S: Final = 7 * 86_400.0
_ANSWER_S: Final = 10.0


@dataclass(slots=True)
class _Pending:
    """A value that is to be posted, or a webhook that was posted before; `url`: where, if not as usual."""

    since: float
    value: JsonObject | None = None
    hook: SignedWebhook | None = None
    number_id: str = ""
    url: str = ""


class WebhookPoster:
    """The webhooks of a business. `batch`: the maximum number of values in one; `callback_url` is that of the app."""

    def __init__(self, business: WhatsAppBusiness, sender: WebhookSender, changed: Callable[[], None]) -> None:
        self._business, self._sender, self._changed = business, sender, changed
        self.batch = 1
        self.callback_url = ""
        self.is_held = False
        """Whether nothing is posted at present."""
        self.accepted: list[SignedWebhook] = []
        self.refusals: list[str] = []
        """The answers that were no 200, as text."""
        self.lost: list[JsonObject | None] = []
        """What was given up after seven days."""
        self._pending: list[_Pending] = []
        self._failures = 0
        self._due = 0.0

    @property
    def waiting(self) -> int:
        """How many values and webhooks are not accepted yet."""
        return len(self._pending)

    def add(self, value: JsonObject, *, url: str = "") -> None:
        """Post the value of a change; `url`: to another URL than its number's, as through the URL of the app."""
        number_id = str(value["metadata"]["phone_number_id"])
        if self._business.subscribed:
            self._pending.append(_Pending(self._business.clock(), value, number_id=number_id, url=url))
            self._changed()

    def post_again(self, last: int = 1) -> None:
        """Post the last accepted webhooks once more, as they were, as if their answers had got lost."""
        for hook in self.accepted[-last:] if last else ():
            self._pending.append(_Pending(self._business.clock(), hook=hook, number_id=_number_of(self._business)))
        self._changed()

    def release(self, *, reverse: bool = False) -> None:
        """End `is_held`; `reverse`: what came last is posted first."""
        if reverse:
            self._pending.reverse()
        self.is_held = False
        self.hurry()

    def hurry(self) -> None:
        """Try at once what was refused before."""
        self._failures, self._due = 0, 0.0
        self._changed()

    @property
    def next_due(self) -> float | None:
        """When to post next; None: there is nothing to post."""
        ready = self._pending and not self.is_held and self._url_of(self._pending[0])
        return self._due if ready else None

    async def post_due(self, client: httpx2.AsyncClient) -> None:
        """Post what is due, until something is refused."""
        while (due := self.next_due) is not None and due <= self._business.clock():
            several = self._take_alike()
            hook = several[0].hook or self._sender.post(*(one.value for one in several if one.value is not None))
            why = await _why_refused(client, self._url_of(several[0]), hook)
            if why is None:
                del self._pending[: len(several)]
                self.accepted.append(hook)
                self._failures = 0
            else:
                self._put_off(why)
            self._changed()

    async def verify_url(self, url: str, token: str) -> None:
        """Ask a URL for a challenge before it is used. Raises GraphError."""
        parts = urlsplit(url)
        if len(url) > MAX_URL or (parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost")):
            raise GraphError(2200, "override_callback_uri must be an HTTPS URL of at most 200 characters")
        challenge = str(secrets.randbelow(10**10))
        asked = {"hub.mode": "subscribe", "hub.challenge": challenge, "hub.verify_token": token}
        try:
            async with httpx2.AsyncClient(trust_env=False, timeout=_ANSWER_S) as client:
                answer = await client.get(url, params=asked)
        except httpx2.HTTPError as error:
            raise GraphError(2200, f"URL cannot be reached: {type(error).__name__}") from None
        if answer.status_code != 200 or answer.text.strip() != challenge:
            raise GraphError(2200, f"HTTP Status Code = {answer.status_code}; HTTP Message = {answer.reason_phrase}")

    def _take_alike(self) -> list[_Pending]:
        """The first one, with those behind it that go to the same URL and fit into its webhook."""
        first = self._pending[0]
        if first.hook is not None:
            return [first]
        several = [first]
        for one in self._pending[1 : self.batch]:
            if one.hook is not None or self._url_of(one) != self._url_of(first):
                break
            several.append(one)
        return several

    def _put_off(self, why: str) -> None:
        self.refusals.append(why)
        self._failures += 1
        now = self._business.clock()
        self._due = now + min(_FIRST_S * 2 ** (self._failures - 1), _LONGEST_S)
        while self._pending and now - self._pending[0].since > _WEEK_S:
            self.lost.append(self._pending.pop(0).value)

    def _url_of(self, one: _Pending) -> str:
        number = self._business.numbers.get(one.number_id)
        return one.url or (number.override if number else "") or self.callback_url


def _number_of(business: WhatsAppBusiness) -> str:
    return next(iter(business.numbers))


async def _why_refused(client: httpx2.AsyncClient, url: str, hook: SignedWebhook) -> str | None:
    try:
        answer = await client.post(url, content=hook.body, headers=dict(hook.headers))
    except httpx2.HTTPError as error:
        return type(error).__name__
    return None if answer.status_code == 200 else f"{answer.status_code}"
