"""Sessions from what the settings say: clients are made once, SDKs are imported only where they are asked for.

`app/wiring.py` opens a `Sessions` and closes it at the end. Next: `dispatch.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, cast

from switchboard.agents.programs import death_guard
from switchboard.agents.sessions.api import ApiSession
from switchboard.agents.sessions.cli import CliSession, program_of
from switchboard.agents.sessions.port import ApiKind, CliKind, Kind, Session
from switchboard.agents.sessions.scratch import sweep
from switchboard.agents.sessions.spec import API_KINDS, CLI_KINDS, ModelSpec
from switchboard.agents.sessions.web import open_client
from switchboard.agents.signed_post import check_url, read_secret
from switchboard.domain.errors import ConfigurationError

_ADAPTERS: Final[Mapping[ApiKind, str]] = {
    "openai": "switchboard.agents.sessions.openai_api",
    "openai-responses": "switchboard.agents.sessions.openai_api",
    "anthropic": "switchboard.agents.sessions.anthropic_api",
}
_PACKAGES: Final[Mapping[Kind, str]] = {"openai": "openai", "openai-responses": "openai", "anthropic": "anthropic"}


class Sessions:
    """The sessions of a process, in the order of their specs; one HTTP client and one SDK client per (URL, key)."""

    def __init__(self, specs: Iterable[ModelSpec]) -> None:
        """Raises ConfigurationError that names the model and says what would be right."""
        self._http = open_client()
        self._sdks: dict[tuple[str, str, str | None], Any] = {}
        self._guard: tuple[str, ...] | None = None
        self.models: tuple[tuple[ModelSpec, Session], ...] = tuple((spec, self._session(spec)) for spec in specs)

    async def aclose(self) -> None:
        """Close what was opened."""
        await self._http.aclose()

    def _session(self, spec: ModelSpec) -> Session:
        try:
            _check(spec)
            key = _key(spec)
            return self._api(spec, key) if spec.kind in API_KINDS else self._cli(spec, key)
        except ConfigurationError as error:
            raise ConfigurationError(f"models: {spec.name}: {error.message}") from error

    def _api(self, spec: ModelSpec, key: str | None) -> Session:
        kind = cast(ApiKind, spec.kind)
        adapter = _adapter(kind)
        base_url = spec.base_url or str(adapter.BASE_URL)
        known = (_ADAPTERS[kind], base_url, key)
        if known not in self._sdks:
            self._sdks[known] = adapter.open_sdk(self._http, base_url, key)
        ask = adapter.asker(self._sdks[known], spec)
        return ApiSession(spec.name, spec.model, kind, ask, local=spec.profile == "local")

    def _cli(self, spec: ModelSpec, key: str | None) -> Session:
        if self._guard is None:
            self._guard = death_guard()
            sweep()
        return CliSession(spec, cast(CliKind, spec.kind), key, self._http, self._guard)


def flaw(spec: ModelSpec) -> str | None:
    """What is missing on this machine to ask this model, as far as it is seen without asking; None: nothing."""
    try:
        _check(spec)
        _key(spec)
    except ConfigurationError as error:
        return error.message
    package = _PACKAGES.get(spec.kind)
    return None if package is None or find_spec(package) else _without(spec.kind, package)


def _without(kind: Kind, package: str) -> str:
    return f"kind {kind} needs the package {package}: install switchboard with its extra `models`"


def _adapter(kind: ApiKind) -> Any:
    try:
        return import_module(_ADAPTERS[kind])
    except ModuleNotFoundError as error:
        missing = error.name or "an SDK"
        raise ConfigurationError(_without(kind, missing)) from error


def _check(spec: ModelSpec) -> None:
    if spec.kind not in (*API_KINDS, *CLI_KINDS):
        raise ConfigurationError(f"kind must be one of {', '.join((*API_KINDS, *CLI_KINDS))}; this is {spec.kind}")
    if spec.base_url is not None:
        check_url(spec.base_url)
    if spec.profile == "local" and spec.kind != "openai":
        raise ConfigurationError("profile `local` is for kind `openai`, which is what such servers speak")
    if spec.program is not None and spec.kind in API_KINDS:
        raise ConfigurationError("program is for command lines; an API has none")
    if spec.pass_env and spec.kind in API_KINDS:
        raise ConfigurationError("pass_env is for command lines; an API is asked from within our own environment")
    if spec.kind in CLI_KINDS and shutil.which(program_of(spec)) is None:
        raise ConfigurationError(
            f"{program_of(spec)} is not installed, or not on PATH: install it (docs/models.md says which versions were "
            "tried), name it with `program`, or leave this model out of classify.models"
        )


def _key(spec: ModelSpec) -> str | None:
    """The key; None only for a server of one's own, which asks for none."""
    if spec.api_key_env is not None and spec.api_key_file is not None:
        raise ConfigurationError("give either api_key_env or api_key_file, not both")
    if spec.api_key_env is not None or spec.api_key_file is not None:
        hint = ", the key that the provider gave you"
        return read_secret(spec.api_key_env, spec.api_key_file, hint=hint).decode()
    if spec.base_url is None:
        raise ConfigurationError("a key is needed: give api_key_env or api_key_file, or the base_url of a server")
    return None
