"""Between pipeline and dispatcher: the task of the one for the other, and what came of it in the pipeline's words.

`app/classifier.py` calls `ask` and `told` for the `dispatch_fn` that it gives to `journey/pipeline.py`. Next:
`dispatch.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from switchboard.agents.sessions.dispatch import Attempt, Checks, Dispatcher, Report
from switchboard.agents.sessions.port import EstimatedUsage, SessionTask
from switchboard.agents.sessions.spec import CLI_KINDS
from switchboard.core.pipeline.transcript import Transcript, Usage
from switchboard.core.pipeline.verdict import is_ours, parse_calls
from switchboard.core.policy.budget import Account
from switchboard.domain.pipeline import Candidate
from switchboard.journey.pipeline import Dispatched, RoutingTask, Tried

MAX_ANSWER_TOKENS: Final = 16_384
"""Most tokens of an answer; of a model its own limit counts, which is less."""


@dataclass(frozen=True, slots=True)
class Terms:
    """For one task: where our MCP server is, seconds for all models together, most tokens of an answer."""

    mcp_url: str | None = None
    deadline: float = 120.0
    max_tokens: int = MAX_ANSWER_TOKENS


async def ask(dispatcher: Dispatcher, task: RoutingTask, terms: Terms, account: Account) -> Report:
    """Ask the models; `account` is what the message has cost before. That nobody answered is an outcome as well."""
    question = SessionTask(
        *(task.prompt, task.tool, task.request_id, task.token),
        mcp_url=terms.mcp_url,
        max_tokens=terms.max_tokens,
        deadline=terms.deadline,
    )
    checks = Checks(lambda transcript: unfit(transcript, task.candidates), task.taken)
    return await dispatcher.run(question, account, checks)


def unfit(transcript: Transcript, candidates: Sequence[Candidate]) -> str | None:
    """What is wrong with an answer; None if it routes the message. Calls not carried out yet count as if they were."""
    return parse_calls(carried_out(transcript), candidates).error


def carried_out(transcript: Transcript) -> Transcript:
    """The transcript as if every call that nobody has carried out yet had been accepted."""
    calls = [
        replace(call, ok=True, result={"status": "accepted"}) if call.ok is None and is_ours(call) else call
        for call in transcript.calls
    ]
    return replace(transcript, calls=tuple(calls))


def told(report: Report) -> Dispatched:
    """The report in the pipeline's words: what was tried in vain, and the transcript that counts.

    Where nobody answered, the last attempt stands in it as a session without a call.
    """
    by_token = report.by is None or report.by.kind in CLI_KINDS
    if report.transcript is not None and report.by is not None:
        transcript = replace(report.transcript, model=report.by.name)  # as the settings call it, and the operator
        return Dispatched(transcript, by_token, tuple(map(_tried, _before(report))))
    failure = report.failure
    message = failure.message if failure is not None else "nobody answered"
    if not report.attempts:
        return Dispatched(Transcript(errors=(message,)), by_token)
    *earlier, last = report.attempts
    transcript = Transcript(usage=_usage(last), model=last.name, errors=(message,))
    return Dispatched(transcript, by_token, tuple(map(_tried, earlier)))


def _before(report: Report) -> list[Attempt]:
    """All attempts but the one whose transcript it is: the last that got an answer."""
    of = max(n for n, one in enumerate(report.attempts) if one.outcome in {"answered", "unfit"})
    return [one for n, one in enumerate(report.attempts) if n != of]


def _tried(attempt: Attempt) -> Tried:
    return Tried(attempt.name, f"{attempt.outcome}: {attempt.message}"[:1000], _usage(attempt), attempt.ms)


def _usage(attempt: Attempt) -> Usage:
    kind = EstimatedUsage if attempt.estimated else Usage
    # Nothing was spent, or nobody told a price: unknown is not free.
    cost = attempt.micros / 1e6 if attempt.micros else None
    return kind(attempt.input_tokens, attempt.output_tokens, cost)
