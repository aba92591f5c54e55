"""Reads documents that people write: rules, route tests, SOPs, envelopes, as JSON or YAML.

Called by the commands that take a FILE. In: a path (`-` is stdin); out: a JSON value, or InvalidInput with file and
place. Only the JSON subset of YAML is read: ids, times and telephone numbers stay as written, keys are unique, and
nothing is constructed or expanded. Conversely, `write_document` writes either, by suffix. Next: the server, which
interprets the document.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from switchboard.domain.errors import InvalidInput, NotFound

STDIN: Final = Path("-")
MAX_BYTES: Final = 67_108_864
"""More is not read as a document: the API would refuse it too."""

_YAML: Final = frozenset({".yaml", ".yml"})
_TAG: Final = "tag:yaml.org,2002:"


def read_document(path: Path) -> object:
    """The content of a JSON or YAML file. Raises NotFound, or InvalidInput with the place of the error."""
    text = _text(path)
    if path.suffix.lower() in _YAML or (path.suffix.lower() != ".json" and not text.lstrip().startswith(("{", "["))):
        return _from_yaml(text, path)
    return _from_json(text, path)


def read_object(path: Path) -> Mapping[str, object]:
    """The same for a document that must be an object."""
    document = read_document(path)
    if not isinstance(document, dict):
        raise InvalidInput(f"{path} must contain one object (key: value), it contains {_kind(document)}")
    return document


def write_document(path: Path, document: Mapping[str, object]) -> None:
    """Write YAML if the suffix says so, otherwise JSON; atomically."""
    aside = path.with_name(f".{path.name}.part")
    try:
        aside.write_text(render_document(document, as_yaml=path.suffix.lower() in _YAML), encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from error


def render_document(document: Mapping[str, object], *, as_yaml: bool = False) -> str:
    """The document as text for reading and editing; `read_document` restores it."""
    if as_yaml:
        return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_bytes(path: Path) -> bytes:
    """The raw content of a file. Raises NotFound, InvalidInput."""
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"file not found: {path}") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"{path} is larger than {MAX_BYTES // 2**20} MiB")
    return data


def _text(path: Path) -> str:
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 (byte {error.start})") from error


def _from_json(text: str, path: Path) -> object:
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{path}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
    except (InvalidInput, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """An object with unique keys: of two equal ones, the first would be silently ignored."""
    seen: dict[str, object] = {}
    for name, value in pairs:
        if name in seen:
            raise InvalidInput(f"the key {name!r} occurs twice in one object; remove one")
        seen[name] = value
    return seen


def _no_number(word: str) -> object:
    raise InvalidInput(f"{word} is not a JSON number")


def _from_yaml(text: str, path: Path) -> object:
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        kind = "not YAML: " if isinstance(error, yaml.scanner.ScannerError | yaml.parser.ParserError) else ""
        raise InvalidInput(f"{path}{place}: {kind}{error.problem or error.context or 'unreadable'}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} cannot be read: {' '.join(str(error).split())}") from error


class _Dumper(yaml.SafeDumper):
    """Quotes unprintable characters: YAML takes some of them for line ends."""

    def text(self, value: str) -> yaml.Node:
        """A string, quoted where necessary."""
        return self.represent_scalar(f"{_TAG}str", value, style=None if value.isprintable() else '"')


_Dumper.add_representer(str, _Dumper.text)


class _Loader(yaml.SafeLoader):
    """YAML as far as JSON goes.

    Other YAML readers turn 0123 into 83, 12:30 into 750, `no` into false and a date into an object; here they stay
    text.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as in the base
    yaml_constructors = {  # noqa: RUF012 - as in the base
        f"{_TAG}{kind}": yaml.SafeLoader.yaml_constructors[f"{_TAG}{kind}"]
        for kind in ("null", "bool", "int", "float", "str", "seq")
    }

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse aliases: a few lines of them can expand to gigabytes."""
        if self.check_event(yaml.AliasEvent):
            mark = self.current_event.start_mark
            raise yaml.composer.ComposerError(None, None, "aliases are not supported here; write it out", mark)
        return super().compose_node(parent, index)


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, object]:
    found: dict[str, object] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} must be a string; put it in quotes", key_node.start_mark
            )
        if key in found:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} occurs twice in one object; remove one", key_node.start_mark
            )
        found[key] = loader.construct_object(value_node, deep=True)
    return found


def _refuse_tag(_: _Loader, node: yaml.Node) -> object:
    raise yaml.constructor.ConstructorError(None, None, f"the tag {node.tag} is not supported here", node.start_mark)


_Loader.add_constructor(f"{_TAG}map", _mapping)
_Loader.add_constructor(None, _refuse_tag)
for _kind_of, _pattern, _first in (
    ("null", r"~|null|", ["~", "n", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"-?(?:0|[1-9][0-9]*)", list("-0123456789")),
    ("float", r"-?(?:0|[1-9][0-9]*)\.[0-9]+(?:e[-+][0-9]+)?", list("-0123456789")),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_kind_of}", re.compile(rf"^(?:{_pattern})\Z"), _first)


def _kind(value: object) -> str:
    return "a list" if isinstance(value, list) else "nothing" if value is None else "one value"
