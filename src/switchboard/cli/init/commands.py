"""`switchboard init`: asks three questions, tries the model, and writes the files of an installation that works.

Called by `cli/main.py`. Nothing is written before the model has answered, and nothing that is there is overwritten.
Next: `discovery.py`, `files.py`.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from switchboard.app.settings import Settings
from switchboard.cli.init.discovery import Found, Offer, discover, models_at
from switchboard.cli.init.files import SETTINGS, TEAM, Choice, files_of
from switchboard.cli.messages.talk import local_user
from switchboard.cli.output import FAILED, AsJson, clean, errors, out, print_json, program
from switchboard.domain.errors import ConfigurationError, InvalidInput, NotFound
from switchboard.domain.json_values import JsonObject

_NONE: Final = "none"
_NAME: Final = re.compile(r"[^\W_][\w.-]{0,63}")
_WAYS: Final = (
    "start a local server (Ollama, LM Studio or llama.cpp), set ANTHROPIC_API_KEY or OPENAI_API_KEY, name one with "
    "--url, or choose no model for now with --model none"
)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What was typed."""

    directory: Path
    model: str | None
    url: str | None
    key_env: str | None
    butler: str | None
    workspace: str | None
    test: bool
    ask: bool


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
    test: Annotated[bool, typer.Option("--test/--no-test", help="Whether to ask the model something first.")] = True,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; take the defaults.")] = False,
    as_json: AsJson = False,
) -> None:
    """Set up a butler with a model: find a model, test it, and write the settings and a small team.

    Nothing that exists is overwritten.
    """
    ask = not (yes or as_json)
    if ask and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter("not a terminal: pass --yes", param_hint="--yes")
    wanted = _Wanted(directory, model, url, key_env, butler, workspace, test, ask)
    _refuse_to_overwrite(directory, (SETTINGS, TEAM.parent))
    choice = _choose(wanted)
    tried = _try(choice, wanted)
    written = _write(directory, files_of(choice))
    if as_json:
        model_of = None if choice.offer is None else asdict(choice.offer)
        print_json({"files": list(map(str, written)), "butler": choice.butler, "model": model_of, "test": tried})
    else:
        _say_what_is_next(directory, written)


def _refuse_to_overwrite(directory: Path, names: Iterable[PurePosixPath]) -> None:
    for name in names:
        if os.path.lexists(directory / name):
            raise ConfigurationError(f"{directory / name} exists, and is not overwritten; name another directory")


def _choose(wanted: _Wanted) -> Choice:
    """The answers to the questions, those that were typed as options not asked again."""
    offer = _offer(wanted)
    butler = _name(wanted.butler or _answer(wanted, "What is the butler called?", "butler", _name))
    workspace = wanted.workspace
    if workspace is None and offer is not None:
        workspace = _answer(wanted, "Which directory may it read and write?", "files")
    at = (wanted.directory / (workspace or "files")).absolute()
    return Choice(butler, offer, str(at), f"cli:{local_user()}")


def _name(typed: str) -> str:
    """A name that can be typed in commands, and be that of a directory. Raises BadParameter with one that is right."""
    if _NAME.fullmatch(typed):
        return typed
    right = re.sub(r"[^\w.-]+", "-", typed.lower()).strip("-._")[:64] or "butler"
    raise typer.BadParameter(
        f"{typed!r} is no name: letters, digits, '-', '_' and '.' only, such as {right}", param_hint="--name"
    )


def _answer(wanted: _Wanted, question: str, default: str, right: Callable[[str], str] = str.strip) -> str:
    if not wanted.ask:
        return default
    answer: str = typer.prompt(question, default=default, value_proc=lambda typed: right(typed.strip()), err=True)
    return answer


def _offer(wanted: _Wanted) -> Offer | None:
    if wanted.url is not None:
        return asyncio.run(_at_url(wanted.url, wanted.model, wanted.key_env))
    if wanted.model == _NONE:
        return None
    found = asyncio.run(discover(os.environ, Path.home()))
    if wanted.model is not None:
        return _named(found.offers, wanted.model)
    return _asked(found) if wanted.ask else _first(found.offers)


