"""Whole turns by claude-code or codex, which asks its model and calls our tools until it has the answer.

`build.py` wraps it around a `CliSession`, which still serves all other requests; `dispatch.py` calls `run`. In: a
request with `carrying`, whose calls are executed while the program runs; out: its answer as a `Reply` without them.
Nothing outlives `run` or this process: the program has a keeper (`transport/keeper.py`). Next: `tool_server.py`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from switchboard.domain.llm import CarryOut, ModelDelta, ModelFailure, OnDelta, Reply, Request, Usage
from switchboard.llm.cli import NO_SERVER, CliSession, broke_off, cause, environment, lay_out, passed_on, program_of
from switchboard.llm.cli import short as shortened
from switchboard.llm.commands import CliCommand, Way, run_command_for
from switchboard.llm.outputs import Transcript
from switchboard.llm.port import CliKind, tell, with_usage
from switchboard.llm.tool_server import ToolServing, relay_to, serving
from switchboard.tasks import cancel_tasks
from switchboard.transport.kept import KeptProgram, LongProgram, start
from switchboard.transport.programs import ProgramExit
from switchboard.transport.scratch import scratch

_MOST_LINE: Final = 8_388_608
_MOST_OUTPUT: Final = 67_108_864
"""Of one run. What is read of it is kept in memory; what a real program writes is far less."""
_EXIT_S: Final = 2.0
"""For a program to end that has said everything."""
_ENDS: Final = {"max_tokens": "length", "refusal": "refused", "error_max_turns": "rounds"}
"""What the programs call the ends that are not plain ones."""


class RunnerSession(Struct, frozen=True):
    """One model through a command-line program that can run turns."""

    asked: CliSession

    @property
    def kind(self) -> CliKind:
        return self.asked.kind

    async def run(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Run the program once. Raises ModelFailure with the output so far, and the errors of `carrying`."""
        if request.carrying is None:
            return await self.asked.run(request, on_delta)
        with self.asked.redact_failures():
            return await self._alone(request, request.carrying(), on_delta)

    async def _alone(self, request: Request, carry_out: CarryOut, on_delta: OnDelta | None) -> Reply:
        async with scratch("session") as place, serving(place, request.tools, carry_out) as tools:
            return await self._whole(request, place, tools, on_delta)

    async def _whole(self, request: Request, place: Path, tools: ToolServing, on_delta: OnDelta | None) -> Reply:
        asked = self.asked
        command = run_command_for(
            self.kind, request, relay_to(place), Way(asked.spec, asked.api_key, place, asked.login)
        )
        lay_out(place, command)
        run = _Run(
            self.kind, self._start_program(place, command), tools, (on_delta, request.on_usage), asked.spec.timeout
        )
        try:
            async with asyncio.timeout(request.deadline):
                await run.follow(command.given)
        except TimeoutError:
            failure = ModelFailure("timeout", f"{self.kind} was not done in time, and was killed")
            raise run.add_output_so_far(failure, request) from None
        except ModelFailure as failure:
            raise run.add_output_so_far(failure, request) from failure
        finally:
            tools.shut()  # it has a moment to end, and may use it for a call
            await run.end()
        reply = run.reply_at_exit(request)
        if asked.login is not None:  # the program reports a hypothetical cost; a login has a subscription
            reply = replace(reply, usage=structs.replace(reply.usage, cost_usd=None))
        run.tell(reply.text)
        tell(reply, on_delta, text=False)
        return reply

    def _start_program(self, place: Path, command: CliCommand) -> KeptProgram:
        program = program_of(self.asked.spec)
        path = shutil.which(program)
        if path is None:
            raise ModelFailure("defect", f"{program} is not installed, or not on PATH")
        env = {**environment(place), **passed_on(self.asked.spec.pass_env, None), **command.env}
        try:
            return start(LongProgram((path, *command.words), env, place / "work"))
        except OSError as error:
            raise ModelFailure("defect", f"{program} could not be started: {error}") from error


