"""Where control groups can be made, and what is written into them, as the files of the kernel say it.

The kernel itself is asked in `integration/test_sandbox.py`, where it has any; version 2 is read here from a copy of
what such machines show.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from switchboard.sandbox.cgroups import CommandLimits, ControlGroup, find_parents

TOTALS = CommandLimits(memory=1 << 30, processes=256)
SERVICE = "/system.slice/switchboard.service"


def a_machine(place: Path, mounts: str, groups: str, files: Mapping[str, str]) -> Path:
    """What a process sees; `CG` in the mounts is where the files are."""
    process = place / "self"
    process.mkdir()
    (process / "mountinfo").write_text(mounts.replace("CG", f"{place}/cg"))
    (process / "cgroup").write_text(groups)
    for name, text in files.items():
        file = place / "cg" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return process


def found(place: Path, process: Path) -> list[tuple[dict[str, str], int]]:
    """The directories by controller, and the version."""
    return [
        ({name: f"{one.relative_to(place / 'cg')}" for name, one in parents.directories.items()}, parents.version)
        for parents in find_parents(process)
    ]


UNIFIED = "30 23 0:26 / CG rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n25 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
CONTROL = "cgroup.subtree_control"


def test_version_2_is_used_beside_our_own_group(tmp_path: Path) -> None:
    files = {f"{SERVICE[1:]}/{CONTROL}": "cpu memory pids\n", CONTROL: "cpuset cpu io memory pids\n"}
    process = a_machine(tmp_path, UNIFIED, f"0::{SERVICE}/main\n", files)
    service, root = found(tmp_path, process)[:1], found(tmp_path, process)[-1]
    below = SERVICE[1:]
    assert service == [({"pids": below, "memory": below, "cpu": below}, 2)]
    assert root == ({"pids": ".", "memory": ".", "cpu": "."}, 2)


def test_controllers_that_are_missing_are_asked_for_one_by_one(tmp_path: Path) -> None:
    files = {f"{SERVICE[1:]}/{CONTROL}": "pids\n"}
    process = a_machine(tmp_path, UNIFIED, f"0::{SERVICE}/main\n", files)
    assert found(tmp_path, process)[:1] != [({"pids": SERVICE[1:]}, 2)]
    assert (tmp_path / "cg" / SERVICE[1:] / CONTROL).read_text() == "+memory"


def test_version_2_without_processes_is_of_no_use(tmp_path: Path) -> None:
    files = {f"{SERVICE[1:]}/{CONTROL}": "", CONTROL: "hugetlb\n"}
    assert found(tmp_path, a_machine(tmp_path, UNIFIED, f"0::{SERVICE}/main\n", files)) == []


def test_what_a_container_shows_of_the_hierarchy_begins_at_its_own_group(tmp_path: Path) -> None:
    mounts = "30 23 0:26 /docker/abc CG rw - cgroup2 cgroup2 rw\n"
    files = {CONTROL: "memory pids\n"}
    process = a_machine(tmp_path, mounts, "0::/docker/abc/main\n", files)
    assert found(tmp_path, process) == [({"pids": ".", "memory": "."}, 2)]


def test_version_1_has_a_directory_for_each_controller(tmp_path: Path) -> None:
    mounts = "".join(
        f"{n} 23 0:{n} / CG/{name} rw - cgroup cgroup rw,{name}\n" for n, name in enumerate(("memory", "pids", "cpu"))
    )
    process = a_machine(tmp_path, mounts, "3:memory:/box/a\n2:pids:/box\n1:cpu:/\n", {})
    assert found(tmp_path, process) == [({"pids": "pids/box", "memory": "memory/box/a", "cpu": "cpu"}, 1)]


@pytest.mark.parametrize(
    ("there", "written"),
    [
        (
            ("pids.max", "memory.max", "memory.swap.max", "memory.oom.group"),
            {"pids.max": "256", "memory.max": "1073741824", "memory.swap.max": "0", "memory.oom.group": "1"},
        ),
        (
            ("pids.max", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
            {
                "pids.max": "256",
                "memory.limit_in_bytes": "1073741824",
                "memory.memsw.limit_in_bytes": "1073741824",
            },
        ),
        (("pids.max", "memory.max"), {"pids.max": "256", "memory.max": "1073741824"}),
    ],
)
def test_limits_are_written_as_this_kernel_calls_them(
    tmp_path: Path, there: tuple[str, ...], written: Mapping[str, str]
) -> None:
    for name in there:
        (tmp_path / name).touch()
    group = ControlGroup({"pids": tmp_path, "memory": tmp_path}, TOTALS)
    group.limit()
    group.add(4711)
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == {**written, "cgroup.procs": "4711"}


def test_a_group_without_limits_is_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no limits"):
        ControlGroup({"pids": tmp_path}, TOTALS).limit()


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ({"pids.events": "max 0\n", "memory.events": "low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\n"}, ""),
        ({"pids.events": "max 3\n", "memory.events": "oom_kill 0\n"}, "it wanted more than 256 processes"),
        ({"pids.events": "max 0\n", "memory.events": "oom_kill 1\n"}, "it took more than 1073741824 bytes of memory"),
        ({"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"}, "it took more than 1073741824 bytes"),
        ({}, ""),
    ],
)
def test_what_the_kernel_has_refused_is_the_reason(tmp_path: Path, events: Mapping[str, str], why: str) -> None:
    for name, text in events.items():
        (tmp_path / name).write_text(text)
    told = ControlGroup({"pids": tmp_path, "memory": tmp_path}, TOTALS).excess()
    assert told.startswith(why)
    assert bool(told) is bool(why)
