"""Short chaos runs of tools, with all that the long one has: `make chaos WHAT=tools` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchboard.ports.sandbox import SandboxRules
from switchboard.sandbox.run import Sandbox
from tests.chaos.tools_run import NEW, SINCE, Shells, ToolsPlan, run_on, shells_of


async def _need_a_sandbox() -> None:
    if lacking := await Sandbox(SandboxRules()).lacking():
        pytest.skip(lacking)


@pytest.mark.chaos
async def test_nothing_is_left_of_what_tools_have_started(database_url: str, tmp_path: Path) -> None:
    await _need_a_sandbox()
    report = await run_on(database_url, ToolsPlan(turns=10, seconds=2, every=1, seed=7), tmp_path)
    assert report.clean, report
    assert report.turns == 10
    assert report.kills > 0
    assert min(report.calls, report.most, report.shells.kept + report.shells.new) > 2, "enough was done to show it"


@pytest.mark.chaos
async def test_a_shell_whose_workers_die_keeps_its_state_or_says_it_is_lost(database_url: str, tmp_path: Path) -> None:
    await _need_a_sandbox()
    report = await run_on(database_url, ToolsPlan(turns=12, seconds=2, every=1, seed=3, shells=True), tmp_path)
    assert report.clean, report
    assert report.kills > 0
    assert min(report.shells.kept, report.shells.new) > 0


BEGUN = f"{NEW}: x\n"


def _told(was: str, now: str = "/workspace/d1") -> str:
    return f"exit code 0, in {now}\nwas {was}"


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (
            [BEGUN + _told("/workspace "), _told("/workspace/d1 1"), _told("/workspace/d2 2")],
            Shells(kept=2, new=1),
        ),
        ([BEGUN + _told("/workspace "), BEGUN + _told("/workspace ")], Shells(new=2)),
        ([BEGUN + _told("/workspace "), _told("/workspace ")], Shells(new=1, silent=1)),
        ([BEGUN + _told("/workspace "), _told("/workspace/d2 2")], Shells(new=1, silent=1)),
        ([BEGUN + _told("/workspace "), None, _told("/workspace/d2 2")], Shells(kept=1, new=1)),
        ([BEGUN + _told("/workspace "), None, _told("/workspace/d1 1")], Shells(kept=1, new=1)),
        ([BEGUN + _told("/workspace "), None, _told("/workspace ")], Shells(new=1, silent=1)),
        ([NEW + "x\nthe session has ended; x", _told("/workspace/d1 1")], Shells(new=1, silent=1)),
        ([BEGUN + _told("/workspace "), None, f"{SINCE}: x\n" + _told("/workspace/d1 1")], Shells(new=2)),
        ([BEGUN + _told("/workspace "), None, f"{SINCE}: x\n" + _told("/workspace/d2 2")], Shells(new=1, silent=1)),
        ([BEGUN + _told("/workspace "), None, None, f"{SINCE}: x\n" + _told("/workspace/d2 2")], Shells(new=2)),
    ],
)
def test_a_shell_that_loses_its_state_without_a_word_is_found(told: list[str | None], found: Shells) -> None:
    assert shells_of(told) == found
