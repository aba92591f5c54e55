"""The connection to PostgreSQL: pool, named queries, and errors in our own words.

Made once by `app/wiring.py` from a URL; every module of `store/` runs its SQL through it. Next:
`store/messages/inbox.py`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from functools import cache
from importlib.resources import files
from inspect import signature
from time import monotonic
from typing import Any, Final, Literal, TypeVar
from urllib.parse import parse_qs, urlsplit

import asyncpg
import msgspec

from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.store.keys import Keys
from switchboard.store.pooler import NEEDS_DIRECT, pooler_trouble
from switchboard.store.queueing import IDLE_S, ConnectionQueue

SCHEMA: Final = "switchboard"
SQL: Final = files("switchboard.store") / "sql"
MIN_SERVER: Final = 140000

ROLE_SETTINGS: Final = {
    "search_path": SCHEMA,
    # For disks without moving heads: at the default of 4, a batch of 40 messages reads whole tables, not indexes.
    "random_page_cost": "1.1",
}
"""What our statements rely on. Each connection sets it; behind a pooler it is set on our role."""
_WITHIN_S: Final = 10.0
"""Until there is a connection."""
_NAME: Final = {"application_name": "switchboard"}

_LOST = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server ended the connection while the driver was about to use it
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # starting up, shutting down, crashed; or the statement was cancelled
    asyncpg.TransactionRollbackError,  # a deadlock, or a serialization failure: retry
    asyncpg.LockNotAvailableError,
    asyncpg.InsufficientResourcesError,  # connections, memory, disk
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.TargetServerAttributeNotMatched,  # several hosts, and none of them is the primary at the moment
    TimeoutError,
)

Row = asyncpg.Record
_Take = Callable[[], AbstractAsyncContextManager["asyncpg.pool.PoolConnectionProxy[Row]"]]
T = TypeVar("T")


def rows_as(kind: type[T], rows: Iterable[Row | Mapping[str, object]]) -> list[T]:
    """Each row as a `kind`. Raises `TypeError` unless the columns are its fields, in whatever order."""
    return [_build_record(kind, row) for row in rows]


def row_as(kind: type[T], row: Row | Mapping[str, object] | None) -> T | None:
    """The same for one row, or none."""
    return None if row is None else _build_record(kind, row)


def part_as(kind: type[T], row: Row | Mapping[str, Any]) -> T:
    """A `kind` from its columns in a joined row; the other columns belong to something else."""
    make: Callable[..., T] = kind
    return make(**{name: row[name] for name in _fields(make)})


def _build_record(kind: type[T], row: Row | Mapping[str, object]) -> T:
    make: Callable[..., T] = kind
    _check(make, tuple(row.keys()))
    return make(**row)


@cache
def _check(kind: Callable[..., object], columns: tuple[str, ...]) -> None:
    if differing := _fields(kind) ^ set(columns):
        raise TypeError(f"{kind.__name__} and its query differ in {', '.join(sorted(differing))}")


@cache
def _fields(kind: Callable[..., object]) -> frozenset[str]:
    return frozenset(signature(kind).parameters)


def each_as(kind: type[T], value: object) -> tuple[T, ...]:
    """The objects of a JSON list of a row as values of `kind`; null is an empty one."""
    return tuple(msgspec.convert(one, kind) for one in decode_json(value) or ())


def to_json(value: object) -> str:
    """JSON text for a json or jsonb parameter; UUIDs, times, Structs and dataclasses are understood."""
    return msgspec.json.encode(value).decode()


def from_json(text: str) -> Any:
    """The value of a json or jsonb column."""
    return msgspec.json.decode(text)


def decode_json(value: Any) -> Any:
    """The object or array of a json or jsonb column, even if it comes as text: a `ForeignDatabase` has no codecs."""
    return from_json(value) if isinstance(value, str) else value


@cache
def query(name: str) -> str:
    """The SQL called `file.name`: in `sql/queries/file.sql`, below a line `-- name: name`.

    `{{it}}` in it stands for the text below a line `-- part: it` of the same file.
    """
    file, _, _ = name.partition(".")
    return _queries(file)[name]


@cache
def _queries(file: str) -> Mapping[str, str]:
    return split_queries(file, SQL.joinpath(f"queries/{file}.sql").read_text(encoding="utf-8"))


def split_queries(file: str, text: str) -> Mapping[str, str]:
    """The queries in the text of a file, by their whole names. Raises KeyError for a part that is not there."""
    pieces = re.split(r"^-- (name|part): (\w+)\n", text, flags=re.MULTILINE)[1:]
    texts = {name: sql.strip().rstrip(";") for name, sql in zip(pieces[1::3], pieces[2::3], strict=True)}

    def whole(name: str) -> str:
        return re.sub(r"{{(\w+)}}", lambda part: whole(part[1]), texts[name])

    named = (name for kind, name in zip(pieces[::3], pieces[1::3], strict=True) if kind == "name")
    return {f"{file}.{name}": whole(name) for name in named}


# Array types that the driver looks up; one by one in statements, they cost the first messages 4 to 7 ms each.
_ARRAYS: Final = ("bigint", "boolean", "bytea", "integer", "interval", "real", "smallint", "timestamptz", "uuid")
_OUR_ARRAYS: Final = ("settlement", "step_write")  # exists after the first migration
_FIRST_MADE_OID: Final = 10_000
"""Types below it are the same on every server of every version."""

_OurTypes = tuple[tuple[int, int, str, int], ...]
"""Of each attribute of our types: the type's array, the type, its name, its own type."""
_told: Final[dict[tuple[frozenset[int], _OurTypes], Any]] = {}


