"""Sessions from the settings: clients are made once, an SDK is imported only if needed.

`app/wiring.py` opens a `Sessions` and closes it at the end. Next: `dispatch.py`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from hashlib import sha256
from typing import cast

from switchboard.domain.errors import ConfigurationError
from switchboard.llm import openai_api
from switchboard.llm.api import ApiSession, Open
from switchboard.llm.cli import CliSession, program_of
from switchboard.llm.context import Contexts
from switchboard.llm.login import login_of, not_logged_in
from switchboard.llm.packages import describe_missing, lacking
from switchboard.llm.port import ApiKind, CliKind, ModelSession
from switchboard.llm.running import RunnerSession
from switchboard.llm.spec import API_KINDS, CLI_KINDS, RUNNERS, ModelSpec
from switchboard.llm.web import open_client
from switchboard.transport.programs import death_guard
from switchboard.transport.scratch import sweep
from switchboard.transport.signed_post import check_url, read_secret


class Sessions:
    """The sessions of a process, in the order of their specs, over one HTTP client."""

    def __init__(self, specs: Iterable[ModelSpec]) -> None:
        """Create the sessions. Raises ConfigurationError that names the model and the fix."""
        self._http = open_client()
        self._guard: tuple[str, ...] | None = None
        self.contexts = Contexts(self._http)
        self.key_hashes: dict[str, str] = {}
        """By the name of the model; the same key has the same hash."""
        self.models: tuple[tuple[ModelSpec, ModelSession], ...] = tuple((spec, self._session(spec)) for spec in specs)

    async def aclose(self) -> None:
        """Close everything that was opened."""
        await self._http.aclose()

    def _session(self, spec: ModelSpec) -> ModelSession:
        try:
            _check(spec)
            key = _key(spec)
            self.key_hashes[spec.name] = sha256((key or "").encode()).hexdigest()[:16]
            return self._api(spec, key) if spec.kind in API_KINDS else self._cli(spec, key)
        except ConfigurationError as error:
            raise ConfigurationError(f"models: {spec.name}: {error.message}") from error

    def _api(self, spec: ModelSpec, key: str | None) -> ModelSession:
        kind = cast(ApiKind, spec.kind)
        if kind == "anthropic":
            return ApiSession(spec, kind, self._anthropic(spec, key))
        return ApiSession(spec, kind, openai_api.opener(self._http, kind, spec.base_url or openai_api.BASE_URL, key))

    def _anthropic(self, spec: ModelSpec, key: str | None) -> Open:
        try:
            from switchboard.llm.anthropic_api import BASE_URL, open_sdk, opener
        except ModuleNotFoundError as error:
            raise ConfigurationError(describe_missing(spec.kind, error.name or "an SDK")) from error

        return opener(open_sdk(self._http, spec.base_url or BASE_URL, key))

    def _cli(self, spec: ModelSpec, key: str | None) -> ModelSession:
        if self._guard is None:
            self._guard = death_guard()
            sweep()
        kind = cast(CliKind, spec.kind)
        login = login_of(kind, os.environ) if spec.login else None
        session = CliSession(spec, kind, key, self._http, self._guard, login=login)
        return RunnerSession(session) if kind in RUNNERS else session


def flaw(spec: ModelSpec) -> str | None:
    """What prevents asking this model from this machine, as far as known without asking; None: nothing."""
    try:
        _check(spec)
        _key(spec)
    except ConfigurationError as error:
        return error.message
    return lacking(spec.kind)


def _check_api(spec: ModelSpec) -> None:
    if spec.program is not None:
        raise ConfigurationError("program is for command lines; an API has none")
    if spec.pass_env:
        raise ConfigurationError("pass_env is for command lines; an API is asked from within our own environment")


def _check(spec: ModelSpec) -> None:
    if spec.kind not in (*API_KINDS, *CLI_KINDS):
        raise ConfigurationError(f"kind must be one of {', '.join((*API_KINDS, *CLI_KINDS))}; this is {spec.kind}")
    if spec.base_url is not None:
        check_url(spec.base_url)
    if spec.profile == "local" and spec.kind != "openai":
        raise ConfigurationError("profile `local` is for kind `openai`, which is what such servers speak")
    if spec.calls == "schema" and spec.kind != "openai":
        raise ConfigurationError("calls `schema` is for kind `openai`; models of the others call tools natively")
    if spec.kind in API_KINDS:
        _check_api(spec)
    elif shutil.which(program_of(spec)) is None:
        raise ConfigurationError(
            f"{program_of(spec)} is not installed, or not on PATH: install it (docs/models.md says which versions were "
            "tried), name it with `program`, or leave this model out of classify.models and of the butlers"
        )
    if spec.login:
        _check_login(spec)


def _check_login(spec: ModelSpec) -> None:
    if spec.kind not in RUNNERS:
        raise ConfigurationError(f"login is for {' and '.join(RUNNERS)}; all others need a key")
    if spec.api_key_env is not None or spec.api_key_file is not None:
        raise ConfigurationError("give either login or a key, not both")
    if why := not_logged_in(spec.kind, os.environ):
        raise ConfigurationError(why)


def _key(spec: ModelSpec) -> str | None:
    """The key; None only for a self-hosted server, which needs none."""
    if spec.api_key_env is not None and spec.api_key_file is not None:
        raise ConfigurationError("give either api_key_env or api_key_file, not both")
    if spec.api_key_env is not None or spec.api_key_file is not None:
        hint = ", the key that the provider gave you"
        return _line(read_secret(spec.api_key_env, spec.api_key_file, hint=hint).decode(), spec)
    if spec.base_url is None and not spec.login:
        raise ConfigurationError("a key is needed: give api_key_env or api_key_file, or the base_url of a server")
    return None


def _line(key: str, spec: ModelSpec) -> str:
    """The key, if it can be sent: otherwise it would be quoted in the error of whoever tries."""
    if not (key.isascii() and key.isprintable() and " " not in key):
        place = f"environment variable {spec.api_key_env}" if spec.api_key_env else f"file {spec.api_key_file}"
        raise ConfigurationError(f"the {place} holds no key: a key is one line of ASCII characters without blanks")
    return key
