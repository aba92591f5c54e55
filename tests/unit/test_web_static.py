"""Static files of the page: what others wrote is unchanged, and all of it is small."""

from __future__ import annotations

import re
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest

from switchboard.server.web import static
from switchboard.server.web.static import FILES, StaticFiles
from tests.documents import HOME

HERE = Path(static.__file__).with_name("static")


@pytest.mark.parametrize("place", [HERE / "vendored", HOME / "tests/web"], ids=["page", "tests"])
def test_what_others_wrote_is_unchanged(place: Path) -> None:
    listed = tomllib.loads((place / "vendored.toml").read_text(encoding="utf-8"))
    told = {name: digest for package in listed.values() for name, digest in package["files"].items()}
    there = {
        file.name: sha256(file.read_bytes()).hexdigest() for file in place.iterdir() if file.name != "vendored.toml"
    }
    assert told == there
    for package in listed.values():
        assert package["version"] in package["url"]
        assert re.fullmatch("[0-9a-f]{64}", package["sha256"])


def test_a_name_has_the_hash_of_the_content_and_is_kept_for_ever() -> None:
    files = StaticFiles()
    for name in FILES:
        answer = files.answer(files.address(name).rpartition("/")[2])
        assert sha256(bytes(answer.body)).hexdigest()[:16] in files.address(name)
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert files.answer("style-0000000000000000.css").status_code == 404


def test_what_a_first_page_loads_is_small() -> None:
    files = StaticFiles()
    assert sum(len(files.answer(files.address(name).rpartition("/")[2]).body) for name in FILES) < 90_000


@pytest.mark.parametrize(("name", "most"), [("app.js", 5_500), ("chat.js", 2_000)])
def test_our_own_scripts_are_small(name: str, most: int) -> None:
    """As they are served, comments included."""
    assert (HERE / name).stat().st_size <= most


def test_the_style_loads_nothing() -> None:
    assert not re.search(r"@import|url\(", (HERE / "style.css").read_text(encoding="utf-8"))
