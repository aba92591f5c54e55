"""What mypy is told of Structs: how they are copied. It takes them for dataclasses, which they are not.

mypy loads this as a plugin (`pyproject.toml`). Next: `integration/test_type_checker.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from mypy.nodes import TypeInfo
from mypy.plugin import FunctionContext, FunctionSigContext, Plugin
from mypy.plugins.dataclasses import replace_function_sig_callback
from mypy.types import CallableType, FunctionLike, Instance, Type, flatten_nested_unions, get_proper_type

_STRUCT: Final = "msgspec.Struct"
_REPLACE: Final = "msgspec.structs.replace"
_FOR_DATACLASSES: Final = {"dataclasses.replace", "dataclasses.asdict", "dataclasses.astuple", "dataclasses.fields"}


class CopiedStructs(Plugin):
    """`msgspec.structs.replace` gets a Struct and what fits its fields; functions for dataclasses get no Struct."""

    def get_function_signature_hook(self, fullname: str) -> Callable[[FunctionSigContext], FunctionLike] | None:
        """In msgspec's own stub `replace` takes anything."""
        return replace_function_sig_callback if fullname == _REPLACE else None

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """Calls that would pass, and fail when they are run."""
        if fullname == _REPLACE:
            return _only_structs
        return _no_structs if fullname in _FOR_DATACLASSES else None


def _only_structs(call: FunctionContext) -> Type:
    for one in _classes(call.arg_types[0]):
        if not one.has_base(_STRUCT):
            call.api.fail(f"{one.name} is no Struct; dataclasses has the same function", call.context)
    return call.default_return_type


def _no_structs(call: FunctionContext) -> Type:
    for one in _classes(call.arg_types[0]):
        if one.has_base(_STRUCT):
            call.api.fail(
                f"{one.name} is a Struct and no dataclass; msgspec.structs has the same functions", call.context
            )
    return call.default_return_type


def _classes(given: Sequence[Type]) -> Iterator[TypeInfo]:
    for one in map(get_proper_type, flatten_nested_unions(given)):
        of = get_proper_type(one.ret_type) if isinstance(one, CallableType) else one
        if isinstance(of, Instance):
            yield of.type


def plugin(_: str) -> type[Plugin]:
    """Called by mypy."""
    return CopiedStructs
