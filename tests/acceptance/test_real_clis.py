"""The real command lines, as they come from npm, against a scripted model and an MCP server: no network beyond us.

`make clis` installs them. A program that is not there is skipped, and the skip says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from switchboard.app.models.classifier import AskingPolicy, by_dispatcher
from switchboard.app.models.dispatcher import StoredSpending
from switchboard.core.classification.judge import parse_calls
from switchboard.domain.llm import ModelFailure, Request
from switchboard.llm.build import Sessions
from switchboard.llm.dispatch import Dispatcher
from switchboard.llm.port import CliKind, ModelSession
from switchboard.llm.spec import CLI_KINDS
from switchboard.pipeline import MessagePipeline
from switchboard.store.ids import new_uuid7
from switchboard.store.models import classification
from switchboard.testing.scripted_llm import Call, Hang, Reply, Rule, Script, ScriptedLlm, Status, When
from tests.asking import CANDIDATES, request, spec
from tests.programs import real_kinds, search_path
from tests.routing import team_of
from tests.routing_server import TOKEN, RoutingServer, routing_server
from tests.servers import open_server
from tests.width import WIDE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
]
every_cli = pytest.mark.parametrize("kind", real_kinds(CLI_KINDS))
quick_cli = pytest.mark.parametrize("kind", real_kinds([kind for kind in CLI_KINDS if WIDE or kind != "opencode"]))
"""Opencode takes five seconds of the processor for each session."""
PROGRAM_TOOLS: dict[CliKind, tuple[str, dict[str, Any]]] = {
    "claude-code": ("Bash", {"command": "touch owned"}),
    "codex": ("shell", {"command": ["touch", "owned"]}),
    "gemini-cli": ("run_shell_command", {"command": "touch owned"}),
    "opencode": ("bash", {"command": "touch owned", "description": "d"}),
}


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions look for programs on PATH."""
    monkeypatch.setenv("PATH", search_path())


HARMLESS = {"list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource", "request_user_input"}
"""Codex keeps these: they read from our own MCP server, which has no resources, and ask a user who is not there."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A command line with both of its ends."""

    session: ModelSession
    llm: ScriptedLlm
    server: RoutingServer

    def request(self, **more: Any) -> Request:
        """A question that this session can work on."""
        return request(**{"token": TOKEN, "mcp_url": self.server.url, "deadline": 90.0, **more})


def calling(*butlers: str, then: str = "Done.") -> Script:
    """Whatever is asked first is answered by calls; then the model is content."""
    calls = tuple(Call("route_to_butler", {"butler": name, "segment": f"for {name}"}) for name in butlers)
    return Script(
        rules=(
            Rule(When(results=True), (Reply(then),), again=True),
            Rule(When(results=False, tool="route_to_butler"), (Reply("Let me see.", calls),), again=True),
        ),
        otherwise=Reply("A title"),
    )


@asynccontextmanager
async def stage(kind: CliKind, script: Script) -> AsyncIterator[Stage]:
    async with ScriptedLlm(script) as llm, routing_server(("health", "finance")) as server:
        sessions = Sessions([spec(kind, llm.url)])
        try:
            yield Stage(sessions.models[0][1], llm, server)
        finally:
            await sessions.aclose()


@quick_cli
async def test_a_model_that_does_not_call_is_no_failure(kind: CliKind) -> None:
    async with stage(kind, Script(otherwise=Reply("Routed to health."))) as on:
        transcript = await on.session.run(on.request())
        assert parse_calls(transcript, CANDIDATES).inferred
        assert on.server.calls == []


@quick_cli
async def test_a_wrong_token_is_seen_before_the_model_is_asked(kind: CliKind) -> None:
    async with stage(kind, calling("health")) as on:
        with pytest.raises(ModelFailure, match="does not offer the tool: status 401"):
            await on.session.run(on.request(token="wrong"))
        assert on.llm.requests == ()


