"""The tables `[modules.NAME]` of the settings, as the Structs that manifests name.

`app/ops/modules.py` calls it for the modules that butlers have, and says where a mistake is. The others are not looked
at: their packages may not be installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Final

from msgspec import Struct
from pydantic import ConfigDict, create_model

from switchboard.core.models_of import table_model
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.module import ModuleManifest

_EXACT: Final = ConfigDict(frozen=True)


class NoSettings(Struct, frozen=True):
    """Of a module for which there is nothing to set."""


def settings_of(manifest: ModuleManifest) -> type[Struct]:
    """The Struct of its table."""
    return manifest.settings or NoSettings


def read_table(manifest: ModuleManifest, tables: Mapping[str, JsonMapping]) -> Struct:
    """The settings of a module. Raises pydantic's `ValidationError` with places such as `modules.calendar.every`."""
    fields: JsonObject = {manifest.name: (table_model(settings_of(manifest)), ...)}
    whole = create_model(
        "Settings", __config__=_EXACT, modules=(create_model("Tables", __config__=_EXACT, **fields), ...)
    )
    read = whole.model_validate({"modules": {manifest.name: dict(tables.get(manifest.name, {}))}})
    found: Struct = attrgetter(f"modules.{manifest.name}")(read)
    return found
