"""The shapes of the first run. Next: `app/setup/first_run.py`."""

from __future__ import annotations

from typing import Literal

from switchboard.app.setup.first_run import CardState, FirstRunState, SetupCard
from switchboard.server.contracts.base import Body, Line, ResponseBody

__all__ = ["FirstRunState"]


class FoundModel(ResponseBody):
    """A model that a butler can have, as it would stand in the settings; `source` is where it was found."""

    name: str
    kind: str
    model: str
    source: str
    base_url: str | None
    api_key_env: str | None
    profile: str | None
    api_key_file: str | None


class FoundModels(ResponseBody):
    """The best first; and the command-line programs that are logged in."""

    offers: list[FoundModel]
    programs: list[str]


class ModelTestResult(ResponseBody):
    """`outcome` is `answered` or the failure, and `remedy` what to do about it; what was not found out is null."""

    name: str
    kind: str
    model: str
    ok: bool
    outcome: str
    detail: str
    remedy: str
    duration_ms: int
    tokens_in: int
    tokens_out: int
    cost_usd: float
    schemas: bool | None
    thinks: bool | None
    calls: str | None
    tokens_per_second: float | None
    timeout: int | None


class BriefTestResult(ResponseBody):
    """What came of a short test. `context`: how many tokens the model can read, if that is known."""

    tried: ModelTestResult
    context: int | None


class ModelChoice(Body):
    """A model that was found, by its `source`, or that of a server at `url`, by default the first there."""

    model: str
    source: str = ""
    url: str = ""


class NewInstallation(Body):
    """`model` null: a butler without a model, which files notes. `dry_run`: the files are shown and not written."""

    model: ModelChoice | None = None
    butler: Line = "butler"
    workspace: Line = "files"
    dry_run: bool = False


class WrittenFile(ResponseBody):
    """Its path in the directory of the installation, and its whole text."""

    path: str
    text: str


class WrittenInstallation(ResponseBody):
    """`restarting`: the server starts again now, with these files; otherwise that is left to what started it."""

    directory: str
    files: list[WrittenFile]
    written: bool
    restarting: bool


class SetupCardChange(Body):
    """What became of a card of the page Welcome, and why; `welcome` is the whole page."""

    card: SetupCard
    state: CardState
    reason: Line


class ChangedSetupCard(ResponseBody):
    """As it is now."""

    card: SetupCard
    state: Literal["open", "done", "skipped"]