class _Connection(asyncpg.Connection):
    """Reuses type information that an earlier connection looked up: a look-up costs the server 9 ms (decision 0115).

    The driver has no public API for this. Where it calls its method differently, each connection looks up its own.
    """

    ours: _OurTypes = ()
    failed = False
    """Whether its last use ended with an error, or was cancelled."""

    def fail(self) -> None:
        """Mark the connection as failed."""
        self.failed = True

    async def learn(self) -> bool:
        """Look up the needed types; returns whether any of ours exist."""
        rows = await self.fetch(query("types.ours"))
        self.ours = tuple((row[0], row[1], row[2], row[3]) for row in rows)
        return bool(rows)

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> Any:
        asked = frozenset(typeoids)
        if (told := _told.get((asked, self.ours))) is None:
            told = await vars(asyncpg.Connection)["_introspect_types"](self, asked, timeout)
            if all(self._is_known(oid) for oid in asked):
                _told[asked, self.ours] = told
        return told

    def _is_known(self, oid: int) -> bool:
        """Whether no other type can have taken this number from one of `ours`."""
        parts = [part for array, _, _, part in self.ours if array == oid]
        return oid < _FIRST_MADE_OID or (bool(parts) and max(parts) < _FIRST_MADE_OID)


async def _prepare(connection: Any) -> None:
    """A `_Connection`, as the pool shows it."""
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(kind, schema="pg_catalog", encoder=to_json, decoder=from_json, format="text")
    kinds = _ARRAYS + (_OUR_ARRAYS if await connection.learn() else ())
    # Not `prepare`: unless a type look-up follows, it leaves the session in a transaction.
    await connection.fetch("select " + ", ".join(f"null::{kind}[]" for kind in kinds))


async def _keep(connection: Any) -> None:
    """We never change a session of the pool, so there is nothing to reset; asking cost a round trip per statement.

    But a statement that was parsed and not run leaves the driver's transaction open.
    """
    if connection.failed:
        connection.failed = False
        await connection.execute("select 1")


class _Told:
    """Listens to the messages that PostgreSQL sends besides its results."""

    __slots__ = ("unconfirmed",)

    def __init__(self) -> None:
        self.unconfirmed = False

    def __call__(self, _: object, message: asyncpg.PostgresLogMessage) -> None:
        # Its text is translated and its code is that of all warnings; the source function that sent it is neither.
        self.unconfirmed = self.unconfirmed or getattr(message, "server_source_function", None) == "SyncRepWaitForLSN"


def _fail(connection: Any) -> None:
    """Only a `_Connection` knows how to fail; one that the pool has taken back is closed."""
    getattr(connection, "fail", lambda: None)()


def _is_sound(connection: asyncpg.pool.PoolConnectionProxy[Row]) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # the pool has taken it back: it is closing
        return False


async def _open_pool(url: str, size: int, *, pooled: bool) -> asyncpg.Pool:
    pool = await asyncpg.create_pool(
        url,
        min_size=0,
        max_size=size,
        max_inactive_connection_lifetime=IDLE_S,
        init=_prepare,
        connection_class=_Connection,
        reset=_keep,
        server_settings=_NAME if pooled else _NAME | ROLE_SETTINGS,
        timeout=10,
        command_timeout=60,
    )
    try:
        async with pool.acquire(timeout=10) as connection:
            await _require_usable(connection, _host_hint(url), pooled=pooled)
    except BaseException:
        pool.terminate()
        raise
    return pool


async def _require_usable(connection: asyncpg.pool.PoolConnectionProxy[Row], hint: str, *, pooled: bool) -> None:
    version = int(await connection.fetchval("show server_version_num"))
    if version < MIN_SERVER:
        raise ConfigurationError(f"{hint}: PostgreSQL 14 or newer is needed; this is {version // 10000}")
    if trouble := await pooler_trouble(connection, SCHEMA, pooled=pooled):
        raise ConfigurationError(f"{hint}: {trouble}")


