"""One place for all settings: `switchboard.toml`, overridden by the environment.

Commands that start something call `load_settings`, clients of the server `whereabouts.py`; `app/wiring.py` builds the
parts from it. Environment variables are `SWITCHBOARD_` + the name in capitals, nested ones joined by `__`:
`SWITCHBOARD_PORT`, `SWITCHBOARD_TURN__TIMEOUT`. An empty variable counts as unset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final, Literal, Self, get_args

from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace
from pydantic import BaseModel, Field, IPvAnyNetwork, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from switchboard.app.settings_file import read_settings_file
from switchboard.app.whereabouts import HOST, PORT, Host, Port, Whereabouts, default_data_dir
from switchboard.core.memory.settings import EmbedderSpec, MemorySettings
from switchboard.core.models_of import Table
from switchboard.core.notices import ADDRESS
from switchboard.core.people.strangers import EndpointSettings, Policy
from switchboard.core.policy.budget import SenderCaps, SpendingSettings
from switchboard.core.policy.liveness import LivenessPolicy
from switchboard.core.policy.rates import AcceptLimits
from switchboard.core.policy.retry import TurnSettings
from switchboard.core.policy.web import WebSettings
from switchboard.core.schedules import Schedule, read_schedule
from switchboard.core.text.problems import wrong
from switchboard.core.voice.settings import TranscriptionSettings
from switchboard.distribution import OUR_VARIABLES
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.json_values import JsonObject
from switchboard.domain.numbers import Count, Days, Limit, Positive
from switchboard.embedded.sizes import DatabaseSettings
from switchboard.llm.spec import ModelSpec
from switchboard.tools.mcp_spec import ServerSpec
from switchboard.tools.search_spec import AUTHORIZATION, SearchPlace
from switchboard.transport.webhook_spec import CallbackSpec, WebhookSpec

_ScheduleName = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")]

ENGINES: Final = "switchboard.engines"
"""The entry points by which engines are found."""

MOST_INSIDE: Final = 3
"""Accounts that are served in the server's process with `connectors = "inside"`."""
TOO_MANY_INSIDE: Final = (
    f'connectors = "inside" serves at most {MOST_INSIDE} accounts; set connectors = "apart" and restart, or pause or '
    "remove another account"
)


class ScheduleSettings(Struct, frozen=True):
    """`[schedules.NAME]`: windows of time such as `mon-fri 09:00-17:00`, by the clocks of a time zone."""

    zone: str
    windows: Annotated[tuple[str, ...], Meta(min_length=1)]

    def check(self) -> None:
        """Raises ValueError if zone or windows are not understood."""
        self.make_schedule("")

    def make_schedule(self, name: str) -> Schedule:
        """The same, with the name by which rules know it. Raises ValueError."""
        return read_schedule(name, self.zone, self.windows)


class BlobSettings(Struct, frozen=True):
    """Bytes of a file, of what an endpoint uploads in a day, of all that is kept of it, and of all files; but for the
    first, 0 is no limit.

    `link_url`: where butlers reach the server to fetch files; None: where it listens.
    """

    file_bytes: Count = 104_857_600
    endpoint_bytes_per_day: Limit = 1_073_741_824
    endpoint_bytes: Limit = 5_368_709_120
    total_bytes: Limit = 10_737_418_240
    link_url: Annotated[str, Meta(pattern=r"^https?://[^\s?#]+$")] | None = None


class PoolSettings(Struct, frozen=True):
    """How many run at the same time in one worker: turns, notices and replies; and messages that models classify."""

    work: Count = 64
    route: Count = 16


class WorkerGroup(Struct, frozen=True):
    """Of each worker process: its places, seconds until it counts as dead in silence, seconds to drain.

    `catch_up`: how many conversations of an endpoint are worked on at once, by all workers, whose messages came late.
    """

    pools: PoolSettings = PoolSettings()
    catch_up: Count = 4
    ttl: Positive = 10.0
    drain: Positive = 20.0
    advisory_locks: bool = True


