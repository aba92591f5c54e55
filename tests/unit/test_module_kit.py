"""The checks of modules find what is wrong with a module, each its own fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from switchboard.testing import modules
from switchboard.testing.modules import CHECKS, ModuleCheck, ModuleSubject
from tests.installed import DIARY, forget, install

HEAVY: Final = DIARY.replace("from typing", "import hypothesis\nfrom typing")
RAISING: Final = DIARY.replace('return f"planned: {what}"', 'return f"planned: {int(what)}"')
COUNTING: Final = DIARY.replace(
    'f"{diary.settings.owner}: nothing', 'diary.planned.append(1) or f"{len(diary.planned)}: nothing'
)
BIG: Final = DIARY.replace('"""What is planned for a day."""', '"""' + "What is planned. " * 500 + '"""')
CLOSED: Final = DIARY.replace("self.closed = True", "raise OSError('it cannot be closed')")
LESS: Final = (
    DIARY.replace(
        "def open_diary",
        'async def prepare_add(diary):\n    return PreparedCall("idempotent", "low")\n\n\ndef open_diary',
    )
    .replace("core=False", "core=False, prepare=prepare_add")
    .replace("import ModuleManifest", "import ModuleManifest, PreparedCall")
)
FAULTS: Final[Mapping[str, tuple[str, ModuleCheck, str]]] = {
    "heavy": (HEAVY, modules.is_described_without_its_libraries, "imports .*hypothesis"),
    "raising": (RAISING, modules.says_what_is_wrong, "diary_add raises ValueError"),
    "counting": (COUNTING, modules.repeats_what_may_be_repeated, "diary_read again: 2"),
    "big": (BIG, modules.describes_its_tools, "do not fit"),
    "closed": (CLOSED, modules.opens_and_closes, "cannot be closed"),
    "less": (LESS, modules.prepares_without_effect, "diary_add has less effect"),
}
CALLS: Final = {"diary_read": {"day": "Monday"}, "diary_add": {"day": "Monday", "what": "7"}}


class Days:
    """What a butler grants."""

    days = ()


SUBJECT: Final = ModuleSubject("diary_module:MANIFEST", {"owner": "Ann"}, CALLS, Days())


@pytest.fixture
def installed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    sources = {"diary": request.param}
    install(tmp_path, monkeypatch, sources)
    yield
    monkeypatch.undo()
    forget(sources)


@pytest.mark.parametrize("installed", [DIARY], indirect=True, ids=["diary"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.usefixtures("installed")
async def test_a_module_without_faults_passes(check: ModuleCheck) -> None:
    await check(SUBJECT)


@pytest.mark.parametrize(("installed", "check", "said"), FAULTS.values(), indirect=["installed"], ids=list(FAULTS))
@pytest.mark.usefixtures("installed")
async def test_each_fault_is_found(check: ModuleCheck, said: str) -> None:
    with pytest.raises(Exception, match=said):
        await check(SUBJECT)


def test_every_check_finds_a_fault() -> None:
    assert {check for _, check, _ in FAULTS.values()} == {*CHECKS}
