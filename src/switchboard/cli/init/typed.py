"""Asks for a model that was not found: the URL of a server or the name of a provider, and a key.

`commands.py` calls it at a terminal. In: what was typed; out: an offer, and the key if it was typed. Nothing is written
here. Next: `discovery.py`, which lists the models of a server.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import typer
from msgspec.structs import replace

from switchboard.cli.init.discovery import PROVIDERS, Offer, models_at
from switchboard.cli.output import clean, errors, prompt_for
from switchboard.domain.errors import ConfigurationError, NotFound
from switchboard.transport.signed_post import check_url

KEYS: Final = PurePosixPath("keys")
"""The directory of typed keys, in an installation."""
_NEAR: Final = (".localhost", ".local", ".lan", ".internal", ".home.arpa")
_PATHS: Final = ("/", "~", "./", "../")
_ON_TRIAL: Final = "MODEL_KEY_ON_TRIAL"
"""The variable of our own process that has a typed key while it is tested."""


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """The chosen model, None for none, and its key if it was typed; `key_file` is where that will be kept."""

    offer: Offer | None
    key: str | None = field(default=None, repr=False)

    @property
    def key_file(self) -> PurePosixPath:
        """Relative to the installation."""
        return KEYS / f"{'' if self.offer is None else self.offer.name}.key"

    @property
    def kept(self) -> Offer | None:
        """The offer as it is written into the settings."""
        if self.offer is None or self.key is None:
            return self.offer
        return replace(self.offer, api_key_env=None, api_key_file=str(self.key_file))

    @contextmanager
    def on_trial(self) -> Iterator[Offer | None]:
        """The offer as it can be tested now, before anything is written."""
        if self.offer is None or self.key is None:
            yield self.offer
            return
        os.environ[_ON_TRIAL] = self.key
        try:
            yield replace(self.offer, api_key_env=_ON_TRIAL)
        finally:
            del os.environ[_ON_TRIAL]


def is_near(url: str) -> bool:
    """Whether an address is one of this machine, or of a private network."""
    host = urlsplit(url).hostname or ""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith(_NEAR)


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
    provider = next((one for one in PROVIDERS if one.name == word), None)
    if provider is not None:
        offer = Offer(provider.name, provider.kind, provider.model, f"the key of {word}", provider.base_url)
        return _with_key(offer, _asked_key("Its key", default=None))
    key = _asked_key("Its key, if it wants one", default="")
    model = _asked_model(word, _read_key(key) if key is not None else None)
    return _with_key(Offer("own", "openai", model, word, word, profile="local" if is_near(word) else None), key)


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