def _out_of_reach(error: BaseException) -> Unavailable:
    return Unavailable(f"the database cannot be reached: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """The system's own words for its errors: drivers and event loops each wrap them differently."""
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0).lower()
    return str(error) or type(error).__name__


def _host_hint(url: str) -> str:
    """Where the URL points, without its secrets."""
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2] or ",".join(parse_qs(parts.query).get("host", ["?"]))
    return f"{hosts}{parts.path}"


class Database:
    """A pool on one database, its search path set to our schema.

    `direct_url` is PostgreSQL itself; `url` may be a pooler in transaction mode in front of it. Raises `Unavailable`
    for every temporary failure; programming errors pass unchanged.
    """

    def __init__(self, url: str, pool: asyncpg.Pool, direct_url: str | None = None) -> None:
        self.url = url
        self.pool = pool
        self._direct_url = direct_url or url
        self._keys: Keys | None = None
        self._answered = float("-inf")
        self._take: _Take = lambda: pool.acquire(timeout=_WITHIN_S)

    @classmethod
    async def connect(cls, url: str, *, size: int = 8, direct_url: str | None = None) -> Database:
        """Open the pool. With `direct_url`, `url` is assumed to be a pooler in transaction mode.

        Raises `ConfigurationError` for a wrong URL, an old server, and an unexpected or unusable pooler; `Unavailable`
        if there is no server.
        """
        try:
            pool = await _open_pool(url, size, pooled=direct_url is not None)
        except asyncpg.ProtocolViolationError as error:  # for a parameter that it does not know
            raise ConfigurationError(f"{_host_hint(url)}: {NEEDS_DIRECT} ({error})") from error
        except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as error:
            raise ConfigurationError(f"PostgreSQL at {_host_hint(url)} refuses the connection: {error}") from error
        except (ValueError, asyncpg.ClientConfigurationError) as error:
            raise ConfigurationError(
                f"the database URL is not understood ({error}); "
                "it should read postgresql://user@host[:port][,host…]/database"
            ) from error
        except _LOST as error:
            raise Unavailable(
                f"no PostgreSQL answers at {_host_hint(url)}: {_reason(error)}; "
                "is it running, and does database_url name it?"
            ) from error
        opened = cls(url, pool, direct_url)
        opened._take = ConnectionQueue(pool, _WITHIN_S).take
        return opened

    async def keys(self) -> Keys:
        """The keyed hashes of this installation, which never change; read again after an outage of the database."""
        if self._keys is None:
            row = await self.row("select inner_key, outer_key from switchboard.installation")
            if row is None:
                raise LookupError("the table installation has no row: restore it from a backup")
            self._keys = Keys(row["inner_key"], row["outer_key"])
        return self._keys

    @property
    def silent_s(self) -> float:
        """Seconds since the server last answered; infinite if the latest attempt has failed."""
        return monotonic() - self._answered

    async def warm(self, connections: int) -> None:
        """Open this many connections before they are needed, if the server has room, and let them plan ahead.

        They are closed again after half a minute without use.
        """
        # All ask before any is answered, and stand in no queue, so each gets a connection of its own. Behind a pooler,
        # some server connections may plan twice and others not at all, which then plan at their first message.
        opening = Database(self.url, self.pool, self._direct_url)
        plans = (opening.run(query("lanes.plan_ahead")) for _ in range(connections))
        for outcome in await asyncio.gather(*plans, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, Unavailable):
                raise outcome

    async def close(self) -> None:
        """Close the pool; connections that hang are cut off after a moment."""
        try:
            await asyncio.wait_for(self.pool.close(), 5)
        except TimeoutError:
            self.pool.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy[Row]]:
        """One connection of the pool for several statements; database trouble is raised as `Unavailable`.

        So is a commit that did not wait for the synchronous standby, of which PostgreSQL only warns.
        """
        misused, done, told = False, False, _Told()
        try:
            async with self._take() as connection:
                connection.add_log_listener(told)
                try:
                    yield connection
                    done = True
                except asyncpg.InterfaceError:
                    # On a sound connection, the driver raises this for wrong arguments, which a retry does not improve.
                    misused = _is_sound(connection)
                    raise
                except asyncpg.InternalServerError as error:
                    if "cache lookup failed for type" not in str(error):
                        raise
                    await self.pool.expire_connections()  # they know the types of a schema that was replaced
                    raise ConnectionResetError(f"the schema was replaced: {error}") from error
                finally:
                    if not done:
                        _fail(connection)
                    with suppress(asyncpg.InterfaceError):  # the pool has taken it back
                        connection.remove_log_listener(told)
        except _LOST as error:
            if misused or isinstance(error, ValueError):
                raise
            self._keys = None  # another database may come back
            self._answered = float("-inf")
            raise _out_of_reach(error) from error
        self._answered = monotonic()
        if told.unconfirmed:
            raise Unavailable("the synchronous standby did not confirm it; try again")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Database]:
        """A database whose statements are one transaction."""
        async with self.connection() as connection, connection.transaction():
            yield _OneConnection(self, connection)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy[Row]]:
        """A read-only connection whose queries all see the database at one moment."""
        async with self.connection() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            yield connection

    async def dedicated_connection(self) -> asyncpg.Connection:
        """A separate connection, outside the pool (for LISTEN and advisory locks). The caller closes it."""
        try:
            return await asyncpg.connect(
                self._direct_url,
                timeout=10,
                server_settings={"search_path": SCHEMA, "application_name": "switchboard worker"},
            )
        except _LOST as error:
            raise _out_of_reach(error) from error

    async def listen(self, connection: asyncpg.Connection, channel: str, hear: Callable[[str], None]) -> None:
        """Call `hear` with every payload that is notified on `channel`."""
        try:
            await connection.add_listener(channel, lambda *got: hear(str(got[3])))
        except (asyncpg.PostgresError, *_LOST) as error:
            raise _out_of_reach(error) from error

    async def ping(self) -> None:
        """Run an empty query. Raises `Unavailable` if the server does not answer."""
        await self.value("select 1")

    async def notify(self, channel: str, payload: str) -> None:
        """Notify the listeners of `channel`, in a separate transaction; `payload` must have less than 8000 bytes."""
        await self.run("select pg_notify($1, $2)", channel, payload)

    async def rows(self, sql: str, *args: object) -> Sequence[Row]:
        """All rows of one statement."""
        async with self.connection() as connection:
            return await connection.fetch(sql, *args)

    async def rows_with_custom_plan(self, sql: str, *args: object) -> Sequence[Row]:
        """The rows of a query with filters: a single plan for all filters would read the whole table for each.

        A new statement is planned for its arguments. Setting `plan_cache_mode` would have the same effect, but would
        also make PostgreSQL 18 plan each function in the query once per row.
        """
        async with self.connection() as connection:
            statement = await connection.prepare(sql, name="")
            rows: Sequence[Row] = await statement.fetch(*args)
            return rows

    async def row(self, sql: str, *args: object) -> Row | None:
        """The first row, or None."""
        async with self.connection() as connection:
            return await connection.fetchrow(sql, *args)

    async def value(self, sql: str, *args: object) -> Any:
        """The first column of the first row, or None."""
        async with self.connection() as connection:
            return await connection.fetchval(sql, *args)

    async def run(self, sql: str, *args: object) -> str:
        """Execute without rows; returns the command tag, such as `UPDATE 1`."""
        async with self.connection() as connection:
            return await connection.execute(sql, *args)

    async def change_rows(self, sql: str, *args: object) -> int:
        """Execute without rows; returns the number of rows inserted, updated or deleted."""
        return int((await self.run(sql, *args)).rpartition(" ")[2])


