"""Structs are the rule; frozen dataclasses and pydantic models are where decision 0122 wants them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final
from unittest.mock import Mock

import switchboard
from switchboard.app.runtime import Runtime, Switchboard
from switchboard.app.settings import Settings
from switchboard.server.app import create_app
from switchboard.server.contracts.gateway import gateway_schema
from switchboard.server.http.schema_names import published_name

SOURCE: Final = Path(switchboard.__file__).parent
MODELS: Final = {
    "agents/delivery.py",
    "agents/model/options.py",
    "agents/trio/options.py",
    "connectors/discord/settings.py",
    "connectors/email/settings.py",
    "connectors/kernel/accounts.py",
    "connectors/kernel/intake.py",
    "connectors/slack/settings.py",
    "connectors/telegram/settings.py",
    "connectors/webhook/manifest.py",
    "connectors/webhook/mapping.py",
    "connectors/whatsapp/settings.py",
    "core/remote_agents.py",
    "server/contracts/base.py",
    "testing/connectors/platform.py",
    "transport/mail_servers/server.py",
}
"""Where a model derives from `BaseModel` itself; those of `core/models_of.py` are made from Structs."""


@cache
def all_classes() -> tuple[tuple[str, ast.ClassDef], ...]:
    """Every class, and its module; the examples are others' programs."""
    return tuple(
        (str(path.relative_to(SOURCE)), node)
        for path in SOURCE.rglob("*.py")
        if not path.is_relative_to(SOURCE / "examples")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )


def classes(base: str) -> list[tuple[str, ast.ClassDef]]:
    """Those that derive from `base` directly."""
    return [(module, one) for module, one in all_classes() if any(ast.unparse(x).endswith(base) for x in one.bases)]


def frozen_dataclasses() -> Iterator[tuple[str, ast.ClassDef]]:
    """Those with `@dataclass(frozen=True, ...)`."""
    for module, one in all_classes():
        if any("frozen=True" in ast.unparse(decorator) for decorator in one.decorator_list):
            yield module, one


def published() -> set[str]:
    """The names of the classes whose schema we publish, of what they inherit from and of what inherits from them."""
    runtime = Runtime(Settings(), Mock(), Mock(), Mock())
    openapi = create_app(Switchboard(runtime, Mock(), Mock(), Mock())).openapi()
    names = {*openapi["components"]["schemas"], *gateway_schema()["$defs"]}
    found = [one for _, one in all_classes() if one.name in names or published_name(one.name) in names]
    names = {one.name for one in found} | {ast.unparse(base) for one in found for base in one.bases}
    return names | {one.name for _, one in all_classes() if not names.isdisjoint(map(ast.unparse, one.bases))}


def has_special_fields(one: ast.ClassDef) -> bool:
    """Whether it has a field that is left out of its `repr` or of comparisons, or that is not given; no Struct can."""
    return any(
        isinstance(node, ast.keyword) and node.arg in {"repr", "compare", "init"}
        for line in one.body
        for node in ast.walk(line)
    )


def test_models_are_where_they_belong() -> None:
    assert {module for module, _ in classes("BaseModel")} == MODELS
    assert not [module for module, _ in classes("BaseModel") if module.startswith("domain/")]


def test_frozen_dataclasses_are_published_or_have_special_fields() -> None:
    names = published()
    others = [one.name for _, one in frozen_dataclasses() if one.name not in names and not has_special_fields(one)]
    assert others == ["RoutingResult"], "make the others Structs"


def test_structs_are_frozen() -> None:
    assert [one.name for _, one in classes("Struct") if "frozen=True" not in map(ast.unparse, one.keywords)] == []


def test_no_value_shows_a_secret_where_it_is_logged() -> None:
    """By their names: a field of text or bytes that is called so is left out of the `repr` of its value."""
    secret = re.compile(r"(^|_)(api_key|authorization|password|secret|token): (str|bytes)( \| None)?( =|$)")
    fields = ((one.name, ast.unparse(line)) for _, one in all_classes() for line in one.body)
    assert [field for field in fields if secret.search(field[1]) and "repr=False" not in field[1]] == []
