"""The model that was chosen: one that was found, or that of a provider or server, with or without a key.

`cli/init` and the page Welcome call it. In: what was entered; out: an offer, and the key, if there is one. Nothing is
written here. Next: `trial.py`, which tests it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from switchboard.app.setup.discovery import PROVIDERS, Offer, models_at
from switchboard.domain.errors import NotFound

KEYS: Final = PurePosixPath("keys")
"""The directory of typed keys, in an installation."""
_NEAR: Final = (".localhost", ".local", ".lan", ".internal", ".home.arpa")
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
    def as_written(self) -> Offer | None:
        """The offer as the settings have it."""
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


def offer_at(url: str, model: str, key_env: str | None = None) -> Offer:
    """A model of the OpenAI-compatible server at this address."""
    return Offer("own", "openai", model, url, url, key_env, "local" if is_near(url) else None)


def offer_of_provider(name: str) -> Offer | None:
    """The usual model of a provider; None if it is none that we know."""
    one = next((one for one in PROVIDERS if one.name == name), None)
    return None if one is None else Offer(one.name, one.kind, one.model, f"the key of {name}", one.base_url)


async def choose_at(url: str, model: str | None, key_env: str | None = None) -> tuple[Offer, Sequence[str]]:
    """The model of the server at this address, by default its first, and the others. Raises NotFound."""
    url = url.rstrip("/")
    if model is not None:
        return offer_at(url, model, key_env), ()
    there = await models_at(url)
    if not there:
        raise NotFound(f"{url}/models lists no model for chats: load one in the server, or name one")
    return offer_at(url, there[0], key_env), there[1:]