class GatewaySettings(Struct, frozen=True):
    """`origins`: pages that may connect besides those of the server itself, such as `https://chat.example.org`."""

    origins: tuple[Annotated[str, Meta(pattern=r"^https?://[^\s/?#]+$")], ...] = ()


class DeadLetterSettings(Struct, frozen=True):
    """Who is notified of dead letters: a webhook, the senders; for how many days handled ones keep the message."""

    tell: WebhookSpec | None = None
    tell_sender: bool = False
    keep_days: Days = 90


class EmailSettings(Struct, frozen=True):
    """The mail servers whose `Authentication-Results` are believed: their names, by account or for all (`*`).

    `max_hops`: how many answers of switchboards may follow each other.
    """

    trusted_servers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    max_hops: Annotated[int, Meta(ge=1, le=100)] = 5


def _check_unique(setting: str, names: Sequence[str]) -> None:
    """Check that the names are unique. Raises ValueError."""
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{setting}: two are named {twice}; names must be unique")


class ClassifySettings(Struct, frozen=True):
    """Which models are asked, in which order; attempts, seconds and tokens for a message; the limits per sender.

    Without `models` nothing is ever classified.
    """

    models: tuple[str, ...] = ()
    attempts: Count = 5
    timeout: Positive = 120.0
    tokens_per_message: Count = 250_000
    sender_tokens_per_day: Limit = 1_000_000
    newcomer_tokens_per_day: Limit = 2_000_000
    """Of all senders together who had asked no model before that day."""
    sender_per_minute: Limit = 30
    """Sessions with models for the messages of one sender at one endpoint."""
    mcp_url: str | None = None
    """Where command lines find our MCP server, if not at `host` and `port`."""
    keep_days: Days = 365
    """Days for which it is kept what models chose and what that cost; what was corrected is kept permanently."""

    @property
    def sender_caps(self) -> SenderCaps:
        """The limits per sender."""
        return SenderCaps(self.sender_per_minute, self.sender_tokens_per_day, self.newcomer_tokens_per_day)


class TrioSettings(Struct, frozen=True):
    """The models that play the roles of plans: names of `models`. A missing role is played by the next larger one."""

    main: str | None = None
    router: str | None = None
    specialist: str | None = None

    @property
    def named(self) -> dict[str, str]:
        """The named models, by role."""
        return {role: name for role, name in asdict(self).items() if name is not None}


class SandboxSettings(Struct, frozen=True):
    """What a command of a butler with a model may take, all its processes together."""

    memory: Annotated[int, Meta(ge=64 * 1024**2)] = 2 * 1024**3
    """Bytes."""
    processes: Annotated[int, Meta(ge=8)] = 256
    tmpfs: Annotated[int, Meta(ge=1024**2)] = 256 * 1024**2
    """Bytes of files in memory."""


class TraceSettings(Struct, frozen=True):
    """Where traces of messages go: the URL at which a collector takes OTLP over HTTP. Without one there are none.

    The key comes from the variable `key_env`, if named, and goes into `key_header`, as a bearer token if that is
    `authorization`. `share`: of all messages, how many have a trace.
    """

    url: Annotated[str, Meta(pattern=r"^https?://[^\s?#@]+$")] | None = None
    key_env: str | None = None
    key_header: Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]+$")] = AUTHORIZATION
    share: Annotated[float, Meta(gt=0, le=1)] = 1.0


