"""Pydantic models made from Structs: a Struct is the only list of its fields, their types, limits and defaults.

Called by `core/envelope/strict.py` for envelopes and by `app/settings.py` for the tables of the settings: pydantic says
what is wrong with them, and where. In: Structs; out: models, or types for the fields of other models. Next: those two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    runtime_checkable,
)

from msgspec import NODEFAULT, Meta, Struct
from msgspec.structs import FieldInfo, fields
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from switchboard.domain.json_values import JsonObject

_S = TypeVar("_S")
_EXACT: Final = ConfigDict(extra="forbid", frozen=True)


class ModelMaker:
    """Makes the models of Structs, each once, under the Struct's name; unknown fields are refused.

    `rules`: types that are replaced for pydantic. `limit`: pydantic's form of a `Meta`, which limits the given type.
    `validators`: those of a Struct's model, by name.
    """

    def __init__(
        self,
        rules: Mapping[Any, Any],
        limit: Callable[[object, Meta], tuple[object, ...]],
        validators: Callable[[type[Struct]], JsonObject],
    ) -> None:
        self._rules, self._limit, self._validators = rules, limit, validators
        self._made: dict[type[Struct], type[BaseModel]] = {}

    def model_of(self, struct: type[Struct]) -> type[BaseModel]:
        """The model with the fields of `struct`."""
        if struct not in self._made:
            known: JsonObject = {one.name: self._field_of(one) for one in fields(struct)}
            doc, checks = struct.__doc__, self._validators(struct)
            self._made[struct] = create_model(
                struct.__name__, __config__=_EXACT, __doc__=doc, __validators__=checks, **known
            )
        return self._made[struct]

    def _annotation_of(self, kind: Any) -> Any:
        """The same annotation in pydantic's terms."""
        if kind in self._rules:
            return self._rules[kind]
        if isinstance(kind, type) and issubclass(kind, Struct):
            return self.model_of(kind)
        origin, args = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return Annotated[self._annotation_of(args[0]), *self._limit(*args)]
        if origin in (Union, UnionType):
            return Union[tuple(map(self._annotation_of, args))]  # noqa: UP007 - its members are known only here
        if origin in (tuple, dict, Mapping):
            return (dict if origin is Mapping else origin)[tuple(map(self._annotation_of, args))]
        return kind

    def _field_of(self, one: FieldInfo) -> tuple[Any, Any]:
        if one.required:
            return self._annotation_of(one.type), ...
        default = one.default_factory() if one.default is NODEFAULT else one.default
        made = self.model_of(type(default)).model_validate({}) if isinstance(default, Struct) else default
        return self._annotation_of(one.type), made


# Tables -------------------------------------------------------------------------------------------------------------


@runtime_checkable
class _Checked(Protocol):
    def check(self) -> None: ...


def _limited_field(_: object, limit: Meta) -> tuple[object, ...]:
    names = ("gt", "ge", "lt", "le", "min_length", "max_length", "pattern")
    return (Field(**{name: getattr(limit, name) for name in names}),)


def _struct_validator(struct: type[Struct]) -> JsonObject:
    """What is valid becomes the Struct, whose `check`, if it has one, raises ValueError for fields that do not fit."""

    def to_struct(_: type[BaseModel], value: object, validate: Callable[[object], BaseModel]) -> Struct:
        if isinstance(value, struct):
            return value
        made = struct(**dict(validate(value)))
        if isinstance(made, _Checked):
            made.check()
        return made

    method: Any = classmethod(to_struct)
    return {"to_struct": model_validator(mode="wrap")(method)}


_TABLES: Final = ModelMaker({}, _limited_field, _struct_validator)

if TYPE_CHECKING:
    Table = Annotated[_S, "validated by the model of this Struct"]
else:

    class Table:
        """`Table[Struct]` as the type of a field of a pydantic model: a Struct, validated by its model."""

        def __class_getitem__(cls, struct: type[Struct]) -> type[BaseModel]:
            return _TABLES.model_of(struct)


def table_model(struct: type[Struct]) -> type[BaseModel]:
    """The model of a Struct that is known only at run time; what it validates becomes the Struct."""
    return _TABLES.model_of(struct)
