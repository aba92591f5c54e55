"""What a butler with a model works with: its prompt, its tools, its directories, its history and facts.

The engines `model` and `trio` have one each, and begin their turns with it. In: the `EngineContext` and the options of
a member; out: the data that is frozen when a turn begins, and its surroundings while it runs. Next: `talk.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from switchboard.agents.turns.asking import MOST_WAITING
from switchboard.agents.turns.calls import Around
from switchboard.agents.turns.inbox import bring
from switchboard.agents.turns.memory import MemorySources
from switchboard.agents.turns.options import TurnOptions
from switchboard.agents.turns.talk import GONE, images_in
from switchboard.core.calls import is_by_operator, is_call
from switchboard.core.memory.notes import render_notes, told_facts
from switchboard.core.passages.names import speaker
from switchboard.core.passages.own import passages_of
from switchboard.core.people.readers import person_of
from switchboard.core.turns.around import around_text, as_read, name_speakers, speakers_of
from switchboard.core.turns.asking import ASK_USER, pending_note
from switchboard.core.turns.entries import OURS, entry_of, others_facts, others_words
from switchboard.core.turns.frozen import Frozen
from switchboard.core.turns.images import MOST_IMAGES, images_among, left_out
from switchboard.core.turns.limits import LoopLimits
from switchboard.core.turns.render import lacking_note, name_authors, opening, said_at, system_prompt
from switchboard.domain.envelope import Attachment
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.llm import Report, Request
from switchboard.domain.routing import Member
from switchboard.ports.engine import EngineContext, EngineFailure, Pending, Turn
from switchboard.ports.facts import Fact
from switchboard.ports.history import Entry
from switchboard.ports.models import NO_CONTEXT, USUAL, Asking, Habits, Models
from switchboard.ports.surroundings import Surrounding
from switchboard.ports.tools import Keep, KeepsRunning, TellsLacking, Tool
from switchboard.tools.results import DIRECTORY
from switchboard.tools.workspace import workspace_name

_ANSWER: Final = 4
"""At most a quarter of the context is for the answer: in a small one, the rest must hold the question."""
_FACTS: Final = 100
"""How many facts are considered for those that a model is told."""

_MIXED: Final = (
    "name models with an API or command lines, not both: a turn begun by one kind cannot be finished by the other"
)


class TurnTerms(Struct, frozen=True):
    """How the models of a turn are asked: their names, in this order, the prompt, and the limits.

    `own`: tools whose results contain nothing from outside.
    """

    models: tuple[str, ...]
    prompt: str
    limits: LoopLimits
    max_tokens: int
    own: tuple[str, ...] = ()


class _NoModels:
    """For what asks no model, since there may be none."""

    names: Final = ()
    runners: Final = ()

    async def context(self, name: str, unknown: int = NO_CONTEXT) -> int:  # noqa: ARG002
        return unknown

    def flaw(self, name: str) -> str | None:
        return f"{name} is not asked here"

    def habits(self, name: str) -> Habits:  # noqa: ARG002
        return USUAL

    async def ask(self, request: Request, asking: Asking) -> Report:  # noqa: ARG002
        raise EngineFailure("a call of a tool asks no model", retryable=False)


class Equipment:
    """Prepares turns. `clock` returns the time; `tools`: all existing tools, None for ours."""

    def __init__(self, context: EngineContext, tools: Sequence[Tool] | None = None) -> None:
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._context = context
        self._given = tools

    @cached_property
    def _tools(self) -> Mapping[str, Tool]:
        from switchboard.agents.turns.toolbox import OF_MEMORY, build_tools

        tools = build_tools(self._context.sandbox, self._context.search) if self._given is None else self._given
        if self._context.facts is None:
            tools = [tool for tool in tools if tool.spec.name not in OF_MEMORY]
        for tool in tools:
            if self._context.closing is not None and isinstance(tool, KeepsRunning):
                self._context.closing.push_async_callback(tool.close)
        return {tool.spec.name: tool for tool in tools}

    def models(self, member: Member, names: Sequence[str], option: str = "models", *, runners: bool = False) -> Models:
        """The models of the settings. Raises `EngineFailure`, which mentions `option`, if one of `names` is missing.

        With `runners`, command lines that run turns are accepted, too, but not together with other models.
        """
        models = self._context.models
        kind = "with an API, or of kind claude-code or codex" if runners else "with an API"
        there = () if models is None else (*models.names, *(models.runners if runners else ()))
        if models is None or not there:
            raise wrong(member, f"there is no model {kind}: write [[models]] into switchboard.toml")
        if unknown := [name for name in names if name not in there]:
            raise wrong(member, f"{option}: there is no model {unknown[0]} {kind}; there are: {', '.join(there)}")
        if len({name in models.runners for name in names}) > 1:
            raise wrong(member, f"{option}: {_MIXED}")
        return models

    def check(self, member: Member, options: TurnOptions) -> None:
        """Raises `EngineFailure` that names an option whose requirements are not met here."""
        from switchboard.agents.turns.toolbox import hosts_of

        granted = tuple(name for names in options.grants.values() for name in names)
        self._check_names(member, {**_tools_of(options), "grants": granted, **options.tools_named})
        prompt_of(member, options)
        try:
            hosts_of((*options.hosts, *options.private_hosts))
        except ConfigurationError as error:
            raise wrong(member, f"hosts: {error.message}") from error

    def check_tools(self, member: Member, options: TurnOptions) -> None:
        """Raises `EngineFailure` if the options name a tool that does not exist."""
        self._check_names(member, _tools_of(options))

    def _check_names(self, member: Member, named: Mapping[str, Sequence[str]]) -> None:
        each = ((option, name) for option, names in named.items() for name in names)
        for option, name in each:
            if not self._may_have(member, name):
                there = ", ".join(self._tools) or "none"
                raise wrong(member, f"{option}: there is no tool {name}; there are: {there}")

    def _may_have(self, member: Member, name: str) -> bool:
        toolset = self._context.toolset
        return name in self._tools or (toolset is not None and toolset.may_have(member, name))

    def _find_lacking(self, member: Member) -> Mapping[str, str]:
        """What of a butler's tools is absent at present, and why."""
        toolset: object = self._context.toolset
        return toolset.lacking(member) if isinstance(toolset, TellsLacking) else {}

    async def tools_of(self, member: Member) -> Mapping[str, Tool]:
        """Our tools, and those that the installation provides for this butler. Raises `Unavailable`."""
        toolset = self._context.toolset
        more = () if toolset is None else await toolset.of(member)
        return {**self._tools, **{tool.spec.name: tool for tool in more if tool.spec.name not in self._tools}}

    # A turn -----------------------------------------------------------------------------------------------------------

    async def freeze_turn(
        self, turn: Turn, options: TurnOptions, terms: TurnTerms, tools: Mapping[str, Tool]
    ) -> Frozen:
        """The data that a turn begins with. Files of the message are copied to the directory of its readers."""
        from switchboard.agents.turns.toolbox import granted_to, urls_of

        around = await self._surrounding(turn)
        turn = as_read(turn, around)
        history, facts = await asyncio.gather(self._history(turn), self._facts(turn))
        authors = *(one.author for one in history), *(one.author for one in facts)
        names, sender = await self._find_names(turn, (*speakers_of(around), *authors))
        around, history, facts = name_speakers(around, names), name_authors(history, names), told_facts(facts, names)
        lacking = self._find_lacking(turn.member)
        known = "\n\n".join(
            filter(None, (turn.user_context.strip(), render_notes(facts, names), lacking_note([*lacking])))
        )
        models = self.models(turn.member, terms.models, runners=True)
        window = await models.context(terms.models[0])
        granted = await granted_to(turn, options, tools, self._context.readers)
        program = terms.models[0] in models.runners  # its tools cannot change while it runs
        waiting = pending_note(await self._waiting(turn, granted.readers))
        entry, ours = entry_of(turn, history, around.record), {*terms.own, ASK_USER}
        author = speaker(sender or entry.name, entry.author)
        said = said_at(entry.text, author, turn.received_at, options.zone)
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
            system=system_prompt(turn.member, terms.prompt),
            opening=opening(said, "\n\n".join(filter(None, (known, waiting, around_text(around, options.zone)))))
            + unseen,
            images=tuple(found),
            models=terms.models,
            tools=(*granted.tools, *granted.on_request) if program else granted.tools,
            later=() if program else granted.on_request,
            withheld=granted.withheld,
            readers=granted.readers,
            by_owner=granted.by_owner,
            limits=terms.limits,
            history=history,
            around=replace(around, record=()),
            urls=urls_of(turn, history) if granted.tools else (),
            hosts=options.hosts,
            asks=self._context.approvals is not None,
            program=program,
            window=window,
            max_tokens=min(terms.max_tokens, window // _ANSWER),
            own=tuple(sorted(ours)),
            told=bool(waiting or found or entry.told)
            or others_facts(facts)
            or around.has_others_words
            or _is_told(turn, history, ours),
            said=entry,
            approvable=granted.private,
            after_foreign=options.after_foreign,
            reader=granted.for_whom,
            lacking=tuple(f"{name}: {why}" for name, why in lacking.items()),
            facts=tuple(one.fact_id for one in facts),
        )

    async def freeze_call(self, turn: Turn, options: TurnOptions, tools: Mapping[str, Tool]) -> Frozen:
        """The data that a call outside a turn begins with. Others may have asked for it, unless an operator did."""
        from switchboard.agents.turns.toolbox import granted_to, urls_in

        granted = await granted_to(turn, options, tools, self._context.readers)
        by_operator = is_by_operator(turn.envelope)
        return Frozen(
            now=turn.received_at,
            zone=options.zone,
            system="",
            opening="",
            models=(),
            tools=(*granted.tools, *granted.on_request),
            withheld=granted.withheld,
            readers=granted.readers,
            by_owner=granted.by_owner,
            urls=tuple(sorted(urls_in(turn.text))) if by_operator else (),
            hosts=options.hosts,
            asks=self._context.approvals is not None,
            own=tuple(sorted(OURS)),
            told=not by_operator,
            after_foreign=options.after_foreign,
            reader=granted.for_whom if granted.for_whom.authentic else None,
            lacking=tuple(f"{name}: {why}" for name, why in self._find_lacking(turn.member).items()),
        )

    def around(self, turn: Turn, options: TurnOptions, frozen: Frozen, tools: Mapping[str, Tool]) -> Around:
        """The surroundings of a turn, or of a call outside a turn, which asks no model."""
        member = turn.member
        models = _NoModels() if is_call(turn.envelope) else self.models(member, (), runners=True)
        places = self.workspace_of(member, options), self.kept_for(member, frozen.readers)
        return Around(
            *(models, tools, *places, self.clock, options, self._context.approvals),
            granted=lambda: self._granted_tools(turn, options),
            keep=self._keeper(turn),
            facts=self._context.facts,
            memory=MemorySources(self._context.history, self._context.names),
        )

    async def _granted_tools(self, turn: Turn, options: TurnOptions) -> frozenset[str]:
        """The tools that the sender may have the butler use now, which may have changed since the turn began."""
        from switchboard.agents.turns.toolbox import granted_to

        tools = await self.tools_of(turn.member)
        granted = await granted_to(turn, options, tools, self._context.readers)
        return frozenset(tool.name for tool in (*granted.tools, *granted.on_request))

    def _keeper(self, turn: Turn) -> Keep | None:
        files = self._context.files
        if files is None:
            return None

        async def keep(filename: str, pieces: AsyncIterable[bytes], size_bytes: int) -> Attachment:
            return await files.keep(turn, filename, pieces, size_bytes=size_bytes)

        return keep

    async def _waiting(self, turn: Turn, readers: str) -> Sequence[Pending]:
        approvals = self._context.approvals
        return () if approvals is None else await approvals.pending(turn, readers, MOST_WAITING)

    async def _surrounding(self, turn: Turn) -> Surrounding:
        found = self._context.surroundings
        return Surrounding() if found is None else await found.of(turn)

    async def _history(self, turn: Turn) -> tuple[Entry, ...]:
        kept = self._context.history
        return () if kept is None else tuple(await kept.load(turn))

    async def _facts(self, turn: Turn) -> tuple[Fact, ...]:
        """What people have said, as far as the model is told."""
        kept = self._context.facts
        return () if kept is None else told_facts(await kept.choose(turn, _FACTS))

    async def _find_names(self, turn: Turn, people: Collection[str]) -> tuple[Mapping[str, str], str | None]:
        """What the model calls linked persons, by who they are, and the sender, if it is certain who that is."""
        names, readers = self._context.names, self._context.readers
        reader = None if readers is None else await readers.of(turn)
        if names is None or reader is None or not reader.authentic:
            return {}, None
        found = await names.of({*people, reader.person} - {""})
        is_alone = len(turn.envelope.sender.participants or ()) <= 1
        return found, found.get(reader.person) if is_alone else None

    # Directories ------------------------------------------------------------------------------------------------------

    def workspace_of(self, member: Member, options: TurnOptions) -> Path | None:
        """Where its tools work with files; None: nowhere."""
        if options.workspace is not None or self._context.workspaces is None:
            return options.workspace
        return self._context.workspaces / workspace_name(member.name)

    def kept_for(self, member: Member, readers: str) -> Path | None:
        """The directory where only the readers of a turn find long results and images; None if nothing is kept."""
        root = self._context.workspaces
        return None if root is None else root / DIRECTORY / workspace_name(member.name) / readers


def _is_told(turn: Turn, history: Sequence[Entry], ours: Collection[str]) -> bool:
    """Whether the message of a turn, or what was said before, has others' words; a task that is due says so itself."""
    passages = () if turn.envelope.control.is_ours else passages_of(turn.envelope)
    return others_words(passages, history, ours, person_of(turn.envelope))


def _tools_of(options: TurnOptions) -> Mapping[str, Sequence[str]]:
    return {"tools": options.tools or (), "approve": options.approve}


def prompt_of(member: Member, options: TurnOptions) -> str:
    """The prompt that the operator wrote for a butler; this may read a file. Raises `EngineFailure`."""
    if options.prompt_file is None:
        return options.prompt
    try:
        return options.prompt_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(member, f"prompt_file: {options.prompt_file} cannot be read: {error}") from error


def wrong(member: Member, problem: str) -> EngineFailure:
    """The failure of a turn whose butler cannot be asked until its options are corrected."""
    message = f"the options of {member.system_id} are wrong: {problem}"
    return EngineFailure(message, error_class="validation", retryable=False)