class Settings(BaseSettings):
    """All settings, validated; see the fields."""

    model_config = SettingsConfigDict(
        env_prefix=OUR_VARIABLES, env_nested_delimiter="__", env_ignore_empty=True, extra="forbid", frozen=True
    )

    host: Host = HOST
    port: Port = PORT
    public_names: tuple[str, ...] = ()
    """Further host names by which the server is called, as by a proxy before it; `*`: any."""
    public_url: Annotated[str, Field(pattern=r"^https?://[^\s?#]+$")] | None = None
    """Where the world reaches the server, as through a proxy before it; webhooks are entered below it."""
    trusted_proxies: tuple[IPvAnyNetwork, ...] = ()
    """Proxies whose `X-Forwarded-For` says who the client is."""
    database_url: SecretStr | None = None
    database_direct_url: SecretStr | None = None
    """Where PostgreSQL itself answers, if `database_url` is a pooler in transaction mode."""
    data_dir: Path = Field(default_factory=default_data_dir)
    postgres_binaries: Path | None = None
    teams_dir: Path | None = None
    channels_dir: Path = Path("channels.d")
    """The files of the accounts that `up` connects."""
    connectors: Literal["apart", "inside"] = "apart"
    """Whether `up` serves each account in a process of its own, or all in that of the server."""
    teams: tuple[JsonObject, ...] = ()
    """Teams written here instead of in files of their own, each in the same form."""
    program_user: str | None = None
    """The user that runs the programs of butlers that name none."""
    log_level: str = "info"
    database: Table[DatabaseSettings] = DatabaseSettings()
    accept: Table[AcceptLimits] = AcceptLimits()
    blobs: Table[BlobSettings] = BlobSettings()
    gateway: Table[GatewaySettings] = GatewaySettings()
    web: Table[WebSettings] = WebSettings()
    worker: Table[WorkerGroup] = WorkerGroup()
    turn: Table[TurnSettings] = TurnSettings()
    liveness: Table[LivenessPolicy] = LivenessPolicy()
    dead_letters: Table[DeadLetterSettings] = DeadLetterSettings()
    callbacks: tuple[Table[CallbackSpec], ...] = ()
    models: tuple[Table[ModelSpec], ...] = ()
    embedders: tuple[Table[EmbedderSpec], ...] = ()
    classify: Table[ClassifySettings] = ClassifySettings()
    spending: Table[SpendingSettings] = SpendingSettings()
    memory: Table[MemorySettings] = MemorySettings()
    trio: Table[TrioSettings] = TrioSettings()
    sandbox: Table[SandboxSettings] = SandboxSettings()
    search: Table[SearchPlace] = SearchPlace()
    transcription: Table[TranscriptionSettings] = TranscriptionSettings()
    traces: Table[TraceSettings] = TraceSettings()
    mcp_servers: tuple[Table[ServerSpec], ...] = ()
    email: Table[EmailSettings] = EmailSettings()
    notify: tuple[Annotated[str, Field(pattern=ADDRESS)], ...] = ()
    """Chats of operators, who are told there what needs them: the first that can be written to, as in
    `telegram/bot:123456/41`.
    """
    endpoints: dict[Annotated[str, Field(pattern=r"^[^/]+/.+$")], Table[EndpointSettings]] = Field(default_factory=dict)
    """By channel and endpoint, as in `telegram/bot:house`."""
    schedules: dict[_ScheduleName, Table[ScheduleSettings]] = Field(default_factory=dict)
    """Named windows of time, which rules match on."""
    channels: dict[str, list[str]] = Field(default_factory=dict)
    """Further channels and their providers, beside those that Switchboard knows."""
    modules: dict[str, JsonObject] = Field(default_factory=dict)  # by name; each module checks its own

    @property
    def whereabouts(self) -> Whereabouts:
        """Where the server is, for its clients."""
        return Whereabouts(self.host, self.port, self.data_dir)

    @property
    def policies(self) -> dict[tuple[str, str], Policy]:
        """Who may write, by channel and endpoint."""
        named = ((name.partition("/"), one.strangers) for name, one in self.endpoints.items())
        return {(channel, endpoint): policy for (channel, _, endpoint), policy in named}

    @property
    def places(self) -> dict[str, int]:
        """The places of each pool of a worker.

        At most as many classifications as models may run sessions, as a waiting one would block its place.
        """
        asked = [model for model in self.models if model.name in self.classify.models]
        sessions = sum({spec.slot: spec.sessions for spec in asked}.values())
        given = self.worker.pools
        return {"work": given.work, "route": min(given.route, sessions or given.route)}

    @property
    def servers(self) -> tuple[ServerSpec, ...]:
        """The MCP servers, in their order."""
        return tuple(replace(one, user=one.user or self.program_user) for one in self.mcp_servers)

    @model_validator(mode="after")
    def _check_tables(self) -> Self:
        """What concerns several tables, or several of one kind."""
        _check_unique("mcp_servers", [server.name for server in self.mcp_servers])
        _check_unique("notify", self.notify)
        if self.database_direct_url is not None and self.database_url is None:
            raise ValueError("database_direct_url: set database_url too, or only that if there is no pooler")
        names = [model.name for model in self.models]
        _check_unique("models", names)
        self.memory.check_embedders([one.name for one in self.embedders])
        _check_unique("embedders", [one.name for one in self.embedders])
        asked = [("classify.models", name) for name in self.classify.models]
        asked += [("memory.compact_model", self.memory.compact_model)] if self.memory.compact_model is not None else []
        asked += [(f"trio.{role}", name) for role, name in self.trio.named.items()]
        if unknown := next(((setting, name) for setting, name in asked if name not in names), None):
            raise ValueError(f"{unknown[0]}: there is no model {unknown[1]}; there are: {', '.join(names) or 'none'}")
        if len(set(self.classify.models)) < len(self.classify.models):
            raise ValueError("classify.models: list each model only once")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment first, then the values that `load_settings` read from the file."""
        return env_settings, init_settings


def _not_json(error: SettingsError) -> ConfigurationError:
    """Of a list or a table in the environment."""
    named = re.search(r'field "(\w+)"', str(error))
    variable = f"SWITCHBOARD_{named[1].upper()}" if named else "SWITCHBOARD_…"
    return ConfigurationError(f"environment variable {variable}: must be JSON")


def load_settings(path: Path | None = None) -> Settings:
    """Read `path` (by default `switchboard.toml` here, if it exists), then the environment, which takes precedence.

    Raises `ConfigurationError` that names the file, the line if known, and what would be correct; also for a file of
    another user, or one that others may write to.
    """
    file = read_settings_file(path)
    try:
        return Settings(**file.values)
    except ValidationError as error:
        raise file.errors_with_places(error, _message) from error
    except SettingsError as error:
        raise _not_json(error) from error


def _message(problem: ErrorDetails) -> str:
    """What is wrong, in the terms of a settings file."""
    kind, place = problem["type"], problem["loc"]
    if kind == "extra_forbidden":
        if len(place) > 1 and place[-1] in Settings.model_fields:
            table = f"[[{place[0]}]]" if isinstance(place[1], int) else f"[{'.'.join(map(str, place[:-1]))}]"
            return f"is below {table}, so it counts as part of that table; move the line above the first table"
        return "unknown setting" + (_meant_of_table(place) or _suggest_setting(".".join(map(str, place))))
    if kind in {"tuple_type", "list_type"}:
        tables = len(place) == 1 and bool(_table_of(place))
        return f"must be a list of tables, each under [[{place[0]}]]" if tables else 'must be a list: ["…"]'
    return wrong(problem).replace("an object", "a table")


def _table_of(place: tuple[int | str, ...]) -> Iterable[str]:
    """The fields of the tables in a list such as `models`, if the setting is, or is in, such a list."""
    field = Settings.model_fields.get(str(place[0]))
    inner = get_args(field.annotation)[:1] if field is not None else ()
    return _fields_of(inner[0]) if inner else ()


def _meant_of_table(place: tuple[int | str, ...]) -> str:
    meant = get_close_matches(str(place[-1]), list(_table_of(place)), 1)
    return f"; did you mean {meant[0]}?" if meant else ""


def _suggest_setting(name: str) -> str:
    """The setting that a misspelt name may mean."""
    known = [
        f"{name}.{inner}" for name, field in Settings.model_fields.items() for inner in _fields_of(field.annotation)
    ]
    meant = get_close_matches(name, [*Settings.model_fields, *known], 1, 0.75)
    return f"; did you mean {meant[0]}?" if meant else ""


def _fields_of(annotation: object) -> Iterable[str]:
    return annotation.model_fields if isinstance(annotation, type) and issubclass(annotation, BaseModel) else ()
