"""An async function as a tool: its JSON Schema, its arguments checked, its result as an outcome.

`typed_tool` in `module.py` imports it late, because of pydantic. In: a function with annotations and a docstring; out:
what a `ModuleTool` consists of. Wrong arguments are outcomes that say what would be correct.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.tools import PreparedCall, PrepareTool, ToolOutcome, ToolScope

_EXACT: Final = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)
_LIMITS: Final = ("gt", "ge", "lt", "le", "min_length", "max_length", "pattern", "description", "examples")
_OF_SCHEMAS: Final = ("properties", "$defs")
_SCHEMAS: Final = ("items", "additionalProperties")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_MOST_ERRORS: Final = 5
_PREFIX: Final = "argument_"
"""Before the names of the model's fields: an argument may be called like a method of a model."""


class TypedCall:
    """A function as a tool. Raises `ValueError` for one that cannot be one."""

    def __init__(self, function: Callable[..., Awaitable[object]]) -> None:
        self.name = getattr(function, "__name__", "")
        self.description = inspect.cleandoc(function.__doc__ or "")
        if not inspect.iscoroutinefunction(function) or not self.description:
            raise ValueError(f"{self.name or function} must be an async function with a docstring")
        self._function = function
        hints, others = _parameters_of(function)
        self._scope = _scope_among(others, hints)
        self._model = _model_of(self.name, [one for one in others if one.name != self._scope], hints)

    @property
    def parameters(self) -> JsonObject:
        """The JSON Schema of the arguments."""
        return {"properties": {}, **_without_titles(self._model.model_json_schema())}

    async def run(self, module: object, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """As `RunTool`."""
        given = self._read_arguments(arguments)
        if isinstance(given, ToolOutcome):
            return given
        return outcome_of(await self._function(module, **given, **({self._scope: scope} if self._scope else {})))

    def preparing(self, prepare: Callable[..., Awaitable[PreparedCall | ToolOutcome]]) -> PrepareTool:
        """A `PrepareTool` from a function with the same parameters, or some of them."""
        hints, others = _parameters_of(prepare)
        its_scope = _scope_among(others, hints)
        wanted = {one.name for one in others} - {its_scope}

        async def look_up(module: object, arguments: JsonMapping, scope: ToolScope) -> PreparedCall | ToolOutcome:
            given = self._read_arguments(arguments)
            if isinstance(given, ToolOutcome):
                return given
            known = {name: value for name, value in given.items() if name in wanted}
            return await prepare(module, **known, **({its_scope: scope} if its_scope else {}))

        return look_up

    def _read_arguments(self, arguments: JsonMapping) -> JsonObject | ToolOutcome:
        """The arguments as the function wants them; an outcome, if they are wrong."""
        try:
            read = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            return ToolOutcome(f"{self.name} was not called: {_describe_errors(error)}", ok=False)
        return {name.removeprefix(_PREFIX): getattr(read, name) for name in type(read).model_fields}


def outcome_of(result: object) -> ToolOutcome:
    """What a model is told of the result of a function: text as it is, everything else as JSON."""
    if isinstance(result, ToolOutcome):
        return result
    return ToolOutcome(result if isinstance(result, str) else msgspec.json.encode(result).decode())


def _parameters_of(function: Callable[..., object]) -> tuple[Mapping[str, Any], list[inspect.Parameter]]:
    """The annotations of a function, and its parameters after the first, which is the module."""
    _, *others = inspect.signature(function).parameters.values()
    return get_type_hints(function, include_extras=True), others


def _scope_among(parameters: list[inspect.Parameter], hints: Mapping[str, Any]) -> str | None:
    return next((one.name for one in parameters if hints.get(one.name) is ToolScope), None)


def _model_of(name: str, parameters: list[inspect.Parameter], hints: Mapping[str, Any]) -> type[BaseModel]:
    fields: JsonObject = {}
    for one in parameters:
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) or one.name not in hints:
            raise ValueError(f"{name}: the parameter {one.name} must have a name and an annotation")
        default = ... if one.default is one.empty else one.default
        fields[_PREFIX + one.name] = (_annotation_of(hints[one.name]), Field(default, alias=one.name))
    return create_model(name, __config__=_EXACT, **fields)


def _annotation_of(hint: Any) -> Any:
    """The same annotation in pydantic's terms: a text in it is a description, a `Meta` a limit."""
    if get_origin(hint) is not Annotated:
        return hint
    kind, *notes = get_args(hint)
    return Annotated[kind, *(note for one in notes for note in _notes_of(one))]


def _notes_of(note: object) -> tuple[object, ...]:
    if isinstance(note, str):
        return (Field(description=note),)
    if isinstance(note, Meta):
        return (Field(**{name: value for name in _LIMITS if (value := getattr(note, name)) is not None}),)
    return (note,)


def _without_titles(schema: JsonMapping) -> JsonObject:
    """A schema without the titles that pydantic makes of names: a model learns nothing from them."""
    kept = {word: value for word, value in schema.items() if word != "title"}
    for word in _OF_SCHEMAS:
        if word in kept:
            kept[word] = {name: _without_titles(inner) for name, inner in kept[word].items()}
    for word in _SCHEMAS:
        if isinstance(kept.get(word), Mapping):
            kept[word] = _without_titles(kept[word])
    for word in _LISTS:
        if word in kept:
            kept[word] = [_without_titles(inner) for inner in kept[word]]
    return kept


def _describe_errors(error: ValidationError) -> str:
    """What is wrong with the arguments, a clause each, and what would be correct."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    told = [f"{'.'.join(map(str, one['loc']))}: {one['msg'][:1].lower()}{one['msg'][1:]}" for one in problems]
    return "; ".join(told[:_MOST_ERRORS])
