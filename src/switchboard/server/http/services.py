"""The common parts of all routes: the services, the caller, and one way to answer.

Routers import it; `app.py` fills `Services`. In: a request; out: a checked `Principal`, a JSON response.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Final, cast

import msgspec
from fastapi import Depends, Request, Response

from switchboard.app.access import Access, Action, Principal
from switchboard.app.approvals.service import ApprovalService
from switchboard.app.classification.corrections import CorrectionService
from switchboard.app.classification.log import ClassificationLog
from switchboard.app.classification.spending import SpendingService
from switchboard.app.dead_letters.service import DeadLetterService
from switchboard.app.mcp_servers import McpServerService
from switchboard.app.memory.service import MemoryService
from switchboard.app.messages.accounts import AccountService
from switchboard.app.messages.blobs import BlobService
from switchboard.app.messages.chat import ChatService
from switchboard.app.messages.connectors import ConnectorService
from switchboard.app.messages.hook_accounts import HookAccounts
from switchboard.app.messages.hooks import HookService
from switchboard.app.messages.intake import Intake
from switchboard.app.messages.pairing import PairingService
from switchboard.app.messages.planned import PlanService
from switchboard.app.messages.posted import PostedService
from switchboard.app.messages.quarantine import QuarantineService
from switchboard.app.messages.stream import StreamService
from switchboard.app.messages.views import Views
from switchboard.app.metrics import Metrics
from switchboard.app.plans.trying import PlanTrials
from switchboard.app.reach import Reach, reach_of
from switchboard.app.remote_agents import RemoteAgentService
from switchboard.app.rules.records import RuleRecords
from switchboard.app.rules.replays import Replays
from switchboard.app.rules.service import RuleService
from switchboard.app.runtime import Switchboard
from switchboard.domain.errors import Unauthenticated
from switchboard.domain.json_values import JsonObject
from switchboard.server.contracts.messages import ErrorBody
from switchboard.server.polls import Polls
from switchboard.server.turns import TokenPaces


class Services:
    """The parts that the interfaces need, created once per app."""

    def __init__(self, switchboard: Switchboard) -> None:
        runtime = switchboard.runtime
        database, settings = runtime.database, runtime.settings
        self.switchboard = switchboard
        self.access = access = Access(database)
        self.metrics = Metrics()
        self.polls = Polls()
        self.blobs = BlobService(database, access, settings)
        self.intake = Intake(switchboard.accept, switchboard.mails, access, self.blobs, self.metrics)
        self.connectors = ConnectorService(database, switchboard.replies, access)
        self.accounts = AccountService(database, access, runtime.policies.look)
        self.quarantine = QuarantineService(database, access)
        self.posted = PostedService(database, access, runtime.notifier)
        self.hooks = HookService(
            *(HookAccounts(settings.channels_dir), self.intake, self.quarantine, self.posted),
            *(settings.accept.message_bytes, settings.trusted_proxies),
        )
        self.views = Views(runtime, access)
        self.streams = StreamService(runtime, self.views)
        self.paces = TokenPaces(time.monotonic)
        self.chats = ChatService(runtime, access, self.intake, self.views)
        self.remote_agents = RemoteAgentService(runtime, access)
        self.records = RuleRecords(runtime)
        self.replays = Replays(runtime)
        self.rules = RuleService(runtime, access, self.records, self.replays)
        self.dead_letters = DeadLetterService(runtime, access, self.rules)
        self.classifications = ClassificationLog(runtime, access)
        self.corrections = CorrectionService(runtime, access)
        self.spending = SpendingService(settings, database, lambda: list(runtime.rule_book.rules.members.values()))
        self.memory = MemoryService(database)
        self.mcp_servers = McpServerService(database, settings.servers)
        self.pairing = PairingService(runtime)
        self.approvals = ApprovalService(runtime)
        self.plan_trials = PlanTrials(runtime)
        self.plans = PlanService(runtime)

    def reach(self, caller: Principal) -> Reach:
        """The teams whose rules the caller may read."""
        return reach_of(self.switchboard.runtime, caller)

    async def admits(self, authorization: str | None) -> bool:
        """Whether a token shown earlier is still valid; it is looked up only once in a while."""
        try:
            await self.access.authenticate(authorization)
        except Unauthenticated:
            return False
        return True


def services_of(request: Request) -> Services:
    """The parts behind the interface of this request."""
    return cast(Services, request.scope["app"].services)


def caller_of(request: Request) -> Principal:
    """The caller that the gate has authenticated."""
    return cast(Principal, request.scope["state"]["principal"])  # `request.state` creates an object every time


def needs(action: Action) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency: the caller, if its role may do `action`; else 403."""

    async def check(request: Request) -> Principal:
        caller = caller_of(request)
        await services_of(request).access.check(caller, action)
        return caller

    return check


async def _services(request: Request) -> Services:  # FastAPI would run one that is not async in a thread
    return services_of(request)


Parts = Annotated[Services, Depends(_services)]


async def _within(request: Request) -> Reach:
    return services_of(request).reach(caller_of(request))


Within = Annotated[Reach, Depends(_within)]
"""The teams whose rules the caller may read."""


def answer(value: object, status: int = 200) -> Response:
    """`value` as JSON, encoded here and not validated again: tests compare it with the OpenAPI."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def page(name: str, found: tuple[Sequence[object], str | None]) -> JsonObject:
    """The body of a page of a list: its rows under their name, and the cursor of the next page."""
    rows, following = found
    return {name: rows, "next_cursor": following}


SENTENCES: Final[Mapping[int, str]] = {
    400: "The body is not JSON.",
    401: "No token, or an unknown, revoked or expired one.",
    403: "The token does not permit this.",
    404: "It does not exist, or this token may not read it.",
    409: "Valid, but in conflict with the current state.",
    413: "Too large.",
    415: "Unsupported Content-Type.",
    422: "The input is invalid; nothing was stored.",
    429: "The backlog is full, or too much is open at a time; retry after Retry-After seconds.",
    503: "The database cannot be reached; retry after Retry-After seconds.",
}
"""What a status means, in the OpenAPI."""


Responses = dict[int | str, JsonObject]


def operation(  # noqa: PLR0913 - the properties of a route
    operation_id: str,
    summary: str,
    model: Any,
    *errors: int,
    needing: Action | None = None,
    status: int = 200,
    description: str = "Done.",
    more: Responses | None = None,
) -> dict[str, Any]:
    """The arguments for the decorator of a route: its names and its responses.

    The responses are `model` at `status`, the given errors besides 401, 403, 413, 422 and 503, and `more`. `needing`:
    what the caller must be permitted to do, if the function itself does not check.
    """
    good: Responses = {status: {"model": model, "description": description}}
    bad = sorted({401, 403, 413, 422, 503, *errors})
    return {
        "operation_id": operation_id,
        "summary": summary,
        "responses": good | {code: {"model": ErrorBody, "description": SENTENCES[code]} for code in bad} | (more or {}),
        "status_code": status,
        "dependencies": [] if needing is None else [Depends(needs(needing))],
    }
