"""Routing by a model for embedders: `from switchboard.pipeline import MessagePipeline`.

All names are those of `journey/pipeline.py`; docs/models.md shows them at work. Next: there.
"""

from __future__ import annotations

from switchboard.journey.pipeline import (
    Dispatched,
    MessagePipeline,
    RoutingContext,
    RoutingResult,
    RoutingTask,
    Tried,
    email_check_and_route_inbox,
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
