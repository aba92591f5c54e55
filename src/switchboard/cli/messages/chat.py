"""`switchboard chat`: sends each line as a message, over the gateway.

Called by `cli/main.py`. In: lines from the terminal or from stdin; out: answers as they arrive, on a terminal while
they are written. A thread is a conversation of its own: naming it again continues it. Next: `exchange.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import readline
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import Annotated, Final

import typer
from msgspec import Struct, field

from switchboard.app.whereabouts import find_whereabouts
from switchboard.cli.client import ServerPlace, find_server
from switchboard.cli.messages.exchange import ChatLine, Exchange
from switchboard.cli.messages.keyboard import Keyboard
from switchboard.cli.messages.screen import screen
from switchboard.cli.messages.talk import MessageProgress, conclude, local_endpoint, local_user, new_id, require_text
from switchboard.cli.output import FAILED, OK, Json, errors, exit_unless_ok
from switchboard.domain.errors import InvalidInput, Overloaded

_HISTORY: Final = 1000
_PROMPT: Final = "you: "
_OPERATOR: Final = "sb_o_"
"""How the tokens of operators begin."""
_HELP: Final = """\
Each line is a message; the answer comes below it. Arrow keys bring back earlier lines.
/help  this text
/stop  ends an answer that is being written, as Ctrl-C does; Ctrl-C once more leaves
/new   starts the conversation over: what was said before is not read any more
/approve ID, /refuse ID, /answer ID and your answer: decide what a butler asks
Enter  checks for answers that were waiting for a decision
/quit  leaves, as Ctrl-D does; this continues here:
       switchboard chat --thread {thread}
Why a message went where it went: `switchboard messages list`, then `switchboard explain ID`."""


def chat(
    *,
    thread: Annotated[str, typer.Option(help="Continue this thread; by default a new one.")] = "",
    endpoint: Annotated[str, typer.Option(help="The account that you write to; by default you@this-host.")] = "",
    once: Annotated[str | None, typer.Option("--once", help="Send this text, print the answer, and exit.")] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for each answer.")] = 300.0,
) -> None:
    """Talk to your butlers; on a terminal answers appear while they are written. Ctrl-D ends.

    /stop or Ctrl-C ends the answer that is being written, Ctrl-C once more leaves. See /help.
    With --json, one object per line, when its message is answered. With --once, exit code 1 if there was no answer.
    """
    place = find_server(find_whereabouts())
    talk = _Talk(place=place, speaker=_speaker(place, endpoint), thread=thread or new_id(), wait=wait)
    if once is not None:
        exit_unless_ok(talk.exchange([require_text(once)]))
    elif sys.stdin.isatty():
        errors().print(f"thread {talk.thread}; /stop ends an answer, Ctrl-D the chat, /help says more", style="dim")
        keyboard = Keyboard(talk.thread, [])
        with _history():
            talk.exchange(_typed_lines(keyboard), keyboard)
    else:
        talk.exchange(_piped_lines())


def _speaker(place: ServerPlace, endpoint: str) -> Json | None:
    """An operator's token speaks for the user of this terminal; every other one for itself."""
    if not endpoint and not (place.token or "").startswith(_OPERATOR):
        return None
    return {"channel": "cli", "endpoint": endpoint or local_endpoint(), "sender": local_user()}


class _Sent(Struct, frozen=True, eq=False):
    """A line without its answer, which is awaited until `until` (monotonic seconds)."""

    exchange: Exchange
    accepted: Json
    until: float


class _Talk(Struct, frozen=True, kw_only=True):
    """A thread with a server; `wait`: seconds for each answer. `asked`: lines whose turns wait for people."""

    place: ServerPlace
    speaker: Json | None
    thread: str
    wait: float
    asked: list[_Sent] = field(default_factory=list)

    def exchange(self, lines: Iterable[str], keyboard: Keyboard | None = None) -> int:
        """One exchange per line; returns the code of the last.

        Between two, nothing of ours runs: the terminal is free.
        """
        code = OK
        with asyncio.Runner() as runner:
            for text in lines:
                earlier = self.asked[:]
                try:
                    code = runner.run(self._one(text, keyboard)) if text else code
                    runner.run(self._look(earlier, keyboard))
                except (InvalidInput, Overloaded) as error:
                    # A refused line (too long, too many waiting) is no reason to end the conversation.
                    errors().print(error.message, style="yellow")
                    code = FAILED
            return max([code, *(runner.run(self._end(sent, patient=keyboard is None)) for sent in self.asked)])

    async def _one(self, text: str, keyboard: Keyboard | None) -> int:
        line = ChatLine(self.thread, text, new_id())
        async with Exchange(self.place, self.speaker, line, screen()) as exchange:
            sent = _Sent(exchange, await exchange.send(), monotonic() + self.wait)
            answer = await self._follow_answer(sent, keyboard)
        if not answer.asked:
            return conclude(answer, sent.accepted)
        self.asked.append(sent)
        if keyboard:
            errors().print("you can continue meanwhile; Enter checks for the answer", style="dim")
        return OK

    async def _look(self, earlier: Iterable[_Sent], keyboard: Keyboard | None) -> None:
        """Check for answers to earlier lines that somebody may have decided about."""
        for sent in earlier:
            async with sent.exchange:
                answer = await self._follow_answer(sent, keyboard)
            if not answer.asked:
                self.asked.remove(sent)
                conclude(answer, sent.accepted)

    async def _follow_answer(self, sent: _Sent, keyboard: Keyboard | None) -> MessageProgress:
        """Wait for the answer, or until its turn waits for people."""
        following = sent.exchange.follow(self.wait, until_asked=True)
        return await (keyboard.attend(sent.exchange.stop, following) if keyboard else following)

    async def _end(self, sent: _Sent, *, patient: bool) -> int:
        """No more input. `patient`: wait for answers that need people as long as for any other."""
        answer = MessageProgress(str(sent.accepted["request_id"]), "in_flight", settled=False, replies=())
        if patient:
            async with sent.exchange:
                answer = await sent.exchange.follow(max(sent.until - monotonic(), 0.0))
        return conclude(answer, sent.accepted)


def _piped_lines() -> Iterator[str]:
    """The non-blank lines of stdin."""
    for line in sys.stdin.buffer:
        if text := line.decode(errors="replace").strip():
            yield text


def _typed_lines(keyboard: Keyboard) -> Iterator[str]:
    """The typed lines, until Ctrl-D or /quit."""
    while True:
        try:
            line = _next_line(keyboard)
        except EOFError:
            sys.stdout.write("\n")
            return
        except KeyboardInterrupt:
            keyboard.leave()
            raise
        match line.strip():
            case "/quit":
                return
            case "/help":
                errors().print(_HELP.format(thread=keyboard.thread), style="dim")
            case "":
                yield ""
            case _:
                yield line


def _next_line(keyboard: Keyboard) -> str:
    """The next line. Lines typed during the last answer come first, shown as if typed now."""
    if not keyboard.later:
        return input(_PROMPT)
    line = keyboard.later.pop(0)
    sys.stdout.write(f"{_PROMPT}{line}\n")
    return line


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Arrow keys recall earlier lines, also of earlier threads. Only the owner can read the file."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "switchboard"
    file = state / "chat_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(_HISTORY)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            state.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600)
            readline.write_history_file(file)
