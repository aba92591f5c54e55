"""What a manifest asks for a new account, as data, and the settings that the answers make.

Faces put the answers into `values`, a tree of JSON by the paths of the questions. Next: `adding.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, get_args, get_origin

from msgspec import Struct
from pydantic import BaseModel, ValidationError, create_model
from pydantic.fields import FieldInfo

from switchboard.connectors.kernel.accounts import hint_of, wrong_setting
from switchboard.core.text.problems import wrong
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Manifest

_PLAIN: Final = frozenset({str, int, float, bool})
_GROUP: Final = "{}: {} is a value already"


class AccountQuestion(Struct, frozen=True):
    """A setting that is asked for; not `required`: it should be thought of, though it can be left out."""

    path: tuple[str, ...]
    setting: FieldInfo
    required: bool

    @property
    def name(self) -> str:
        """As in `imap.host`."""
        return ".".join(self.path)

    @property
    def hint(self) -> str:
        """Valid answers, in words or as choices; may be empty."""
        return hint_of(self.setting)

    @property
    def title(self) -> str:
        """What it is called on a page, if that is not its name."""
        return self.setting.title or ""

    @property
    def usual(self) -> str:
        """The value that it has otherwise, as one writes it; may be empty."""
        usual = self.setting.default
        if isinstance(usual, bool):
            return str(usual).lower()
        return str(usual) if isinstance(usual, str | int | float) else ""

    @property
    def choices(self) -> tuple[str, ...]:
        """All valid answers, if there are only some."""
        kind = self.setting.annotation
        if kind is bool:
            return ("true", "false")
        return tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()

    def read_answer(self, typed: str) -> object:
        """The value of a valid answer. Raises InvalidInput."""
        value = read_value(typed.strip())
        try:
            create_model("Typed", value=(self.setting.annotation or str, self.setting)).model_validate({"value": value})
        except ValidationError as error:
            raise InvalidInput(wrong(error.errors(include_url=False)[0]), field=self.name) from error
        return value


def questions_of(manifest: Manifest) -> Iterator[AccountQuestion]:
    """All questions, required ones first."""
    for path, setting in _wanted_fields(manifest.settings, FieldInfo.is_required):
        yield AccountQuestion(path, setting, required=True)
    for path, setting in _wanted_fields(manifest.settings, _is_worth_asking):
        yield AccountQuestion(path, setting, required=False)


def further_questions(manifest: Manifest) -> Iterator[AccountQuestion]:
    """Settings that nobody asks for, as their usual values fit; without tables, and without those of this machine."""
    asked = {one.path for one in questions_of(manifest)}
    for path, setting in _wanted_fields(manifest.settings, _is_plain):
        if path not in asked:
            yield AccountQuestion(path, setting, required=False)


def open_questions(manifest: Manifest, values: JsonObject) -> Iterator[AccountQuestion]:
    """Those that `values` do not answer; the caller puts each answer there before it asks for the next.

    Values that follow from others, such as the servers of a well-known provider, are added on the way.
    """
    for question in questions_of(manifest):
        if question.required:
            add_usual(manifest, values)
        if not _has_value(values, question.path):
            yield question


def add_usual(manifest: Manifest, values: JsonObject) -> None:
    """Add the usual values that belong to the given ones, changing none of these."""
    for name, value in (manifest.usual(values) if manifest.usual else {}).items():
        values.setdefault(name, value)


def check_settings(manifest: Manifest, values: JsonObject) -> BaseModel:
    """The settings that the values are. Raises InvalidInput, which names the setting."""
    add_usual(manifest, values)
    try:
        return manifest.settings.model_validate(values)
    except ValidationError as error:
        # `from None`: pydantic's message would otherwise replace this sentence, which names the setting.
        field = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        raise InvalidInput(wrong_setting(error, manifest.settings), field=field) from None


def require_from_afar(manifest: Manifest, values: JsonObject) -> None:
    """Check that no setting names a program or a file of this machine. Raises InvalidInput.

    Permission to add accounts over the network is none to run programs here. Packages mark such settings
    with `json_schema_extra={"local": True}`; paths count as marked.
    """
    for path, _ in _wanted_fields(manifest.settings, _is_local):
        if _has_value(values, path):
            name = ".".join(path)
            raise InvalidInput(
                f"{name} names a program or a file of the machine, and is set only there: "
                f"switchboard channels add {manifest.name} --set {name}=…",
                field=name,
            )


def put_given(values: JsonObject, given: str) -> None:
    """Put in a setting that was written as `NAME=VALUE`. Raises InvalidInput."""
    name, is_set, value = given.partition("=")
    if not (is_set and name):
        raise InvalidInput(f"{given!r}: write NAME=VALUE, such as imap.host=imap.example.org")
    put_value(values, name.strip().split("."), read_value(value))


def put_value(values: JsonObject, path: Sequence[str], value: object) -> None:
    """Put a value in, below its groups. Raises InvalidInput."""
    *groups, name = path
    for group in groups:
        values = values.setdefault(group, {})
        if not isinstance(values, dict):
            raise InvalidInput(_GROUP.format(".".join(path), group))
    values[name] = value


def read_value(typed: str) -> object:
    """Lists and tables are written as JSON; everything else stays text, which the settings parse."""
    if typed.startswith(("[", "{")):
        try:
            return json.loads(typed)
        except (ValueError, RecursionError):
            return typed
    return typed


def _has_value(values: object, path: Sequence[str]) -> bool:
    for name in path:
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def _wanted_fields(
    settings: type[BaseModel], wanted: Callable[[FieldInfo], bool], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """The settings that are wanted, also those of groups; of a group that may be left out none is required."""
    for name, setting in settings.model_fields.items():
        kind = setting.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if wanted is not FieldInfo.is_required or setting.is_required():
                yield from _wanted_fields(kind, wanted, (*above, name))
        elif wanted(setting):
            yield (*above, name), setting


def _is_worth_asking(setting: FieldInfo) -> bool:
    """Whether it should be thought of, though it can be left out."""
    return isinstance(setting.json_schema_extra, dict) and bool(setting.json_schema_extra.get("ask"))


def _is_plain(setting: FieldInfo) -> bool:
    """Whether its value is a word, a number, or yes or no."""
    kinds = {setting.annotation, *get_args(setting.annotation)}
    return not _is_local(setting) and (get_origin(setting.annotation) is Literal or not kinds.isdisjoint(_PLAIN))


def _is_local(setting: FieldInfo) -> bool:
    """Whether it names something of this machine."""
    marked = isinstance(setting.json_schema_extra, dict) and bool(setting.json_schema_extra.get("local"))
    return marked or Path in {setting.annotation, *get_args(setting.annotation)}
