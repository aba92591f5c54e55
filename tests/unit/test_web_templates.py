"""PageTemplates of the page: nothing in them runs or is shown as it came, whatever others write into its values."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest
from jinja2 import UndefinedError

from switchboard.server.web import templates
from switchboard.server.web.static import StaticFiles
from switchboard.server.web.templates import PageTemplates, safe_address
from tests.documents import HOME

HERE: Final = HOME / "src/switchboard/server/web/templates"
_EXPRESSION: Final = re.compile(r"{{(.*?)}}", re.DOTALL)
_STATEMENT: Final = re.compile(r"{%.*?%}|{#.*?#}", re.DOTALL)
_ATTRIBUTE: Final = re.compile(r'\s+([^\s=>"/]+)(?:=("[^"]*"|[^\s>]*))?')
_HARMLESS: Final = re.compile(r"^(?:/|#|mailto:|«(?:address|static)\(|«back»$|«reload»$|«[^»]*\| link ?»$)")
_TEXTS: Final = re.compile(r"\|\s*safe\b|\bMarkup\b|\bautoescape\b|javascript:|\bjs:|<style|srcdoc")


class _Tags(HTMLParser):
    """Collects what is wrong with the tags of a template whose expressions are written «so»."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        text = self.get_starttag_text() or ""
        known = dict(attrs)
        for name, quoted in _ATTRIBUTE.findall(text[len(tag) + 1 :]):
            if quoted and not quoted.startswith('"'):
                self.wrong.append(f"without quotes: {text}")
            if name.startswith(("on", "hx-on")) or name == "style":
                self.wrong.append(f"{name}: {text}")
        if any(name.startswith("hx-") for name in known) and known.get("hx-nonce") != "«nonce»":
            self.wrong.append(f"without hx-nonce: {text}")
        if "[" in (known.get("hx-trigger") or ""):
            self.wrong.append(f"filter: {text}")
        if tag == "script" and (known.get("nonce") != "«nonce»" or "src" not in known):
            self.wrong.append(f"script: {text}")
        for name in ("href", "src", "action", "formaction", "hx-get", "hx-post"):
            if name in known and not _HARMLESS.match(known[name] or ""):
                self.wrong.append(f"{name} that others may choose: {text}")


def wrong_with(source: str) -> list[str]:
    """What a template must not have."""
    found = [f"text: {match.group()}" for match in _TEXTS.finditer(source)]
    tags = _Tags()
    tags.feed(
        _EXPRESSION.sub(lambda match: f"«{match[1].strip().replace(chr(34), chr(39))}»", _STATEMENT.sub("", source))
    )
    return found + tags.wrong


@pytest.mark.parametrize("file", sorted(HERE.glob("*.html")), ids=lambda file: file.name)
def test_a_template_holds_nothing_that_runs(file: Path) -> None:
    assert wrong_with(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "<p style='color:red'>",
        '<p onclick="x()">',
        '<p hx-on:click="x()" hx-nonce="{{ nonce }}">',
        '<a hx-get="/ui/x">',
        '<a hx-get="/ui/x" hx-nonce="{{ other }}">',
        '<a hx-get="/ui/x" hx-trigger="click[x]" hx-nonce="{{ nonce }}">',
        "<p title={{ name }}>",
        '<a href="{{ name }}">',
        "<script>x()</script>",
        '<script nonce="{{ nonce }}">x()</script>',
        "{{ name | safe }}",
        '<iframe srcdoc="{{ name }}">',
    ],
)
def test_the_check_of_templates_finds(source: str) -> None:
    assert wrong_with(source)


def test_whatever_the_name_of_a_template_it_escapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "_HERE", tmp_path)
    for name in ("a.html", "a.html.j2", "a.svg", "a.txt"):
        (tmp_path / name).write_text('<a title="{{ text }}">{{ text | visible }}</a>')
    made = PageTemplates(StaticFiles(), None)
    for name in ("a.html", "a.html.j2", "a.svg", "a.txt"):
        shown = made.render(name, {"text": '"><script>\u202e'})
        assert "<script>" not in shown
        assert "\\u202e" in shown
    with pytest.raises(UndefinedError):
        made.render("a.html", {})


@pytest.mark.parametrize(
    ("address", "safe"),
    [
        ("https://example.org/a?b", True),
        ("http://example.org", True),
        ("mailto:ann@example.org", True),
        ("javascript:alert(1)", False),
        (" JavaScript:alert(1)", False),
        ("java\nscript:alert(1)", False),
        ("data:text/html,x", False),
        ("//example.org", False),
        ("http://[", False),
    ],
)
def test_only_addresses_that_run_nothing_are_links(address: str, safe: bool) -> None:
    assert bool(safe_address(address)) is safe
