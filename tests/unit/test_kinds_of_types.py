"""Dataclasses are the rule; Structs and pydantic models are where decision 0042 wants them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

import switchboard

SOURCE: Final = Path(switchboard.__file__).parent
STRUCTS: Final = {
    # JSON of others
    "agents/callback.py",
    "agents/delivery.py",
    "transport/mcp_session.py",
    "transport/mail_frames.py",
    "core/envelope/fast.py",
    "domain/envelope.py",
    "server/fastpath/mcp_ingest.py",
    "testing/scripted_llm/faults.py",
    "testing/scripted_llm/script.py",
    # created for every message, and for every turn
    "app/messages/intake.py",
    "domain/ledger.py",
    "domain/message.py",
    "domain/routing.py",
    "journey/accept.py",
    "lanes/batch.py",
    "store/inbox.py",
    "store/lanes.py",
    # created for every step of a plan, or every call of a tool
    "core/planning/machine.py",
    "ports/engine.py",
    "ports/tools.py",
    "store/steps.py",
}
MODELS: Final = {
    "agents/delivery.py",
    "agents/model/options.py",
    "agents/trio/options.py",
    "app/settings.py",
    "connectors/email/settings.py",
    "connectors/kernel/accounts.py",
    "connectors/kernel/intake.py",
    "connectors/telegram/settings.py",
    "connectors/webhook/manifest.py",
    "connectors/webhook/mapping.py",
    "core/remote_agents.py",
    "server/contracts/messages.py",
    "testing/connectors/platform.py",
}
"""Where a model derives from `BaseModel` itself; those of `core/envelope/strict.py` are made from Structs."""


@cache
def all_classes() -> tuple[tuple[str, ast.ClassDef], ...]:
    """Every class, and its module."""
    return tuple(
        (str(path.relative_to(SOURCE)), node)
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )


def classes(base: str) -> list[tuple[str, ast.ClassDef]]:
    """Those that derive from `base` directly."""
    return [(module, one) for module, one in all_classes() if any(ast.unparse(x).endswith(base) for x in one.bases)]


def test_structs_and_models_are_where_they_belong() -> None:
    assert {module for module, _ in classes("Struct")} == STRUCTS
    assert {module for module, _ in classes("BaseModel")} == MODELS
    assert not [module for module, _ in classes("BaseModel") if module.startswith("domain/")]


def test_structs_are_frozen() -> None:
    assert [one.name for _, one in classes("Struct") if "frozen=True" not in map(ast.unparse, one.keywords)] == []
