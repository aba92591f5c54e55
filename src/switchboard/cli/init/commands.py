"""`switchboard init`: asks three questions, tries the model, and writes the files of a working installation.

Called by `cli/main.py`. Nothing is written before the model has answered, and existing files are never overwritten.
Next: `app/setup/`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec import Struct
from msgspec.structs import asdict, replace

from switchboard.app.settings import load_settings
from switchboard.app.setup import trial
from switchboard.app.setup.chosen import KEYS, ChosenModel, choose_at
from switchboard.app.setup.discovery import PROVIDERS, Discovery, Offer, discover_models
from switchboard.app.setup.files import SETTINGS, TEAM, Choice, files_of
from switchboard.app.setup.places import as_in_team_file, closed_to_database, require_new, zone_of_machine
from switchboard.app.setup.questions import BUTLER, WORKSPACE, SetupQuestion
from switchboard.app.setup.writing import write_files, write_key
from switchboard.cli.channels.connecting import ConnectOptions, connect_new
from switchboard.cli.channels.standing import print_next
from switchboard.cli.init.typed import ask_for_model, source
from switchboard.cli.messages.talk import local_user
from switchboard.cli.output import FAILED, Json, clean, errors, out, print_json, program, wants_json
from switchboard.connectors.kernel.accounts import GROUP
from switchboard.domain.errors import ConfigurationError, InvalidInput, NotFound, SwitchboardError
from switchboard.llm.packages import lacking
from switchboard.transport.plug_ins import plug_ins
from switchboard.transport.signed_post import check_url

if TYPE_CHECKING:
    from switchboard.app.models.model_tests import Tried

_NONE: Final = "none"
_NO_FILES: Final = "a butler without a model reads and writes no files; leave it out"
_OPTIONS: Final = {BUTLER.name: "--name", WORKSPACE.name: "--workspace"}
_WAYS: Final = (
    "start a local server (Ollama, LM Studio or llama.cpp), set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name one with "
    "--url"
)
_OR_NONE: Final = "; --model none sets up a butler without a model"


class _Wanted(Struct, frozen=True):
    """The typed options."""

    directory: Path
    model: str | None
    url: str | None
    key_env: str | None
    butler: str | None
    workspace: str | None
    test: bool
    ask: bool
    channel: str | None
    account: ConnectOptions


def init(  # noqa: PLR0913 - the options of a command
    directory: Annotated[Path, typer.Argument(help="Where the files go; by default here.")] = Path(),
    *,
    model: Annotated[
        str | None, typer.Option(help="The model, by its own name or that of its source; `none` for no model.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible server, such as http://127.0.0.1:8000/v1.")
    ] = None,
    key_env: Annotated[str | None, typer.Option(help="The environment variable with the key for --url.")] = None,
    butler: Annotated[str | None, typer.Option("--name", help="The butler's name; by default butler.")] = None,
    workspace: Annotated[
        str | None, typer.Option(help="The directory that its tools may use; by default `files`, beside the settings.")
    ] = None,
    channel: Annotated[
        str | None, typer.Option(help="A channel to connect at once, such as telegram; `none`: do not ask for one.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the channel, as in `channels add`; repeatable.")
    ] = None,
    secret_file: Annotated[
        list[str] | None, typer.Option(help="A file with the secret of the channel, `-` for stdin.")
    ] = None,
    secret_env: Annotated[
        list[str] | None, typer.Option(help="The environment variable with the secret of the channel.")
    ] = None,
    test: Annotated[bool, typer.Option("--test/--no-test", help="Whether to ask the model something first.")] = True,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; use the defaults.")] = False,
) -> None:
    """Set up a butler with a model: find a model, test it, write the settings and a small team, connect a channel.

    Nothing that exists is overwritten.
    """
    ask = not (yes or wants_json())
    if ask and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter("nothing can be asked, as this is not a terminal: pass --yes", param_hint="--yes")
    account = ConnectOptions("", None, setting or (), secret_file or (), secret_env or (), None, ask)
    wanted = _Wanted(directory, model, url, key_env, butler, workspace, test, ask, channel, account)
    _check_options(wanted)
    require_new(directory, (SETTINGS, TEAM.parent, KEYS))
    chosen = _choose_model(wanted)
    _require_package(chosen.as_written)
    choice = _choose_all(wanted, chosen.as_written)
    with chosen.on_trial() as offer:
        tried = None if offer is None else _try_model(offer, wanted)
        if tried is not None:
            choice = replace(choice, found=trial.traits_of(tried))
        if offer is not None:
            choice = replace(choice, concurrency=_measure_parallel(offer, wanted, tried))
    written = [*write_key(directory, chosen), *write_files(directory, files_of(choice))]
    if not wants_json():
        _say_what_was_written(written)
    added = _connect_channel(wanted)
    if added is not None and choice.offer is None:  # a butler without a model has no tools
        added["butlers_with_tools"] = []
    if wants_json():
        model_of = None if choice.offer is None else asdict(choice.offer)
        made = {
            "files": list(map(str, written)),
            "butler": choice.butler,
            "model": model_of,
            "test": None if tried is None else asdict(tried),
        }
        print_json({**made, "channel": added})
    else:
        _say_what_is_next(directory, added)


def _check_options(wanted: _Wanted) -> None:
    """Raise BadParameter for options that contradict each other, before anything is asked."""
    if wanted.model == _NONE and wanted.url is not None:
        raise typer.BadParameter("no model is wanted; leave out --url or --model none", param_hint="--url")
    if wanted.model == _NONE and wanted.workspace is not None:
        raise typer.BadParameter(_NO_FILES, param_hint="--workspace")
    if wanted.url is not None:
        _check_url(wanted.url)
    if wanted.key_env is None:
        return
    if wanted.url is None:
        raise typer.BadParameter(
            "name the server with --url; the usual variables of Anthropic, OpenAI and OpenRouter are found without it",
            param_hint="--key-env",
        )
    if wanted.test and not os.environ.get(wanted.key_env):
        raise typer.BadParameter(
            f"the environment variable {wanted.key_env} is not set; set it to the key, or pass --no-test",
            param_hint="--key-env",
        )


def _require_package(offer: Offer | None) -> None:
    """Raise ConfigurationError if this model needs a package that is not installed: `up` would refuse to start."""
    if offer is not None and (missing := lacking(offer.kind)):
        raise ConfigurationError(f"{missing}. Nothing was written; then run init again")


def _check_url(url: str) -> None:
    try:
        check_url(url)
    except ConfigurationError as error:
        raise typer.BadParameter(f"{error.message}, such as http://127.0.0.1:8000/v1", param_hint="--url") from error


def _choose_all(wanted: _Wanted, offer: Offer | None) -> Choice:
    """The answers to the other questions; options given on the command line are not asked again."""
    butler = _answer_question(wanted, BUTLER, wanted.butler)
    workspace = as_in_team_file(wanted.directory, _choose_workspace(wanted, offer), TEAM.parent)
    return Choice(butler, offer, workspace, f"cli:{local_user()}", zone_of_machine())


def _choose_workspace(wanted: _Wanted, offer: Offer | None) -> Path:
    if offer is None and wanted.workspace is not None:
        raise typer.BadParameter(_NO_FILES, param_hint="--workspace")
    if offer is None:
        return wanted.directory.absolute() / WORKSPACE.usual
    return Path(_answer_question(wanted, WORKSPACE, wanted.workspace))


def _answer_question(wanted: _Wanted, question: SetupQuestion, given: str | None) -> str:
    """What was given, typed, or is usual."""
    if given is None and wanted.ask:
        typed: str = typer.prompt(
            question.words, default=question.usual, value_proc=partial(_check_typed, wanted, question), err=True
        )
        return typed
    with _as_option():
        return question.check(wanted.directory, given or question.usual)


def _check_typed(wanted: _Wanted, question: SetupQuestion, typed: str) -> str:
    word = typed.strip()
    if word.isdecimal():  # for the question before, which is answered by a number, and typed too late
        raise typer.BadParameter(f"{word} is a number; a name, please")
    with _as_option():
        return question.check(wanted.directory, word)


@contextmanager
def _as_option() -> Iterator[None]:
    """Turn what is wrong with an answer into BadParameter, which is asked again."""
    try:
        yield
    except InvalidInput as error:
        raise typer.BadParameter(error.message, param_hint=_OPTIONS[str(error.field)]) from error


def _choose_model(wanted: _Wanted) -> ChosenModel:
    if wanted.url is not None:
        return ChosenModel(_at_url(wanted.url, wanted.model, wanted.key_env))
    if wanted.model == _NONE:
        return ChosenModel(None)
    found = asyncio.run(discover_models(os.environ, Path.home()))
    if wanted.model is not None:
        return ChosenModel(_find_offer(found.offers, wanted.model))
    return _ask_offer(found) if wanted.ask else ChosenModel(_first_offer(found.offers))


def _take_offer(offer: Offer, others: int) -> Offer:
    """The offer; if it was chosen automatically, say what it is."""
    more = f"; {others} more: --model names another" if others else ""
    errors().print(clean(f"using {offer.model}, {offer.source}{more}"), style="dim", soft_wrap=True)
    return offer


def _at_url(url: str, model: str | None, key_env: str | None) -> Offer:
    """The model of a given server: the named one, otherwise its first."""
    offer, others = asyncio.run(choose_at(url, model, key_env))
    return offer if model is not None else _take_offer(offer, len(others))


def _find_offer(offers: Sequence[Offer], wanted: str) -> Offer:
    match = next((one for one in offers if wanted in {one.model, one.name}), None)
    if match is None:
        known = ", ".join(one.model for one in offers)
        there = f"found were {known}. For others" if known else "nor any other; to use one"
        raise NotFound(f"no model {wanted!r} was found, {there}, {_WAYS}{_OR_NONE}")
    return match


def _first_offer(offers: Sequence[Offer]) -> Offer:
    if not offers:
        raise NotFound(f"no model was found: {_WAYS}{_OR_NONE}")
    return _take_offer(offers[0], len(offers) - 1)


def _ask_offer(found: Discovery) -> ChosenModel:
    console = errors()
    console.print("Which model should your butler use?", style="bold")
    for number, one in enumerate(found.offers, 1):
        console.print(f"  {number}  {clean(one.model)}", end="")
        console.print(f"  {clean(one.source)}", style="dim")
    console.print("  0  none for now: the butler files notes and finds them again")
    providers = ", ".join(one.name for one in PROVIDERS)
    if not found.offers:
        console.print("No model was found on this machine.", style="yellow")
    console.print(f"Another one: the URL of a server, or {providers} with a key", style="dim", soft_wrap=True)
    if found.programs:
        names = " and ".join(found.programs)
        console.print(f"Also found: {names}, which can classify messages (docs/models.md);", style="dim")
        console.print("claude and codex can do the turns of butlers as well (docs/runners.md).", style="dim")
    default, most = min(1, len(found.offers)), len(found.offers)
    question = "Number, URL or provider"
    typed: int | str = typer.prompt(question, default=str(default), value_proc=partial(source, most), err=True)
    if isinstance(typed, str):
        return ask_for_model(typed)
    return ChosenModel(found.offers[typed - 1] if typed else None)


def _try_model(offer: Offer, wanted: _Wanted) -> Tried | None:
    """Ask the model something; if it fails, write nothing, unless a person says otherwise."""
    if not wanted.test:
        return None
    errors().print(f"asking {clean(offer.model)} …", style="dim")
    tried = asyncio.run(trial.try_offer(offer))
    if tried.ok:
        how = ", as JSON in its answers" if tried.calls == "schema" else ""
        errors().print(f"it answers, and calls tools{how} ({tried.duration_ms} ms)", style="green")
        for said in trial.describe_habits(tried):
            errors().print(said, style="dim", soft_wrap=True)
        return tried
    problem = f"{offer.model} did not pass: {tried.detail}; {tried.remedy}".rstrip("; ")
    if not wanted.ask:
        raise InvalidInput(f"{problem}. Nothing was written; --no-test writes the files anyway")
    errors().print(clean(problem), style="yellow", soft_wrap=True)
    if not typer.confirm("Use it anyway?", err=True):
        raise typer.Exit(FAILED)
    return tried


def _measure_parallel(offer: Offer, wanted: _Wanted, tried: Tried | None) -> int | None:
    """How many requests run at once, if that is not what is usual; a local server that works is asked."""
    if offer.profile != "local":
        errors().print("up to 4 requests run at once (`concurrency`)", style="dim")
        return None
    if tried is None or not tried.ok:
        errors().print("one request runs at a time (`concurrency`)", style="dim")
        return None
    question = "One request runs at a time, unless the server can do more. Ask it?"
    if wanted.ask and not typer.confirm(question, default=True, err=True):
        return None
    number, told = asyncio.run(trial.measure_parallel(offer, tried.timeout))
    how = "as its server says" if told else "as two small requests have shown"
    errors().print(f"requests that run at once: {number}, {how} (`concurrency`)", style="dim")
    return number if number > 1 else None


def _connect_channel(wanted: _Wanted) -> Json | None:
    """The connected channel; offered at a terminal, where a refused secret is not a failure."""
    channel = wanted.channel or (_asked_channel() if wanted.ask else _NONE)
    if channel == _NONE:
        return None
    account = replace(wanted.account, channel=channel)
    try:
        return connect_new(load_settings(wanted.directory / SETTINGS), account)
    except SwitchboardError as error:
        if not wanted.ask:
            raise
        errors().print(clean(f"{channel} is not connected: {error.message}"), style="yellow", soft_wrap=True)
        return None


def _asked_channel() -> str:
    """The channel that a person wants to connect now."""
    known = (*sorted(entry.name for entry in plug_ins(GROUP)), _NONE)

    def right(typed: str) -> str:
        if typed.strip() not in known:
            raise typer.BadParameter(f"one of {', '.join(known)}, please")
        return typed.strip()

    question = f"Connect a channel now? ({', '.join(known)})"
    channel: str = typer.prompt(question, default=_NONE, value_proc=right, err=True)
    return channel


def _say_what_was_written(written: Sequence[Path]) -> None:
    for path in written:
        out().print(f"wrote {path}", style="dim")


def _say_what_is_next(directory: Path, added: Json | None) -> None:
    console = out()
    if added is not None:
        print_next(added)
    into = "" if directory == Path() else f"cd {quote(str(directory))} && "
    console.print("\nStart it, and talk to it from a second terminal:")
    console.print(f"  {into}{program()} up", style="bold", soft_wrap=True)
    console.print(f"  {into}{program()} chat", style="bold", soft_wrap=True)
    if added is None:
        console.print("Let it answer in a channel, such as Telegram or Slack, while it runs:")
        console.print(f"  {into}{program()} channels add telegram", style="bold", soft_wrap=True)
    if closed := closed_to_database(directory):
        errors().print(f"\nIt will not start there yet: {clean(closed)}", style="yellow", soft_wrap=True)