class _OneConnection(Database):
    """The database within `transaction`."""

    def __init__(self, outer: Database, connection: asyncpg.pool.PoolConnectionProxy[Row]) -> None:
        super().__init__(outer.url, outer.pool)
        self._connection = connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy[Row]]:
        """Always the same one; its errors are left to the transaction."""
        yield self._connection


class ForeignDatabase(Database):
    """The same over another program's pool, whose settings and codecs stay unchanged.

    Each use of a connection is one transaction with our search path. JSON may come as text, see `decode_json`.
    Connections outside the pool (`dedicated_connection`) are not available.
    """

    def __init__(self, pool: asyncpg.Pool, isolation: Literal["read_committed", "repeatable_read"]) -> None:
        super().__init__("", pool)
        self._isolation = isolation

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy[Row]]:
        """A connection in a transaction."""
        async with super().connection() as connection, connection.transaction(isolation=self._isolation):
            await connection.execute(f"set local search_path = {SCHEMA}")
            yield connection


def foreign_pool(url: str, size: int) -> asyncpg.Pool:
    """A pool as other programs have one, with the driver's own settings; it is opened by `async with`."""
    return asyncpg.create_pool(url, min_size=1, max_size=size)


def arrays(rows: Iterable[tuple[object, ...]], width: int) -> list[list[object]]:
    """Rows as the arrays that a statement unnests: `width` of them, even without rows."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def seconds(value: float) -> timedelta:
    """Seconds as a PostgreSQL interval."""
    return timedelta(seconds=value)