class _Run:
    """A running program. `silence`: seconds without output or call after which it is abandoned.

    `listeners`: receive its output and its usage.
    """

    def __init__(
        self,
        kind: CliKind,
        program: KeptProgram,
        tools: ToolServing,
        listeners: tuple[OnDelta | None, Callable[[Usage], None] | None],
        silence: float,
    ) -> None:
        self._kind = kind
        self._program = program
        self._tools = tools
        self._on_delta, self._on_usage = listeners
        self._silence = silence
        self._transcript = Transcript(kind)
        self._told = ""
        self._over = False

    async def follow(self, given: str) -> None:
        """Read until it has finished. Raises ModelFailure, and the errors of calls."""
        feeding = asyncio.ensure_future(self._feed(given.encode("utf-8", "replace")))
        reading = asyncio.ensure_future(self._read())
        try:
            await asyncio.wait((reading, self._tools.failed), return_when=asyncio.FIRST_COMPLETED)
            if self._tools.failed.done():
                self._tools.failed.result()
            reading.result()
            self._over = True
        finally:
            await cancel_tasks(feeding, reading)

    async def end(self) -> None:
        """End the program without leaving anything behind."""
        await self._program.end(_EXIT_S if self._over else 0.0, in_a_hurry=True)

    def tell(self, text: str) -> None:
        """Report the new part of what it is saying."""
        if self._on_delta is None or text == self._told:
            return
        if not text.startswith(self._told):
            self._on_delta(ModelDelta(reset=True))
            self._told = ""
        self._on_delta(ModelDelta(text[len(self._told) :]))
        self._told = text

    def add_output_so_far(self, failure: ModelFailure, request: Request) -> ModelFailure:
        """The failure with its output and cost so far."""
        failure.reply = with_usage(replace(self._transcript.reply(), calls=()), request)
        return failure

    def reply_at_exit(self, request: Request) -> Reply:
        """The reply, once the program has ended. Raises ModelFailure."""
        reply = replace(with_usage(self._transcript.reply(), request), calls=())
        errors = self._program.errors
        missed = request.tools and not self._tools.listed and not broke_off(self._kind, reply)
        if missed or NO_SERVER.search("\n".join((*reply.errors, errors))):
            told = f"{self._kind} did not get our MCP server: {shortened(' '.join((*reply.errors, errors)))}"
            raise ModelFailure("unavailable", told, alive=True, reply=reply)
        end = _ENDS.get(reply.stop_reason or "")
        if end is None and broke_off(self._kind, reply):
            failure = cause(self._kind, reply, self._program_exit())
            failure.reply = reply
            raise failure
        if end == "refused":
            raise ModelFailure("refused", f"the model refused: {shortened(reply.text)}", reply=reply)
        return replace(reply, stop_reason=end or "end")

    def _program_exit(self) -> ProgramExit:
        status = self._program.status or 0
        return ProgramExit(
            self._transcript.odd.encode(), self._program.errors, status if status < 128 else 128 - status
        )

    async def _feed(self, given: bytes) -> None:
        try:
            await self._program.write(given)
        except BrokenPipeError:
            return  # it has ended, or does not read; its output says more
        self._program.close_input()

    async def _read(self) -> None:
        buffer, looked, written = bytearray(), 0, 0
        while piece := await self._piece():
            written += len(piece)
            if written > _MOST_OUTPUT:
                raise ModelFailure("garbage", f"{self._kind} wrote more than {_MOST_OUTPUT} bytes, and was killed")
            buffer += piece
            for line in _lines(buffer, looked):
                self._transcript.read(line)
                self.tell(self._transcript.saying)
                if self._on_usage is not None:
                    self._on_usage(self._transcript.usage)
            looked = len(buffer)
            if looked > _MOST_LINE:
                raise ModelFailure("garbage", f"{self._kind} wrote a line of more than {_MOST_LINE} bytes")
        self._transcript.read(buffer.decode("utf-8", "replace"))

    async def _piece(self) -> bytes:
        while True:
            try:
                async with asyncio.timeout(self._silence):
                    return await self._program.read()
            except TimeoutError:
                if self._tools.idle >= self._silence:
                    told = f"{self._kind} said nothing for {self._silence:g} s, and was killed"
                    raise ModelFailure("timeout", told) from None


def _lines(buffer: bytearray, looked: int) -> Iterator[str]:
    """Remove and return the complete lines at the head of a buffer; the first `looked` bytes contain no line break."""
    while (at := buffer.find(b"\n", looked)) >= 0:
        line, looked = buffer[:at].decode("utf-8", "replace"), 0
        del buffer[: at + 1]
        yield line
