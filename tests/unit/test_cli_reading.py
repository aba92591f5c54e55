"""What people write as JSON or YAML is read as it stands, and refused with its place where it cannot be."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from switchboard.cli.reading import STDIN, read_document, read_object, render_document, write_document
from switchboard.domain.errors import InvalidInput, NotFound

_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)


def _file(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "word",
    ["0123", "12:30", "no", "on", "Yes", "2026-11-21", "2026-11-21T12:00:00Z", "+15550000", "1_000", "0x1F", "5.",
     "1e5", ".nan", ".inf", "TRUE", "Null", "=", "-1002144870032a"],
)  # fmt: skip
def test_words_that_other_readers_of_yaml_turn_into_something_else(tmp_path: Path, word: str) -> None:
    assert read_document(_file(tmp_path, "x.yaml", f"value: {word}\n")) == {"value": word}


@pytest.mark.parametrize(
    ("word", "value"),
    [("5", 5), ("-1002144870032", -1002144870032), ("0", 0), ("true", True), ("false", False), ("null", None),
     ("", None), ("~", None), ("1.5", 1.5), ('"5"', "5"), ("'true'", "true"), ("[a, 1]", ["a", 1])],
)  # fmt: skip
def test_what_json_can_say_is_what_it_says(tmp_path: Path, word: str, value: object) -> None:
    read = read_object(_file(tmp_path, "x.yml", f"value: {word}\n"))["value"]
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", '{"a": 1, "a": 2}', "'a' occurs twice"),
        ("a.yaml", "cases:\n- a: 1\n  a: 2\n", "line 3, column 3: the key 'a' occurs twice"),
        ("a.yaml", "a: &x [1]\nb: *x\n", "line 2, column 4: aliases are not supported here"),
        ("a.yaml", "5: x\n", "the key 5 must be a string"),
        ("a.yaml", "[a]: x\n", "must be a string"),
        ("a.yaml", "a: !!python/object:os.system {}\n", "is not supported here"),
        ("a.yaml", "a: !!timestamp 2026-11-21\n", "is not supported here"),
        ("a.yaml", "a: !!binary aGk=\n", "is not supported here"),
        ("a.yaml", "a: [1\nb: 2\n", "line 2, column 2: not YAML: "),
        ("a.yaml", "a: 1\n---\nb: 2\n", "line 2"),
        ("a.yaml", "[" * 50_000, "cannot be read"),
        ("a.json", "[" * 500_000, "cannot be read"),
        ("a.json", '{"a": NaN}', "NaN is not a JSON number"),
        ("a.json", '{"a": 1', "line 1, column 8: not JSON"),
        ("a.yaml", "a: \x00\n", "cannot be read"),
        ("a.yaml", f"a: {'9' * 5000}\n", "cannot be read"),
        ("list.yaml", "- a\n", "must contain one object (key: value), it contains a list"),
        ("empty.yaml", "", "it contains nothing"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_its_place(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_object(_file(tmp_path, name, text))
    assert said in refused.value.message
    assert name in refused.value.message


def test_files_that_are_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="file not found"):
        read_document(tmp_path / "nowhere.yaml")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_document(tmp_path)
    (tmp_path / "x.json").write_bytes(b'{"a": "\xe9"}')
    with pytest.raises(InvalidInput, match="not UTF-8"):
        read_document(tmp_path / "x.json")
    with pytest.raises(InvalidInput, match="cannot be written"):
        write_document(tmp_path / "no" / "file.json", {})


def test_without_a_suffix_it_is_what_it_looks_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_document(_file(tmp_path, "rules", "\ufeff{}")) == {}
    assert read_document(_file(tmp_path, "tests", "a: 1")) == {"a": 1}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'[{"a": 1}]')))
    assert read_document(STDIN) == [{"a": 1}]


@given(_JSON)
@example({"\x85": "\u2028a\ufeff\n"})
def test_what_is_written_is_read_again(value: object) -> None:
    document = {"value": value}
    for as_yaml in (False, True):
        text = render_document(document, as_yaml=as_yaml)
        assert json.dumps(_read_text(text, as_yaml=as_yaml)) == json.dumps(document)


def _read_text(text: str, *, as_yaml: bool) -> object:
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(text.encode()))
    try:
        # stdin has no suffix: an object in braces is JSON, lines of `key: value` are YAML.
        assert text.startswith("{") is not as_yaml
        return read_document(STDIN)
    finally:
        sys.stdin = stdin


def test_a_file_is_written_whole_and_by_its_suffix(tmp_path: Path) -> None:
    document = {"rules": [{"name": "a", "filters": {"telegram_chat_id": "5"}}]}
    for name, start in (("rules.yaml", "rules:"), ("rules.json", "{")):
        write_document(tmp_path / name, document)
        assert (tmp_path / name).read_text().startswith(start)
        assert read_document(tmp_path / name) == document
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rules.json", "rules.yaml"]
