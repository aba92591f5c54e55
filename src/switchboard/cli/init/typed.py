"""Asks for a model that was not found: the URL of a server or the name of a provider, and a key.

`commands.py` calls it at a terminal. In: what was typed; out: a `ChosenModel`. Nothing is written here. Next:
`app/setup/discovery.py`, which lists the models of a server.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Final

import typer
from msgspec.structs import replace

from switchboard.app.setup.chosen import ChosenModel, offer_at, offer_of_provider
from switchboard.app.setup.discovery import PROVIDERS, Offer, models_at
from switchboard.cli.output import clean, errors, prompt_for
from switchboard.domain.errors import ConfigurationError, NotFound
from switchboard.transport.signed_post import check_url

_PATHS: Final = ("/", "~", "./", "../")


def source(most: int, typed: str) -> int | str:
    """What was typed where a model is chosen: a number up to `most`, a provider or a URL. Raises BadParameter."""
    word, providers = typed.strip(), [one.name for one in PROVIDERS]
    if word.isdecimal() and int(word) <= most:
        return int(word)
    if word in providers:
        return word
    try:
        check_url(word)
    except ConfigurationError as error:
        others = f"a URL such as http://127.0.0.1:8000/v1, or one of {', '.join(providers)}"
        raise typer.BadParameter(f"please enter {f'a number from 0 to {most}' if most else '0'}, {others}") from error
    return word.rstrip("/")


def ask_for_model(word: str) -> ChosenModel:
    """The model of a provider or of the server at a URL; asks for the key, and which model."""
    offer = offer_of_provider(word)
    if offer is not None:
        return _with_key(offer, _asked_key("Its key", default=None))
    key = _asked_key("Its key, if it wants one", default="")
    model = _asked_model(word, _read_key(key) if key is not None else None)
    return _with_key(offer_at(word, model), key)


def _with_key(offer: Offer, key: str | Path | None) -> ChosenModel:
    if isinstance(key, Path):
        return ChosenModel(replace(offer, api_key_file=str(key)))
    return ChosenModel(offer, key)


def _asked_key(what: str, *, default: str | None) -> str | Path | None:
    """A key, or the file that contains it; None if there is none."""
    errors().print(f"{what}, or the path of a file that contains it; it is not shown")
    while True:
        typed: str = typer.prompt("Key or file", default=default, show_default=False, hide_input=True, err=True).strip()
        file = Path(typed).expanduser()
        if not typed:
            return None
        if not typed.startswith(_PATHS):
            return typed
        try:
            _read_key(file)
        except OSError as error:
            errors().print(clean(f"{file} cannot be read: {error.strerror}"), style="yellow", soft_wrap=True)
        else:
            return file.absolute()


def _read_key(key: str | Path) -> str:
    return key.read_text(encoding="utf-8", errors="replace").strip() if isinstance(key, Path) else key


def _asked_model(url: str, key: str | None) -> str:
    """The model to ask there: the only one, or the one that is typed."""
    try:
        there = asyncio.run(models_at(url, key))
    except NotFound as error:
        there = ()
        errors().print(clean(error.message), style="yellow", soft_wrap=True)
    if len(there) == 1:
        return there[0]
    which = prompt_for("Which model?", clean(", ".join(there)))
    model: str = typer.prompt(which, default=next(iter(there), None), value_proc=partial(_word_of, there), err=True)
    return model


def _word_of(there: tuple[str, ...], typed: str) -> str:
    word = typed.strip()
    if not word or (there and word not in there):
        raise typer.BadParameter(f"one of {', '.join(there)}, please" if there else "its name, please")
    return word
