"""Where a platform posts to: the URL of the account's hook, answered as the server answers it.

Called by `running.py` for accounts with such a URL. In: requests of the platform; out: what the package answers, and
events that the scripted switchboard keeps. Next: `switchboard.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from switchboard.connectors.kernel.accounts import Configured
from switchboard.ports.connector import Account, Hook, Posted
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard
from switchboard.testing.loopback import Loopback


@asynccontextmanager
async def answer_hook(configured: Configured, switchboard: ScriptedSwitchboard) -> AsyncIterator[None]:
    """Within this block the hook of the account answers, if it has one; one answers for all its processes."""
    account, of = configured.account, configured.manifest.hook
    hook = of(account) if of is not None and account.hook_url is not None else None
    if hook is None or switchboard.is_hooked:
        yield
        return
    async with _HookFront(account, hook, switchboard):
        switchboard.is_hooked = True
        try:
            yield
        finally:
            switchboard.is_hooked = False


class _HookFront(Loopback):
    def __init__(self, account: Account, hook: Hook, switchboard: ScriptedSwitchboard) -> None:
        path = urlsplit(account.hook_url or "")
        super().__init__(
            Starlette(routes=[Route(path.path, self._answer_request, methods=["GET", "POST"])]), port=path.port or 0
        )
        self._account, self._hook, self._switchboard = account, hook, switchboard

    async def _answer_request(self, request: Request) -> Response:
        if self._switchboard.unavailable:
            return PlainTextResponse("", self._switchboard.outage)
        if request.method == "GET":
            return self._answer_challenge(request)
        posted = Posted(await request.body(), dict(request.headers))
        if self._hook.verify(self._account, posted, datetime.now(UTC)) is not None:
            return PlainTextResponse("", 401)
        said = self._hook.reply(self._account, posted) if self._hook.reply is not None else None
        if said is None:
            self._switchboard.post(posted.body)
        return Response(said or b"{}", media_type="application/json")

    def _answer_challenge(self, request: Request) -> Response:
        asked = dict(request.query_params)
        challenge = self._hook.challenge
        said = challenge(self._account, asked, datetime.now(UTC)) if challenge is not None else None
        return PlainTextResponse(said or "", 200 if said is not None else 403)
