"""The command line: the table of commands, and where each is implemented.

Called by `__main__.py`. In: arguments; out: an exit code (see `output.py`). Only the module of the requested command is
imported, so that `switchboard --help` costs next to nothing. Next: that module.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FunctionType
from typing import Annotated, Final

import typer
from msgspec import Struct
from typer.core import TyperGroup
from typer.main import get_command

from switchboard import __version__
from switchboard.cli.output import INTERRUPTED, OK, report, report_usage
from switchboard.cli.shape import name_values, offer_json
from switchboard.cli.terminal import set_up_terminal, silence_stdout
from switchboard.domain.errors import SwitchboardError
from switchboard.signals import drop_withheld


class CommandEntry(Struct, frozen=True):
    """A command: its name, `module:attribute` of its function or group in `cli`, and its line in the help."""

    name: str
    place: str
    summary: str
    panel: str


_RUN: Final = "Run"
_TALK: Final = "Send messages"
_ASK: Final = "Inspect"
_STEER: Final = "Change the rules"
_KEEP: Final = "Operate"

COMMANDS: Final = (
    CommandEntry("init", "init.commands:init", "Set up a butler with a model: settings and a team.", _RUN),
    CommandEntry("up", "processes.commands:up", "Start everything: database, server and a worker.", _RUN),
    CommandEntry("serve", "processes.commands:serve", "Start the server only (HTTP, MCP).", _RUN),
    CommandEntry("work", "processes.commands:work", "Start a worker only.", _RUN),
    CommandEntry("connect", "processes.connect:connect", "Connect one account of a channel.", _RUN),
    CommandEntry(
        "demo", "demo.commands:demo", "Show everything in a minute: real input, a killed worker, balanced books.", _RUN
    ),
    CommandEntry("examples", "examples:print_examples", "Where the example teams, messages and programs are.", _RUN),
    CommandEntry("chat", "messages.chat:chat", "Talk to your butlers from the terminal.", _TALK),
    CommandEntry("send", "messages.send:send", "Send one message, and optionally wait for the answer.", _TALK),
    CommandEntry("import", "importing.commands:import_files", "Import mails and envelopes from files.", _TALK),
    CommandEntry(
        "messages",
        "messages.commands:app",
        "List messages; show, stop or correct one, or get its original bytes.",
        _ASK,
    ),
    CommandEntry(
        "explain", "messages.explain:explain", "Why a message was routed as it was, and what became of it.", _ASK
    ),
    CommandEntry("status", "status:status", "How it is, in one sentence, and what waits for you.", _ASK),
    CommandEntry("conversations", "status:app", "Conversations: list them, read one.", _ASK),
    CommandEntry("teams", "teams:app", "The tree of teams with members and rules.", _ASK),
    CommandEntry("agents", "agents:app", "All agents, how much they have done, and which are available.", _ASK),
    CommandEntry("rules", "rules.commands:app", "List, edit, test and restore rules at run time.", _STEER),
    CommandEntry("sops", "rules.sops:app", "Rules of standard operating procedures: load and unload.", _STEER),
    CommandEntry(
        "dlq", "dead_letters.commands:app", "Dead letters: messages that could not be delivered, and why.", _ASK
    ),
    CommandEntry("models", "models.commands:app", "Models: list and test them, their cost, their choices.", _KEEP),
    CommandEntry(
        "spending", "models.spending:spending", "What models cost: by purpose and butler; what is left today.", _KEEP
    ),
    CommandEntry("memory", "memory:app", "What butlers have learned: list, search, correct, share, forget.", _KEEP),
    CommandEntry("mcp", "mcp_servers:app", "MCP servers: their tools; accept those that change.", _KEEP),
    CommandEntry("modules", "modules:app", "Modules: list, test or release them; call tools of butlers.", _KEEP),
    CommandEntry("approvals", "approvals:app", "What butlers ask people: approve, refuse or answer it.", _KEEP),
    CommandEntry("plans", "plans:app", "Plans: list, show, cancel; try what a butler would plan for a message.", _ASK),
    CommandEntry("tasks", "tasks:app", "Tasks: what butlers say or do at a set time.", _KEEP),
    CommandEntry("channels", "channels.commands:app", "Accounts of channels: add, test, pause or remove one.", _KEEP),
    CommandEntry("connectors", "connectors:app", "Connectors: which endpoints are served.", _KEEP),
    CommandEntry("webhooks", "webhooks:app", "Webhooks of other programs: try their mappings.", _KEEP),
    CommandEntry("quarantine", "quarantine:app", "Events that could not be made into messages.", _KEEP),
    CommandEntry("pairing", "pairing:app", "Who may write: approve or deny strangers, make codes.", _KEEP),
    CommandEntry("people", "people:app", "Who is who: persons, their handles and groups.", _KEEP),
    CommandEntry("outbox", "outbox:app", "Outgoing replies: list, show or resend.", _KEEP),
    CommandEntry("lanes", "lanes:app", "Lanes that are waiting, running or paused; resume one.", _KEEP),
    CommandEntry("open", "web:open_page", "Make a link that signs a browser in to the page.", _RUN),
    CommandEntry("web-sessions", "web:app", "Who is signed in on the page; sign one out.", _KEEP),
    CommandEntry("setup", "setup:app", "The first run: see how far it is, skip a step.", _KEEP),
    CommandEntry("tokens", "tokens:app", "Create, list and revoke tokens.", _KEEP),
    CommandEntry("audit", "audit:app", "Refused requests and administrative actions.", _KEEP),
    CommandEntry("monitoring", "monitoring.commands:app", "Alerts for Prometheus, a dashboard for Grafana.", _KEEP),
    CommandEntry("service", "service.commands:app", "Run as a service of systemd: install, show, remove it.", _KEEP),
    CommandEntry("doctor", "doctor:doctor", "Check the installation and say how to fix it.", _KEEP),
    CommandEntry("backup", "backup:backup", "Save the whole installation in one file, even while it works.", _KEEP),
    CommandEntry("restore", "backup:restore", "Restore a whole installation into an empty directory.", _KEEP),
    CommandEntry("upgrade", "upgrade:upgrade", "Bring the database to this release, or try what that changes.", _KEEP),
    CommandEntry("db", "db:app", "Migrate, back up and restore the database.", _KEEP),
    CommandEntry("bench", "bench:app", "Run benchmarks, as ratios to a baseline of the same run.", _KEEP),
    CommandEntry("version", "version:version", "Show the version.", _KEEP),
)

_LISTENING: Final = {"up", "serve", "work", "connect"}
"""They listen for signals themselves, once they have something to clear away; until then Ctrl-C just ends them."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command named by `arguments` (by default those of the process), and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    drop_withheld()
    set_up_terminal()
    try:
        command = command_line(given)
        if _command_name(given) not in _LISTENING and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = command.main(args=given, prog_name="switchboard", standalone_mode=False)
        sys.stdout.flush()
    except SwitchboardError as error:
        sys.exit(report(error, as_json=as_json))
    except typer.TyperException as error:
        sys.exit(report_usage(error, as_json=as_json))
    except OSError as error:
        sys.exit(report(SwitchboardError(silence_stdout(error))))
    except (typer.Abort, KeyboardInterrupt):  # Ctrl-C at a prompt, or before the command has begun
        sys.exit(INTERRUPTED)
    sys.exit(code or OK)


