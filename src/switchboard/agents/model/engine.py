"""Engine `model`: a model answers; it calls tools, and nothing that was done is done again after a crash.

`journey/turn.py` calls `ModelEngine.run`. The loop is that of `core/turns/loop.py`, each request and each call a step
of the journal (`start`, `request:2`, `tool:2:call_7`). Next: `talk.py`, which carries out one turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import quote

from switchboard.agents.delivery import read_options
from switchboard.agents.model.inbox import bring
from switchboard.agents.model.options import ModelOptions
from switchboard.agents.model.talk import GONE, Around, Talk, images_in, said_in
from switchboard.core.readers import person_of
from switchboard.core.turns.asking import pending_note
from switchboard.core.turns.frozen import Frozen, read_frozen
from switchboard.core.turns.images import MOST_IMAGES, images_among, left_out
from switchboard.core.turns.render import notes, opening, said_at, system_prompt
from switchboard.domain.envelope import Attachment
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.routing import Member
from switchboard.ports.engine import Engine, EngineContext, EngineFailure, Journal, NoReply, Pending, Turn, TurnResult
from switchboard.ports.history import Entry
from switchboard.ports.models import Models
from switchboard.ports.tools import Keep, Tool
from switchboard.tools.results import DIRECTORY

_ANSWER: Final = 4
"""At most a quarter of the context is for the answer: of a small one the rest must hold the question."""
_FACTS: Final = 500
"""How many of the latest facts are looked through for those that a model is told."""
_SLACK_S: Final = 120.0
"""What a turn may take beyond its limit of time, for its last request and what is on its way."""


def engine(context: EngineContext) -> Engine:
    """The entry point `model` of `switchboard.engines`."""
    return ModelEngine(context)


class ModelEngine:
    """Turns with a model. `clock` says the time; `tools` are all that there are, None: ours."""

    def __init__(
        self,
        context: EngineContext,
        tools: Sequence[Tool] | None = None,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._context = context
        self._given = tools
        self._clock = clock

    @cached_property
    def _tools(self) -> Mapping[str, Tool]:
        from switchboard.agents.model.toolbox import build_tools

        tools = build_tools(self._context.sandbox) if self._given is None else self._given
        return {tool.spec.name: tool for tool in tools}

    stoppable: Final = True

    def check(self, member: Member) -> None:
        """Raises `EngineFailure` that names each wrong option, a missing key included."""
        from switchboard.agents.model.toolbox import hosts_of

        options, models = self._options(member)
        _prompt(member, options)
        try:
            hosts_of((*options.hosts, *options.private_hosts))
        except ConfigurationError as error:
            raise _wrong(member, f"hosts: {error.message}") from error
        if flaws := [f"{name}: {flaw}" for name in options.models or models.names if (flaw := models.flaw(name))]:
            raise _wrong(member, f"models: {'; '.join(flaws)}")

    def patience(self, member: Member) -> float:
        """Seconds after which an attempt is broken off from outside."""
        return read_options(ModelOptions, member).limits.seconds + _SLACK_S

    def models_of(self, member: Member) -> Sequence[str]:
        """The names of its models, in the order in which they are asked. Raises `EngineFailure` for wrong options."""
        options, models = self._options(member)
        return options.models or tuple(models.names)

    def prompt_of(self, member: Member) -> str:
        """What its operator wrote for it; this may read a file. Raises `EngineFailure`."""
        return _prompt(member, read_options(ModelOptions, member))

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """Do the turn. Raises `EngineFailure`; `Outage` while no model can be reached."""
        options, models = self._options(turn.member)
        if turn.dead_letter is not None:
            return NoReply("a butler with a model does nothing about dead letters yet")

        tools = await self._tools_of(turn.member)

        async def start(_: object) -> object:
            return (await self._frozen(turn, options, models, tools)).record()

        frozen = read_frozen(await journal.step("start", start))
        workspace = self._workspace(turn.member, options)
        results = self.kept_for(turn.member, frozen.readers)
        around = Around(
            *(models, tools, workspace, results, self._clock, options, self._context.approvals),
            granted=lambda: self._granted(turn, options),
            keep=self._keeper(turn),
        )
        return await Talk(turn, journal, frozen, around).run()

    async def _granted(self, turn: Turn, options: ModelOptions) -> frozenset[str]:
        """The tools that the sender may make the butler use now, whatever was so when the turn began."""
        from switchboard.agents.model.toolbox import granted_to

        tools = await self._tools_of(turn.member)
        granted = await granted_to(turn, options, tools, self._context.readers)
        return frozenset(tool.name for tool in granted.tools)

    def _keeper(self, turn: Turn) -> Keep | None:
        files = self._context.files
        if files is None:
            return None

        async def keep(filename: str, pieces: AsyncIterable[bytes], size_bytes: int) -> Attachment:
            return await files.keep(turn, filename, pieces, size_bytes=size_bytes)

        return keep

    def _options(self, member: Member) -> tuple[ModelOptions, Models]:
        options, models = read_options(ModelOptions, member), self._context.models
        if models is None or not models.names:
            raise _wrong(member, "there is no model with an API: write [[models]] into switchboard.toml")
        if unknown := [name for name in options.models if name not in models.names]:
            known = ", ".join(models.names)
            raise _wrong(member, f"models: there is no model {unknown[0]} with an API; there are: {known}")
        named = (*(options.tools or ()), *options.approve)
        if unknown := [name for name in named if not self._may_have(member, name)]:
            raise _wrong(
                member,
                f"tools or approve: there is no tool {unknown[0]}; there are: {', '.join(self._tools) or 'none'}",
            )
        return options, models

    def _may_have(self, member: Member, name: str) -> bool:
        toolset = self._context.toolset
        return name in self._tools or (toolset is not None and toolset.may_have(member, name))

    async def _tools_of(self, member: Member) -> Mapping[str, Tool]:
        """Ours, and those that the installation has for this butler besides. Raises `Unavailable`."""
        toolset = self._context.toolset
        more = () if toolset is None else await toolset.of(member)
        return {**self._tools, **{tool.spec.name: tool for tool in more if tool.spec.name not in self._tools}}

    async def _frozen(self, turn: Turn, options: ModelOptions, models: Models, tools: Mapping[str, Tool]) -> Frozen:
        from switchboard.agents.model.toolbox import granted_to, urls_of

        names, prompt = tuple(await self.models_for(turn)), await self.prompt_for(turn)
        history, known = await asyncio.gather(self._history(turn), self._known(turn))
        window = await models.context(names[0])
        granted = await granted_to(turn, options, tools, self._context.readers)
        waiting = pending_note(await self._waiting(turn, granted.readers))
        said = said_at(said_in(turn), person_of(turn.envelope), turn.received_at, options.zone)
        kept_there = self.kept_for(turn.member, granted.readers)
        await bring(self._context.files, turn.envelope.payload.attachments, kept_there)
        images = images_among(turn.envelope.payload.attachments)
        shown = images[:MOST_IMAGES]
        found = await images_in(kept_there, shown)
        gone = [one for one in shown if one not in found]
        unseen = left_out(gone, GONE) + left_out(
            images[MOST_IMAGES:], f"not shown, a message has at most {MOST_IMAGES}"
        )
        return Frozen(
            now=turn.received_at,
            zone=options.zone,
            system=system_prompt(turn.member, prompt),
            opening=opening(said, "\n\n".join(filter(None, (known, waiting)))) + unseen,
            images=tuple(found),
            models=names,
            tools=granted.tools,
            withheld=granted.withheld,
            readers=granted.readers,
            by_owner=granted.by_owner,
            limits=options.limits.limits,
            history=history,
            urls=urls_of(turn, history) if granted.tools else (),
            hosts=options.hosts,
            asks=self._context.approvals is not None,
            window=window,
            max_tokens=min(options.max_tokens, window // _ANSWER),
        )

    async def _waiting(self, turn: Turn, readers: str) -> Sequence[Pending]:
        approvals = self._context.approvals
        return () if approvals is None else await approvals.pending(turn, readers)

    async def prompt_for(self, turn: Turn) -> str:
        """What the butler is told about its work in a turn. Raises `EngineFailure`."""
        options = read_options(ModelOptions, turn.member)
        return options.prompt if options.prompt_file is None else await asyncio.to_thread(_prompt, turn.member, options)

    async def models_for(self, turn: Turn) -> Sequence[str]:
        """The names of the models that are asked in a turn, in this order. Raises `EngineFailure`."""
        return self.models_of(turn.member)

    async def _history(self, turn: Turn) -> tuple[Entry, ...]:
        kept = self._context.history
        return () if kept is None else tuple(await kept.load(turn))

    async def _known(self, turn: Turn) -> str:
        """What is known of the people, by the caller and by what they have said."""
        facts = () if self._context.facts is None else await self._context.facts.visible(turn, _FACTS)
        return "\n\n".join(part for part in (turn.user_context.strip(), notes(facts)) if part)

    def _workspace(self, member: Member, options: ModelOptions) -> Path | None:
        if options.workspace is not None or self._context.workspaces is None:
            return options.workspace
        return self._context.workspaces / _directory(member)

    def kept_for(self, member: Member, readers: str) -> Path | None:
        """Where the readers of a turn, and nobody else, find long results and images; None: nothing is kept."""
        root = self._context.workspaces
        return None if root is None else root / DIRECTORY / _directory(member) / readers


def _directory(member: Member) -> str:
    """Its name as one of a directory that is not hidden, whatever the team file calls it: `..` would lead out."""
    name = quote(member.name, safe=" ")
    return f"%2E{name[1:]}" if name.startswith(".") else name


def _prompt(member: Member, options: ModelOptions) -> str:
    if options.prompt_file is None:
        return options.prompt
    try:
        return options.prompt_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(member, f"prompt_file: {options.prompt_file} cannot be read: {error}") from error


def _wrong(member: Member, problem: str) -> EngineFailure:
    message = f"the options of {member.system_id} are wrong: {problem}"
    return EngineFailure(message, error_class="validation", retryable=False)
