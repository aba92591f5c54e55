"""Posts each dead letter to the webhook `dead_letters.tell`, signed.

`app/ops/maintenance.py` has one of the workers call `DeadLetterWebhook.post_due` every few seconds. In: dead letters
that are not posted yet; out: requests with `dead_letter.v1`, which contains nothing that a sender wrote. A request that
fails, or whose outcome is unknown, is repeated with the same `Idempotency-Key`, the id of the dead letter: first after
30 s and finally once an hour, until the dead letter is handled. Next: `store/messages/dead_letters.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec
import structlog
from msgspec.structs import asdict

from switchboard.store.database import Database
from switchboard.store.messages import dead_letters
from switchboard.store.messages.dead_letters import Backoff, DeadLetterReport
from switchboard.transport.signed_post import PostDestination, PostError, destination, post
from switchboard.transport.webhook_spec import WebhookSpec

SCHEMA_VERSION: Final = "dead_letter.v1"
_TIMEOUT_S: Final = 4.0
_BEGIN_WITHIN_S: Final = 1.0
"""No batch begins later: other maintenance waits meanwhile, so for 5 s at most."""
_BACKOFF: Final = Backoff(base=30.0, cap=3600.0)
_AT_ONCE: Final = 10
_BATCHES: Final = 10

log = structlog.get_logger(__name__)


def destination_of(webhook: WebhookSpec) -> PostDestination:
    """The webhook as it can be called from here. Raises ConfigurationError."""
    return destination(webhook, "dead_letters.tell", _TIMEOUT_S)


class DeadLetterWebhook:
    """Posts dead letters to the webhook. Raises ConfigurationError if it cannot be called from here.

    `clock` returns monotonic seconds.
    """

    def __init__(
        self, database: Database, webhook: WebhookSpec, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._clock = clock
        self._to = destination_of(webhook)

    async def post_due(self) -> int:
        """Post the dead letters that are due, a hundred at most, for some 5 s and until one fails.

        Returns how many were accepted.
        """
        count, began = 0, self._clock()
        for _ in range(_BATCHES):
            due = await dead_letters.to_tell(self._database, _AT_ONCE, _BACKOFF)
            told = sum(await asyncio.gather(*map(self._send_report, due)))
            count += told
            if told < _AT_ONCE or self._clock() - began > _BEGIN_WITHIN_S:
                break
        return count

    async def _send_report(self, report: DeadLetterReport) -> bool:
        why = await self._post_report(report)
        if why is None:
            await dead_letters.told(self._database, report.dead_letter_id)
        else:
            log.warning(
                "a dead letter was not accepted by the webhook", dead_letter_id=str(report.dead_letter_id), error=why
            )
        return why is None

    async def _post_report(self, report: DeadLetterReport) -> str | None:
        """Why it failed."""
        try:
            posted = await post(self._to, report_json(report), report.dead_letter_id)
        except PostError as error:
            return str(error)
        return None if 200 <= posted.status < 300 else f"the webhook answered {posted.status}"


def report_json(report: DeadLetterReport) -> bytes:
    """`dead_letter.v1`; `text` is one sentence, for chats."""
    where = f"Dead letter in team {report.team_id}"
    text = f"{where}: {report.category} ({report.reason}). See: switchboard dlq show {report.dead_letter_id}"
    return msgspec.json.encode({"schema_version": SCHEMA_VERSION, **asdict(report), "text": text})
