"""Routing by a model for embedders: `from switchboard.pipeline import MessagePipeline`.

All names but one are those of `journey/pipeline.py`; docs/models.md shows them at work. `email_check_and_route_inbox`
is older than connectors and lives here. Next: there.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from switchboard.core.pipeline.transcript import string
from switchboard.journey.pipeline import (
    Dispatched,
    MessagePipeline,
    RoutingContext,
    RoutingResult,
    RoutingTask,
    Tried,
    routing_context,
)

__all__ = [
    "Dispatched",
    "MessagePipeline",
    "RoutingContext",
    "RoutingResult",
    "RoutingTask",
    "Tried",
    "email_check_and_route_inbox",
    "routing_context",
]


async def email_check_and_route_inbox(
    pipeline: MessagePipeline, mails: Iterable[Mapping[str, Any]]
) -> list[RoutingResult]:
    """Deprecated tool of the e-mail module: route mails that it has fetched, each with its `text` and source arguments.

    The connector for mail submits them to the Switchboard instead.
    """
    warnings.warn(
        "email_check_and_route_inbox is deprecated: use a connector for mail, which submits to the Switchboard",
        DeprecationWarning,
        stacklevel=2,
    )
    return [
        await pipeline.process(
            string(mail.get("text")), {"source_channel": "email", **mail}, tool_name="email_check_and_route_inbox"
        )
        for mail in mails
    ]
