"""What every route is given: the services, the caller, and one way to answer.

Routers import it; `app.py` fills `Services`. In: a request; out: a checked `Principal`, a JSON response.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from switchboard.domain.routing import Member
from switchboard.server.contracts.messages import ErrorBody
from switchboard.server.polls import Polls


@dataclass(frozen=True, slots=True)
class Services:
    """Made once per app."""

    switchboard: Switchboard
    access: Access
    intake: Intake
    connectors: ConnectorService
    accounts: AccountService
    blobs: BlobService
    quarantine: QuarantineService
    posted: PostedService
    hooks: HookService
    views: Views
    streams: StreamService
    chats: ChatService
    remote_agents: RemoteAgentService
    records: RuleRecords
    replays: Replays
    rules: RuleService
    dead_letters: DeadLetterService
    classifications: ClassificationLog
    corrections: CorrectionService
    spending: SpendingService
    memory: MemoryService
    mcp_servers: McpServerService
    pairing: PairingService
    approvals: ApprovalService
    plan_trials: PlanTrials
    plans: PlanService
    metrics: Metrics
    polls: Polls

    @classmethod
    def open(cls, switchboard: Switchboard) -> Services:
        """Wire what the interfaces need."""
        runtime = switchboard.runtime
        access, metrics = Access(runtime.database), Metrics()
        records, replays = RuleRecords(runtime), Replays(runtime)
        views, quarantine = Views(runtime, access), QuarantineService(runtime.database, access)
        blobs = BlobService(runtime.database, access, runtime.settings)
        intake = Intake(switchboard.accept, switchboard.mails, access, blobs, metrics)
        accounts = HookAccounts(runtime.settings.channels_dir)
        posted = PostedService(runtime.database, access, runtime.notifier)

        def members() -> Iterable[Member]:
            return runtime.rule_book.rules.members.values()

        rules = RuleService(runtime, access, records, replays)
        return cls(
            switchboard,
            access,
            intake,
            ConnectorService(runtime.database, switchboard.replies, access),
            AccountService(runtime.database, access, runtime.policies.look),
            blobs,
            quarantine,
            posted,
            HookService(
                *(accounts, intake, quarantine, posted),
                *(runtime.settings.accept.message_bytes, runtime.settings.trusted_proxies),
            ),
            views,
            StreamService(runtime, views),
            ChatService(runtime, access, intake, views),
            RemoteAgentService(runtime, access),
            records,
            replays,
            rules,
            DeadLetterService(runtime, access, rules),
            ClassificationLog(runtime, access),
            CorrectionService(runtime, access),
            SpendingService(runtime.settings, runtime.database, members),
            MemoryService(runtime.database),
            McpServerService(runtime.database, runtime.settings.servers),
            PairingService(runtime),
            ApprovalService(runtime),
            PlanTrials(runtime),
            PlanService(runtime),
            metrics,
            Polls(),
        )

    def reach(self, caller: Principal) -> Reach:
        """The teams whose rules the caller may read."""
        return reach_of(self.switchboard.runtime, caller)

    async def admits(self, authorization: str | None) -> bool:
        """Whether a token that was shown is still good; it is looked up once in a while only."""
        try:
            await self.access.authenticate(authorization)
        except Unauthenticated:
            return False
        return True


def services_of(request: Request) -> Services:
    """The parts behind the interface of this request."""
    return cast(Services, request.scope["app"].services)


def caller_of(request: Request) -> Principal:
    """Who the gate found this to be."""
    return cast(Principal, request.scope["state"]["principal"])  # `request.state` makes an object of it every time


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
    """`value` as JSON. Encoded here and not validated again: `tests` hold it against the OpenAPI."""
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


def operation(  # noqa: PLR0913 - what there is to say of a route
    operation_id: str,
    summary: str,
    model: Any,
    *errors: int,
    needing: Action | None = None,
    status: int = 200,
    description: str = "Done.",
    more: Responses | None = None,
) -> dict[str, Any]:
    """What the decorator of a route is told: its names, and its responses.

    They are `model` at `status`, besides 401, 403, 413, 422 and 503 the given errors, and `more`. `needing`: what the
    caller must be permitted to do, where the function itself does not ask for the caller.
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