async def _at_url(url: str, model: str | None, key_env: str | None) -> Offer:
    """The model of a server that was named, its first one unless that was named as well."""
    url = url.rstrip("/")
    if model is None:
        there = await models_at(url)
        if not there:
            raise NotFound(f"{url}/models lists no models: is the server running there? or name one with --model")
        model = there[0]
    profile = "local" if key_env is None and _is_near(url) else None
    return Offer("own", "openai", model, url, url, key_env, profile)


def _is_near(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_private
    except ValueError:
        return "." not in host


def _named(offers: Sequence[Offer], wanted: str) -> Offer:
    match = next((one for one in offers if wanted in {one.model, one.name}), None)
    if match is None:
        known = ", ".join(one.model for one in offers) or "none"
        raise NotFound(f"no model {wanted!r} was found; there are: {known}. Or: {_WAYS}")
    return match


def _first(offers: Sequence[Offer]) -> Offer:
    if not offers:
        raise NotFound(f"no model was found: {_WAYS}")
    return offers[0]


def _asked(found: Found) -> Offer | None:
    console = errors()
    console.print("Which model shall your butler use?", style="bold")
    for number, one in enumerate(found.offers, 1):
        console.print(f"  {number}  {clean(one.model)}", end="")
        console.print(f"  {clean(one.source)}", style="dim")
    console.print("  0  none for now: the butler files notes and finds them again")
    if not found.offers:
        console.print(f"No model was found. To use one, stop here, and {_WAYS}.", style="yellow", soft_wrap=True)
    if found.programs:
        names = " and ".join(found.programs)
        console.print(f"Also found: {names}, which can classify messages (docs/models.md).", style="dim")
    default, most = min(1, len(found.offers)), len(found.offers)
    chosen: int = typer.prompt("Number", default=str(default), value_proc=partial(_number, most), err=True)
    return found.offers[chosen - 1] if chosen else None


def _number(most: int, typed: str) -> int:
    if not typed.isdecimal() or int(typed) > most:
        raise typer.BadParameter(f"a number from 0 to {most}, please")
    return int(typed)


def _try(choice: Choice, wanted: _Wanted) -> JsonObject | None:
    """Ask the model something; one that fails is reason to write nothing, unless a person says otherwise."""
    if choice.offer is None or not wanted.test:
        return None
    errors().print(f"asking {clean(choice.offer.model)} …", style="dim")
    tried = asyncio.run(_tried(choice.offer))
    if tried["ok"]:
        errors().print(f"it answers, and calls tools ({tried['duration_ms']} ms)", style="green")
        return tried
    problem = f"{choice.offer.model} did not pass: {tried['detail']}; {tried['remedy']}".rstrip("; ")
    if not wanted.ask:
        raise InvalidInput(f"{problem}. Nothing was written; --no-test writes the files all the same")
    errors().print(clean(problem), style="yellow", soft_wrap=True)
    if not typer.confirm("Use it all the same?", err=True):
        raise typer.Exit(FAILED)
    return tried


async def _tried(offer: Offer) -> JsonObject:
    from switchboard.app.classification import model_tests as tests

    values = {key: value for key, value in asdict(offer).items() if key != "source" and value is not None}
    settings = Settings(models=({**values, "max_tokens": 4096},))
    place = tests.Place("", None, "no server runs yet")
    return asdict(await tests.try_tools(settings, settings.models[0], place))


def _write(directory: Path, files: Mapping[PurePosixPath, str]) -> Sequence[Path]:
    written = []
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        written.append(path)
    return written


def _say_what_is_next(directory: Path, written: Sequence[Path]) -> None:
    console = out()
    for path in written:
        console.print(f"wrote {path}", style="dim")
    into = "" if directory == Path() else f"cd {directory} && "
    console.print("\nStart it, and talk to it from a second terminal:")
    console.print(f"  {into}{program()} up", style="bold")
    console.print(f"  {into}{program()} chat", style="bold")
