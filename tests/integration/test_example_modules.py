"""The example module, installed as anybody would: it passes the checks, and a butler uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from switchboard.modules.kernel.manifests import find_manifest
from switchboard.modules.kernel.opened import OpenModules
from switchboard.ports.engine import Answer, Decided, Parked
from switchboard.testing.engines import MemoryJournal, Record, a_turn
from switchboard.testing.modules import CHECKS, ModuleCheck, ModuleSubject
from switchboard.testing.scripted_llm import Call, Reply, ScriptedLlm
from switchboard.tools.toolsets import Toolsets
from switchboard.transport.plug_ins import plug_ins
from tests.documents import HOME
from tests.installed import installation
from tests.turning import OWNER, NoApprovals, a_model_engine

EXAMPLE: Final = HOME / "src/switchboard/examples/modules/canteen"
DAY: Final = "2026-03-02"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `pip install -e` has put it: a directory of its own, instead of the environment of the tests."""
    place = tmp_path_factory.mktemp("packages")
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(place),
    )
    subprocess.run((*pip, str(EXAMPLE)), check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    return place


@pytest.fixture
def dishes(packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(packages))
    plug_ins.cache_clear()
    find_manifest.cache_clear()
    file = tmp_path / "dishes.json"
    file.write_text(json.dumps({DAY: {"soup": 3.5}}))
    yield file
    monkeypatch.undo()
    plug_ins.cache_clear()
    find_manifest.cache_clear()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_it_passes_the_checks(check: ModuleCheck, dishes: Path) -> None:
    calls = {"canteen_dishes": {"day": DAY}, "canteen_order": {"day": DAY, "dish": "soup"}}
    await check(ModuleSubject("canteen_module:MANIFEST", {"dishes": str(dishes)}, calls))


async def test_a_butler_orders_with_approval_of_what_it_costs(dishes: Path) -> None:
    turn, record = (
        a_turn({"owners": OWNER, "modules": ["canteen"], "own": ["canteen_dishes"]}, "soup for five"),
        Record(),
    )
    script = [
        Reply(calls=(Call("canteen_dishes", {"day": DAY}),)),
        Reply(calls=(Call("canteen_order", {"day": DAY, "dish": "soup", "portions": 5}),)),
        Reply(text="Ordered."),
    ]
    modules = OpenModules(installation(turn.member, tables={"canteen": {"dishes": str(dishes)}}))
    async with (
        ScriptedLlm(script) as llm,
        a_model_engine(llm, [], toolset=Toolsets(modules), approvals=NoApprovals()) as (engine, _),
    ):
        with pytest.raises(Parked):
            await engine.run(turn, MemoryJournal(record))
        [(event, asked)] = record.asks.items()
        assert asked.arguments["(looked up)"] == "17.50 on Monday, 2026-03-02"
        record.ended[event] = Decided({"decision": "approved", "by": "ann", "text": "", "digest": asked.digest})
        result = await engine.run(turn, MemoryJournal(record))
    assert isinstance(result, Answer)
    assert result.text == "Ordered."
    assert [*json.loads(dishes.with_name("orders.json").read_text()).values()] == [[DAY, "soup", 5]]
    await modules.aclose()


def test_it_is_about_sixty_lines_and_needs_only_the_ports() -> None:
    lines = (EXAMPLE / "canteen_module.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) <= 65
    ours = {line.split()[1] for line in lines if line.startswith("from switchboard")}
    assert ours == {"switchboard.ports.module", "switchboard.ports.tools"}
