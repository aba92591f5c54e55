"""Trees of any depth and shape are looked through and removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from switchboard.trees import remove_tree, walk


def _nest(place: Path, depth: int, name: str) -> None:
    """Directories inside each other, with a file in the last."""
    at = os.open(place, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=at)
        inner = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


def _open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def _refused(error: OSError) -> None:
    raise error


@pytest.mark.parametrize(("depth", "name"), [(0, "-"), (1, "a"), (63, "a"), (64, "a"), (65, "a"), (3000, "n" * 200)])
def test_depth_and_length_of_names_make_no_difference(tmp_path: Path, depth: int, name: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "beside").mkdir()
    (place / "beside" / "link").symlink_to(tmp_path)
    _nest(place, depth, name)
    before = _open_files()
    at = os.open(place, os.O_RDONLY)
    found = [(one.entry.name, one.depth) for one in walk(at, _refused)]
    os.close(at)
    assert sorted(found) == sorted(
        [("beside", 1), ("link", 2), ("file", depth + 1), *((name, n + 1) for n in range(depth))]
    )
    above = os.open(tmp_path, os.O_RDONLY)
    remove_tree(above, "place")
    os.close(above)
    assert ([*tmp_path.iterdir()], _open_files()) == ([], before)


def test_a_closed_directory_can_be_removed_and_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    closed = tmp_path / "place" / "a" / "b"
    closed.mkdir(parents=True)
    (closed / "link").symlink_to(tmp_path / "kept")
    closed.chmod(0)
    above = os.open(tmp_path, os.O_RDONLY)
    remove_tree(above, "place")
    os.close(above)
    assert [*(tmp_path / "kept").iterdir()] == [tmp_path / "kept" / "file"]
