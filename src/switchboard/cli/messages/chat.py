"""`switchboard chat`: a real channel, `cli`, one line a message.

Called by `cli/main.py`. Lines enter from the terminal or from stdin; answers leave as they come, on a terminal while
they are written. A session is a thread of the conversation: naming it again continues it. Next: `screen.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import readline
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from switchboard.cli.client import Client, open_client
from switchboard.cli.messages.keyboard import Keyboard
from switchboard.cli.messages.screen import screen
from switchboard.cli.messages.talk import (
    Draft,
    answer_json,
    follow,
    local_endpoint,
    local_user,
    new_id,
    show_silence,
    submit,
    written,
)
from switchboard.cli.output import FAILED, OK, AsJson, done, errors, show
from switchboard.domain.errors import InvalidInput, Overloaded

_HISTORY: Final = 1000
_PROMPT: Final = "you: "
_HELP: Final = """\
Each line is a message; the answer comes below it. Arrow keys bring back earlier lines.
/help  this text
/stop  ends an answer that is being written, as Ctrl-C does; Ctrl-C once more leaves
/quit  leaves, as Ctrl-D does; `switchboard chat --session {session}` continues here
Why a message went where it went: `switchboard messages list --channel cli`, then `switchboard explain ID`."""


def chat(
    *,
    session: Annotated[str, typer.Option(help="Continue this session; by default a new one.")] = "",
    endpoint: Annotated[str, typer.Option(help="The account that you write to; by default you@this-host.")] = "",
    once: Annotated[str | None, typer.Option("--once", help="Send this text, print the answer, and exit.")] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for each answer.")] = 300.0,
    as_json: AsJson = False,
) -> None:
    """Talk to your butlers; on a terminal answers appear while they are written. Ctrl-D ends.

    /stop or Ctrl-C ends the answer that is being written, Ctrl-C once more leaves. /help says more.
    With --json one object a line, when its message is answered. With --once exit code 1 if nobody answered.
    """
    draft = Draft("", "cli", endpoint or local_endpoint(), local_user(), session or new_id(), "")
    if once is not None:
        done(_talk(draft, [written(once)], wait, as_json=as_json))
    elif sys.stdin.isatty():
        errors().print(f"session {draft.thread}; /stop ends an answer, Ctrl-D the chat, /help says more", style="dim")
        keyboard = Keyboard(draft.thread or "", [])
        with _history():
            _talk(draft, _typed(keyboard), wait, keyboard, as_json=as_json)
    else:
        _talk(draft, _piped(), wait, as_json=as_json)


def _talk(draft: Draft, lines: Iterable[str], wait: float, keyboard: Keyboard | None = None, *, as_json: bool) -> int:
    """One exchange a line; the code of the last one. Between two, nothing of ours runs: the terminal has the thread."""
    code = OK
    with asyncio.Runner() as runner, contextlib.ExitStack() as closing:
        opened = open_client()
        client = runner.run(opened.__aenter__())
        closing.callback(lambda: runner.run(opened.__aexit__(None, None, None)))
        for line in lines:
            try:
                said = replace(draft, text=line, event_id=new_id())
                code = runner.run(_exchange(client, said, wait, keyboard, as_json=as_json))
            except (InvalidInput, Overloaded) as error:
                # A line that is refused (too long, too many waiting) is no reason to end the conversation.
                errors().print(error.message, style="yellow")
                code = FAILED
    return code


async def _exchange(client: Client, draft: Draft, wait: float, keyboard: Keyboard | None, *, as_json: bool) -> int:
    accepted = await submit(client, draft)
    request_id = str(accepted["request_id"])
    following = follow(client, request_id, wait=wait, take=screen(as_json=as_json))
    answer = await (keyboard.attend(client, request_id, following) if keyboard else following)
    show(answer_json(answer, accepted), lambda _: show_silence(answer), as_json=as_json)
    return OK if answer.good else FAILED


def _piped() -> Iterator[str]:
    """The lines of stdin that are not blank."""
    for line in sys.stdin.buffer:
        if text := line.decode(errors="replace").strip():
            yield text


def _typed(keyboard: Keyboard) -> Iterator[str]:
    """What is typed, until Ctrl-D or /quit."""
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
                errors().print(_HELP.format(session=keyboard.session), style="dim")
            case "":
                pass
            case _:
                yield line


def _next_line(keyboard: Keyboard) -> str:
    """The next line. What was typed during the last answer comes first, and is shown as if it were typed now."""
    if not keyboard.later:
        return input(_PROMPT)
    line = keyboard.later.pop(0)
    sys.stdout.write(f"{_PROMPT}{line}\n")
    return line


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Arrow keys bring back earlier lines, those of earlier sessions too. The file is for its owner's eyes only."""
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