def command_line(arguments: Sequence[str]) -> TyperGroup:
    """The command line for these arguments, ready to run: with names for values, and raising errors."""
    made = get_command(build(arguments))
    offer_json(made, but="connect")
    name_values(made)
    if not isinstance(made, TyperGroup):
        raise TypeError("the command line has more than one command")
    return made


def build(arguments: Sequence[str]) -> typer.Typer:
    """The command line for these arguments: the named command in full, the others with name and summary only."""
    app = typer.Typer(
        help="A self-hosted message switchboard for AI agents: nothing lost, nothing doubled, nothing out of order.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    wanted = _command_name(_words(arguments))
    for entry in COMMANDS:
        _register(app, entry, in_full=entry.name == wanted)
    return app


def _command_name(words: Sequence[str]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def _words(arguments: Sequence[str]) -> Sequence[str]:
    # For completions, the shell passes the line typed so far here, and not in the arguments; for bash in COMP_WORDS.
    typed = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS") or ""
    return typed.split()[1:] or arguments


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"switchboard {__version__}\n")
        raise typer.Exit


def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Everything else is an option of a command, of `switchboard.toml`, or of the environment."""
    del version


def _register(app: typer.Typer, entry: CommandEntry, *, in_full: bool) -> None:
    target: object = load(entry.place) if in_full else _only_named
    if isinstance(target, typer.Typer):
        app.add_typer(target, name=entry.name, help=entry.summary, rich_help_panel=entry.panel)
    elif isinstance(target, FunctionType):
        app.command(entry.name, short_help=entry.summary, rich_help_panel=entry.panel)(target)


def load(place: str) -> object:
    """The function or group of an entry."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(f"switchboard.cli.{module}"), attribute)


def _only_named() -> None:
    """Represents other commands in the list of commands."""


if __name__ == "__main__":
    main()
