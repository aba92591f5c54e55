"""`/v1/modules`: installed modules, and calls of butlers' tools. Next: `app/modules.py`, `app/calls.py`."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import Depends, Query, Request, Response

from switchboard.app.access import Principal
from switchboard.app.calls import MODULES, WAIT_S, CallService
from switchboard.app.modules import MODULES_EDIT, ModuleService
from switchboard.app.ops.modules import release_module
from switchboard.core.calls import WantedCall
from switchboard.domain.calls import ShownCall
from switchboard.domain.modules import ModuleSync, ReleasedModule
from switchboard.domain.routing import SystemId
from switchboard.server.contracts.base import Word
from switchboard.server.contracts.modules import CallBody, ModuleList
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation
from switchboard.server.services import ServiceFactory

CALL_SERVICE: Final = ServiceFactory(lambda services: CallService(services.runtime, services.access))
router = router_of("modules", prefix="/v1/modules")

MODULE_SERVICE: Final = ServiceFactory(lambda services: ModuleService(services.runtime))

Operator = Annotated[Principal, Depends(needs(MODULES_EDIT))]
Caller = Annotated[Principal, Depends(needs(MODULES))]
Wait = Annotated[float, Query(ge=0, le=WAIT_S, allow_inf_nan=False)]


@router.get("", **operation("list_modules", "List modules", ModuleList, needing=MODULES_EDIT))
async def list_modules(parts: Parts) -> Response:
    """Those that are installed or that butlers have, by name: their state, their tools, what they do by themselves."""
    return answer({"modules": await parts.of(MODULE_SERVICE).list_modules()})


@router.post("/{module}/sync", **operation("sync_module", "Do what a module does by itself now", ModuleSync, 404, 409))
async def sync_module(caller: Operator, parts: Parts, module: Word) -> Response:
    """Workers begin within half a minute, even with what has failed and is tried again later."""
    return answer(await parts.of(MODULE_SERVICE).sync(caller, module))


@router.post(
    "/{module}/release", **operation("release_module", "Release a module from quarantine", ReleasedModule, 404)
)
async def release_from_quarantine(caller: Operator, parts: Parts, module: Word) -> Response:
    """Workers open it again, and forget what it did."""
    await release_module(parts.runtime.database, caller, module)
    return answer(ReleasedModule(module))


@router.post("/calls", **operation("call_tool", "Call a tool of a butler", ShownCall, 404, 429))
async def call_tool(request: Request, caller: Caller, parts: Parts, body: CallBody, wait_s: Wait = WAIT_S) -> Response:
    """It is a message that the call itself answers, with the butler's grants; `explain` shows it.

    Waits up to `wait_s` seconds for the result, but not for people: what waits for them is `pending`.
    """
    async with parts.polls.watch(request.receive) as gone:
        return answer(await parts.of(CALL_SERVICE).call(caller, asked_call(body), gone, wait_s))


@router.get("/calls/{call_id}", **operation("get_call", "Get a call and its result", ShownCall, 404))
async def get_call(request: Request, caller: Caller, parts: Parts, call_id: UUID, wait_s: Wait = 0) -> Response:
    """Of the same token, for the same person; operators see all."""
    async with parts.polls.watch(request.receive) as gone:
        return answer(await parts.of(CALL_SERVICE).get(caller, call_id, gone, wait_s))


def asked_call(body: CallBody) -> WantedCall:
    """The call that a body asks for."""
    system_id = body.system_id or SystemId("")
    return WantedCall(body.tool, body.arguments, system_id, body.person, body.idempotency_key)
