"""A session with a provider's API: one request with one tool, which the model has to call.

`build.py` makes it; `dispatch.py` calls `run`. How the request is made is `openai_api.py` or `anthropic_api.py`, how
the answer is read `answers.py`. One `run` is at most one request: who is asked next is decided in `dispatch.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from switchboard.agents.sessions.answers import read_answer
from switchboard.agents.sessions.port import ApiKind, EstimatedUsage, SessionFailure, SessionTask, asked_tokens
from switchboard.agents.sessions.port import with_usage as filled
from switchboard.core.pipeline.prompt import Prompt
from switchboard.core.pipeline.transcript import Transcript

Ask = Callable[[SessionTask], Awaitable[str]]
"""Makes the request and gives the body of a 200; raises SessionFailure for everything else."""

_NOTHING_SPENT: Final = frozenset({"unavailable", "rate_limited", "auth", "defect", "context_too_long"})
JSON_REMINDER: Final = """
The data has ended. In this session there is no tool to call: where the instructions say to call `route_to_butler`,
write instead. Answer with one JSON object and nothing else: `thought`, one sentence; then `routes`, a list with one
object per butler concerned, each with `butler` (the `name` of a candidate), `segment` (only where several butlers are
concerned) and `reason`. If no candidate fits, `routes` is empty.
"""


class ApiSession:
    """One model of one provider. `local`: the server is one's own, and answers in JSON instead of calling."""

    kind: ApiKind

    def __init__(self, name: str, model: str, kind: ApiKind, ask: Ask, *, local: bool = False) -> None:
        self.name, self.model, self.kind = name, model, kind
        self._ask = ask
        self._local = local

    async def run(self, task: SessionTask) -> Transcript:
        """Ask once. Usage is always there: what the provider told, else an estimate (`EstimatedUsage`)."""
        try:
            async with asyncio.timeout(task.deadline):
                body = await self._ask(task)
            transcript = read_answer(self.kind, body, local=self._local)
        except TimeoutError as error:
            failure = SessionFailure("timeout", f"no answer within {task.deadline:g} s")
            raise _with_cost(failure, task) from error
        except SessionFailure as failure:
            raise _with_cost(failure, task) from failure.__cause__
        return replace(transcript, usage=filled(transcript, transcript.usage, task))


def _with_cost(failure: SessionFailure, task: SessionTask) -> SessionFailure:
    """What failed on the way back may have been answered, and then it was paid for."""
    if failure.kind in _NOTHING_SPENT:
        return failure
    usage = failure.transcript.usage
    if not usage.input_tokens:
        failure.transcript = replace(failure.transcript, usage=EstimatedUsage(asked_tokens(task), 0))
    return failure


def for_json(prompt: Prompt) -> Prompt:
    """The prompt for a model that answers in JSON."""
    return replace(prompt, reminder=JSON_REMINDER)


def answer_schema(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an answer in JSON: the thought first, for what is written first is what the rest follows from."""
    return {
        "type": "object",
        "properties": {
            "thought": {"type": "string"},
            "routes": {"type": "array", "maxItems": 10, "items": dict(tool)},
        },
        "required": ["thought", "routes"],
        "additionalProperties": False,
    }