@quick_cli
async def test_an_api_that_fails_is_told(kind: CliKind) -> None:
    async with stage(kind, Script(otherwise=Reply(fault=Status(500)))) as on:
        with pytest.raises(ModelFailure) as caught:
            await on.session.run(on.request(deadline=10.0))
        assert caught.value.kind in {"unavailable", "rate_limited", "timeout"}  # opencode tries again for a minute
        assert caught.value.retryable


@quick_cli
async def test_cancelled_in_the_middle_nothing_goes_on(kind: CliKind) -> None:
    async with stage(kind, Script(otherwise=Reply(fault=Hang()))) as on:
        running = asyncio.create_task(on.session.run(on.request()))
        await on.llm.waiting("hang")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await on.llm.settled()  # nobody holds a connection any more


@every_cli
async def test_the_tools_of_the_program_itself_are_not_to_be_had(kind: CliKind) -> None:
    """A model that does what an attacker says: the program's shell is not offered, or refuses."""
    name, arguments = PROGRAM_TOOLS[kind]
    script = Script(
        rules=(
            Rule(When(results=True), (Reply("I tried."),), again=True),
            Rule(When(tool="route_to_butler"), (Reply("", (Call(name, arguments, exact=True),)),), again=True),
        ),
        otherwise=Reply("A title"),
    )
    async with stage(kind, script) as on:
        try:
            transcript = await on.session.run(on.request())
        except ModelFailure as failure:
            transcript = failure.reply
        assert not any(call.ok for call in transcript.calls)
        said = [result.text for one in on.llm.requests for result in one.results]
        assert all(_refuses(text) for text in said), said
        offered = {tool for one in on.llm.requests for tool in one.tools}
        assert {tool for tool in offered if not tool.endswith("route_to_butler")} <= HARMLESS
        assert on.server.calls == []


def _refuses(text: str) -> bool:
    words = ("not found", "no such tool", "denied", "unavailable", "unsupported", "not available", "invalid", "reject")
    return any(word in text.lower() for word in words)


# Through the real server ----------------------------------------------------------------------------------------------


@every_cli
async def test_through_the_pipeline_and_our_own_mcp_server(kind: CliKind, database_url: str, tmp_path: Path) -> None:
    tree = ((team_of("System1/health", "System1/finance", "System4/root", purpose="everything"),), ())
    request_id = new_uuid7()
    context = {
        "request_id": str(request_id),
        "conversation": "telegram/bot%3Ahouse/ann",
        "team_id": "root",
        "candidates": [{"name": "health", "description": "Doctors"}, {"name": "finance", "description": "Bills"}],
        "source_channel": "telegram",
        "source_identity": "bot",
        "source_endpoint_identity": "bot:house",
        "sender_identity": "ann",
    }
    async with (
        ScriptedLlm(calling("health", "finance", then="Done.")) as llm,
        open_server(database_url, tmp_path, tree=tree) as server,
    ):
        sessions = Sessions([spec("openai", "http://127.0.0.1:9", "down"), spec(kind, llm.url, "real")])
        dispatcher = Dispatcher(sessions.models, StoredSpending(server.lab.database))
        asking = AskingPolicy([spec.name for spec, _ in sessions.models], timeout=90.0, mcp_url=f"{server.url}/mcp")
        dispatch = by_dispatcher(dispatcher, server.lab.database, asking)
        pipeline = MessagePipeline(server.lab.database.pool, dispatch, "switchboard")
        result = await pipeline.process("A pill for health, and a bill for finance.", {}, request_context=context)
        await sessions.aclose()
        logged = await classification.attempts(server.lab.database, request_id)
    assert (result.classification_error, result.failed_targets) == (None, [])
    assert sorted(result.routed_targets) == ["finance", "health"]
    assert {one["butler"]: one["segment"] for one in result.route_result["targets"]} == {
        "health": "for health",
        "finance": "for finance",
    }
    assert [row.model for row in logged] == ["down", "real"]
    assert logged[0].error is not None
    assert logged[1].tokens_in > 0
    assert {one.model for one in llm.requests} == {"scripted-1"}
