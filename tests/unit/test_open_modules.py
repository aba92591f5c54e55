"""The modules of butlers in a worker: which are open, what becomes of those that cannot be, and their tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from msgspec.structs import replace

from switchboard.app.ops.modules import check_tables
from switchboard.app.settings import load_settings
from switchboard.domain.errors import ConfigurationError
from switchboard.modules.kernel.grants import grant_problems
from switchboard.modules.kernel.opened import OpenModules
from switchboard.ports.tools import ToolOutcome, ToolScope
from switchboard.tools.calls import CallLimits, call_tool
from tests.installed import DIARY, butler, forget, install, installation

SCOPE: Final = ToolScope(Path(), frozenset(), frozenset(), UUID(int=1), UUID(int=2))
PLAIN: Final = '''
from switchboard.ports.module import ModuleManifest, typed_tool

{before}

class Open:
    chores = ()

    async def aclose(self):
        pass


async def NAME_do(module) -> str:
    """Do it."""
    return {result}


{opens}


MANIFEST = ModuleManifest("NAME", (typed_tool(NAME_do, effect="idempotent"{traits}),), "NAME_module:open_it"{more})
'''
OPENS: Final = "async def open_it(context):\n    return Open()"


def plain(
    name: str, *, before: str = "", opens: str = OPENS, result: str = '"done"', traits: str = "", more: str = ""
) -> str:
    filled = PLAIN.format(before=before, opens=opens, result=result, traits=traits, more=more)
    return filled.replace("NAME", name)


BAD: Final[Mapping[str, str]] = {
    "absent": plain("absent", more=", needs=()").replace("absent_module:open_it", "absent_module:nothing"),
    "endless": plain("endless", opens="import asyncio\nasync def open_it(context):\n    await asyncio.Event().wait()"),
    "leaving": plain("leaving", opens="import sys\nasync def open_it(context):\n    sys.exit(3)"),
    "nothing": plain("nothing", opens="def open_it(context):\n    return None"),
    "quitting": "raise SystemExit(4)",
    "spinning": plain("spinning", opens="def open_it(context):\n    import time\n    time.sleep(3600)"),
    "wrong": "MANIFEST = 5",
}
WHY: Final[Mapping[str, str]] = {
    "absent": "has no attribute 'nothing'",
    "endless": "has not ended within 0.2 s",
    "leaving": "wanted to end the process (SystemExit(3))",
    "nothing": "returned NoneType, which is no module",
    "quitting": "wanted to end the process (SystemExit 4)",
    "spinning": "has not ended within 0.2 s",
    "wrong": "is no manifest of a module",
}
CALLS: Final[Mapping[str, str]] = {
    "bulky": plain("bulky", result='"x" * 3_000_000'),
    "ending": plain("ending", result="exit(5)"),
    "many": plain("many", result="[{'n': n} for n in range(10_000)]"),
    "odd": plain("odd", result="object()"),
    "waiting": plain("waiting", before="import asyncio", result="await asyncio.Event().wait()"),
}
NEEDY: Final = {
    "asker": plain("asker", traits=', needs=("book",)', more=', needs=("book",)'),
    "keeper": plain("keeper", more=', offers=("book",)'),
}


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    sources = {"diary": DIARY, **BAD, **CALLS, **NEEDY}
    install(tmp_path, monkeypatch, sources)
    yield
    monkeypatch.undo()
    forget(sources)


async def call(modules: OpenModules, owner: Any, name: str, **arguments: object) -> ToolOutcome:
    (tool,) = [one for one in await modules.of(owner) if one.spec.name == name]
    return await call_tool(tool, arguments, SCOPE, CallLimits(0.2))


@pytest.mark.parametrize("name", sorted(BAD))
async def test_a_module_that_cannot_be_opened_fails_alone(name: str) -> None:
    owner = butler({name: {}, "diary": {}})
    modules = OpenModules(installation(owner), seconds=0.2)
    assert [tool.spec.name for tool in await modules.of(owner)] == ["diary_read", "diary_add"]
    assert (await call(modules, owner, "diary_read", day="Monday")).text == "Ann: nothing on Monday"
    assert [*modules.lacking(owner)] == [name]
    assert WHY[name] in modules.state_of(name).why
    await modules.aclose()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("bulky", "[cut off: the result had 3000000 characters]"),
        ("ending", "ending_do failed with RuntimeError"),
        ("many", "characters"),
        ("odd", "odd_do failed with TypeError"),
        ("waiting", "waiting_do was stopped after 0.2 s"),
    ],
)
async def test_whatever_a_call_does_is_an_outcome_of_limited_size(name: str, told: str, tmp_path: Path) -> None:
    owner = butler([name, "diary"])
    modules = OpenModules(installation(owner))
    (tool,) = [one for one in await modules.of(owner) if one.spec.name == f"{name}_do"]
    outcome = await call_tool(tool, {}, replace(SCOPE, results=tmp_path), CallLimits(0.2))
    assert told in outcome.text
    assert len(outcome.text) <= 20_000
    assert (await call(modules, owner, "diary_read", day="Monday")).ok
    await modules.aclose()


async def test_a_butler_has_the_tools_and_the_grants_of_its_option() -> None:
    clerk, porter, nobody = (
        butler({"diary": {"tools": ["diary_read"], "days": ["Monday"]}}),
        butler(["diary"]),
        butler({}),
    )
    modules = OpenModules(installation(clerk, porter, tables={"diary": {"owner": "Ben"}}))
    assert (await call(modules, clerk, "diary_read", day="Monday")).text == "Ben: nothing on Monday"
    assert (await call(modules, clerk, "diary_read", day="Friday")).text == "that day is not for you"
    assert (await call(modules, porter, "diary_read", day="Friday")).text == "Ben: nothing on Friday"
    assert [tool.spec.name for tool in await modules.of(porter)] == ["diary_read", "diary_add"]
    assert not await modules.of(nobody)
    assert [modules.may_have(one, "diary_add") for one in (clerk, porter, nobody)] == [False, True, False]
    await modules.aclose()


async def test_what_one_module_offers_is_handed_to_those_that_need_it() -> None:
    alone, both = butler(["asker"]), butler(["asker", "keeper"], "System1/porter")
    modules = OpenModules(installation(alone))
    assert not await modules.of(alone)
    assert modules.state_of("asker").left_out == {"asker_do": "nothing offers book"}
    await modules.aclose()
    modules = OpenModules(replace(installation(alone), offers={"book": object()}))
    assert [tool.spec.name for tool in await modules.of(alone)] == ["asker_do"]
    await modules.aclose()
    modules = OpenModules(installation(alone, both))
    assert [tool.spec.name for tool in await modules.of(both)] == ["asker_do", "keeper_do"]
    (asker, keeper) = (next(one for one in modules.open_modules if one.manifest.name == name) for name in NEEDY)
    assert asker.left_out == {}
    assert keeper.state.state == "open"
    await modules.aclose()


@pytest.mark.parametrize(
    ("text", "variables", "said"),
    [
        ('[modules.diary]\nowner = "Ben"', {"DIARY__MOST": "7"}, ""),
        ("[modules.dairy]\nowner = 5", {}, ""),  # no butler has it
        ("\n[modules.diary]\nowner = 5", {}, "switchboard.toml, line 3: modules.diary.owner must be a string, not 5"),
        (
            "[modules.diary]\nmost = 2\nowne = 5",
            {},
            "switchboard.toml, line 3: modules.diary.owne: unknown setting; did you mean owner?",
        ),
        ("", {"DIARY__MOST": "0"}, "environment variable SWITCHBOARD_MODULES__DIARY__MOST: modules.diary.most must be"),
        ("", {"DIARY": '{"most": "x"}'}, "environment variable SWITCHBOARD_MODULES__DIARY: modules.diary.most must be"),
    ],
)
def test_the_table_of_a_module_is_checked_where_a_butler_has_it(
    text: str, variables: Mapping[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "switchboard.toml").write_text(text)
    for name, value in variables.items():
        monkeypatch.setenv(f"SWITCHBOARD_MODULES__{name}", value)
    settings = load_settings()
    with pytest.raises(ConfigurationError) if said else nullcontext() as raised:
        check_tables(settings, [butler(["diary", "quitting"])])
    assert raised is None or said in str(raised.value)


@pytest.mark.parametrize(
    ("option", "problems"),
    [
        (["diary", "keeper"], []),
        (["quitting"], []),  # it is there, and fails alone
        (["dairy"], ["modules: there is no module 'dairy'; did you mean diary?"]),
        (
            {"diary": {"tools": ["diary_reed"]}},
            ["modules: diary: there is no tool 'diary_reed'; did you mean diary_add or diary_read?"],
        ),
        ({"diary": {"day": ["Monday"]}}, ["modules: diary: day: it is not known here; did you mean days?"]),
        ({"diary": {"days": "Monday"}}, ["modules: diary: days must be a list, not 'Monday'"]),
    ],
)
def test_wrong_grants_are_told_with_what_may_be_meant(option: object, problems: list[str]) -> None:
    assert [*grant_problems(butler(option))] == problems
