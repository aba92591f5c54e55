"""The first run: what an installation that nobody has set up yet offers on its page, and how far it got.

HTTP, the page Welcome and the command line call `FirstRun`. In: answers; out: what was found, tested, and would be
written or was. Only an installation without settings of its own is set up so, and only once. Next: `writing.py`.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from secrets import token_urlsafe
from typing import Final, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from switchboard.app.access import OPERATOR, Action, Principal
from switchboard.app.runtime import Switchboard
from switchboard.app.settings import Settings
from switchboard.app.setup.chosen import choose_at
from switchboard.app.setup.discovery import Discovery, Offer, discover_models
from switchboard.app.setup.files import SETTINGS, TEAM, Choice, files_of
from switchboard.app.setup.places import as_in_team_file, zone_of_machine
from switchboard.app.setup.questions import BUTLER, WORKSPACE
from switchboard.app.setup.trial import BriefTrial, traits_of, try_briefly
from switchboard.app.setup.writing import require_unwritten, write_whole
from switchboard.core.routing.teamfile import DEFAULT_TEAM
from switchboard.domain.errors import ConfigurationError, Conflict, InvalidInput, NotFound
from switchboard.lanes import faults
from switchboard.llm.packages import lacking
from switchboard.store.connectors import heartbeats
from switchboard.store.people import audit
from switchboard.store.people import first_run as store
from switchboard.store.people.first_run import SettledCard, SetupCard
from switchboard.transport.signed_post import check_url

__all__ = [
    "CARDS",
    "SETUP",
    "WHOLE",
    "CardState",
    "FirstRun",
    "FirstRunState",
    "SettledCard",
    "SetupAnswers",
    "SetupCard",
]

SETUP: Final = Action("setup", OPERATOR)
WHOLE: Final[SetupCard] = "welcome"
CARDS: Final[tuple[SetupCard, ...]] = tuple(card for card in get_args(SetupCard) if card != WHOLE)
CardState = Literal["open", "done", "skipped"]


class SetupAnswers(Struct, frozen=True):
    """What was chosen: a model that was found, by its source, or at an address (`url`); without `model`, none.

    At an address, an empty `model` is the first that its server lists.
    """

    model: str | None = None
    source: str = ""
    url: str = ""
    butler: str = BUTLER.usual
    workspace: str = WORKSPACE.usual


@dataclass(frozen=True, slots=True)
class FirstRunState:
    """How far the first run is. `wanted`: whether the page begins with it; `cards`: each with its state.

    `settable`: whether settings can be written, into `directory`; `written`: they are there, and the next start reads
    them. `restarts`: whether this process starts again by itself; otherwise that is left to what started it.
    """

    wanted: bool
    cards: Mapping[SetupCard, CardState]
    settable: bool
    written: bool
    restarts: bool
    directory: str


class FirstRun:
    """Finds, tests, writes, and starts again. One per server: it remembers what tests have shown."""

    def __init__(self, switchboard: Switchboard) -> None:
        self._database = switchboard.runtime.database
        self._settings = switchboard.runtime.settings
        self._restart = switchboard.restart
        self._directory = Path.cwd()
        self._rule_book = switchboard.runtime.rule_book
        self._is_new = not (self._is_written or _is_set_up(self._settings))
        self.start = token_urlsafe(6)
        """Of this process: another one after it started again."""
        self._tried: dict[Offer, BriefTrial] = {}

    @property
    def _is_written(self) -> bool:
        return os.path.lexists(self._directory / SETTINGS)

    @property
    def _has_own_teams(self) -> bool:
        built_in = {member.system_id for member in DEFAULT_TEAM.team.members}
        return set(self._rule_book.rules.members) != built_in

    async def state(self) -> FirstRunState:
        """As of now."""
        settled = await store.settled_cards(self._database)
        begun = bool(settled) or (self._is_new and not self._has_own_teams)
        cards: dict[SetupCard, CardState] = {card: settled.get(card, "open") for card in CARDS}
        if begun and cards["say"] == "open" and await store.was_somebody_answered(self._database):
            cards["say"] = "done"
        if begun and cards["channel"] == "open" and await heartbeats.list_connectors(self._database, limit=1):
            cards["channel"] = "done"
        if self._settings.models:
            cards["model"] = "done"
        elif cards["model"] == "done" and self._is_new and not self._is_written:
            cards["model"] = "open"  # killed before its files were there
        over = WHOLE in settled or (cards["say"] != "open" and cards["model"] != "open")
        return FirstRunState(
            wanted=begun and not over,
            cards=cards,
            settable=self._is_new,
            written=self._is_new and self._is_written,
            restarts=self._restart is not None,
            directory=str(self._directory),
        )

    async def settle_card(self, actor: Principal, card: SetupCard, state: CardState, reason: str) -> None:
        """Note that a card is done, skipped, or open again."""
        async with self._database.transaction() as one:
            if state == "open":
                changed = await store.reopen_card(one, card)
            else:
                changed = await store.settle_card(one, card, state)
            if changed:
                await audit.append(one, actor.name, "setup:card", {"card": card, "state": state, "reason": reason})

    async def find_models(self) -> Discovery:
        """The models that can be used: this machine is asked, and nothing else."""
        self._require_new()
        return await discover_models(os.environ, Path.home())

    async def try_model(self, answers: SetupAnswers) -> BriefTrial:
        """Test the chosen one. Raises NotFound if it is not there."""
        self._require_new()
        offer = await self._offer_of(answers)
        if offer is None:
            raise InvalidInput("choose a model first", field="model")
        self._tried[offer] = brief = await try_briefly(offer)
        return brief

    async def propose_files(self, answers: SetupAnswers) -> Mapping[PurePosixPath, str]:
        """What would be written, by its path in the directory. Raises ConfigurationError if something is in the way."""
        self._require_new()
        offer = await self._offer_of(answers)
        butler = BUTLER.check(self._directory, answers.butler.strip())
        workspace = Path(WORKSPACE.check(self._directory, answers.workspace.strip() or WORKSPACE.usual))
        brief = None if offer is None else self._tried.get(offer)
        choice = Choice(
            butler,
            offer,
            as_in_team_file(self._directory, workspace, TEAM.parent),
            f"cli:{getpass.getuser()}",
            zone_of_machine(),
            as_in_team_file(self._directory, self._settings.data_dir.absolute(), PurePosixPath()),
            as_in_team_file(self._directory, self._settings.channels_dir.absolute(), PurePosixPath()),
        )
        if brief is not None and brief.tried.ok:
            choice = replace(choice, found=traits_of(brief.tried))
        files = files_of(choice)
        require_unwritten(self._directory, files)
        return files

    async def write_files(self, actor: Principal, answers: SetupAnswers) -> Mapping[PurePosixPath, str]:
        """Write what `propose_files` shows; the next start reads it. Raises ConfigurationError."""
        files = await self.propose_files(answers)
        detail = {"files": [str(self._directory / name) for name in files], "butler": answers.butler}
        async with self._database.transaction() as one:  # first: files that are in force have their row
            await audit.append(one, actor.name, "setup:written", {**detail, "reason": "first run"})
            await store.settle_card(one, "model", "done" if answers.model is not None else "skipped")
        try:
            write_whole(self._directory, files)
        except ConfigurationError as error:
            async with self._database.transaction() as one:
                await store.reopen_card(one, "model")
                await audit.append(one, actor.name, "setup:failed", {**detail, "error": error.message})
            raise
        faults.point("setup_recorded")
        return files

    async def start_again(self, actor: Principal) -> bool:
        """End this process and start it with the settings that are there; False if somebody else has to."""
        if self._restart is None:
            return False
        await audit.append(self._database, actor.name, "setup:restarted", {"reason": "first run"})
        self._restart()
        return True

    async def _offer_of(self, answers: SetupAnswers) -> Offer | None:
        if answers.model is None:
            return None
        if answers.url:
            _check_address(answers.url)
            offer, _ = await choose_at(answers.url, answers.model or None)
        else:
            found = (await self.find_models()).offers
            offers = [one for one in found if (one.model, one.source) == (answers.model, answers.source)]
            if not offers:
                raise NotFound(f"{answers.model!r} is not there any more; look again", field="model")
            offer = offers[0]
        if missing := lacking(offer.kind):
            raise ConfigurationError(f"{missing}; then start Switchboard again")
        return offer

    def _require_new(self) -> None:
        if not self._is_new:
            raise Conflict(
                "this installation has its settings already; change them in switchboard.toml, and start it again"
            )


def _is_set_up(settings: Settings) -> bool:
    """Whether variables of the environment say what files would."""
    return bool(settings.teams_dir or settings.teams or settings.models)


def _check_address(url: str) -> None:
    try:
        check_url(url)
    except ConfigurationError as error:
        raise InvalidInput(f"{error.message}, such as http://127.0.0.1:8000/v1", field="url") from error
