"""The tables of a module, as its tools and chores see them: `ports/module_store.py` over our pool.

`app` opens the stores of a module for the kernel, which hands them to the module as `ModuleContext.stores`. Whatever
a module does is one transaction, as its own role and with its own search path, set for that transaction alone, so that
it holds behind a pooler, too. Next: `rooms.py`, `statements.py`; `chores.py`, whose leases fence a store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from switchboard.domain.errors import ConfigurationError, Conflict, Unavailable
from switchboard.ports.chores import ChoreLease
from switchboard.ports.module import ModuleManifest
from switchboard.ports.module_store import ModuleStore
from switchboard.store.database import Database, Row
from switchboard.store.modules.chores import require_lease
from switchboard.store.modules.rooms import bounds_of, can_enter, queries_of, room_statements
from switchboard.store.modules.statements import refusal_of_query

_Connection: TypeAlias = "PoolConnectionProxy[Row]"


class StoreLimits(Struct, frozen=True):
    """Of one module in one process. Seconds: of a statement, and of a transaction, in which a process that is stopped
    keeps its locks; PostgreSQL before 17 knows the latter only between two statements.
    """

    connections: int = 2
    statement_s: float = 10.0
    transaction_s: float = 60.0


class _Room(Struct, frozen=True):
    """`limited`, `enter`: the statements with which every transaction begins, with the fence of a chore between."""

    module: str
    limited: str
    enter: str
    queries: Mapping[str, str]
    caged: bool
    kept: bool
    """Whether there are tables."""
    limits: StoreLimits


_USUAL_LIMITS: Final = StoreLimits()
_WITH_TRANSACTION_TIMEOUT: Final = 17
"""The first version of PostgreSQL that limits transactions as a whole."""


async def open_stores(
    database: Database, manifest: ModuleManifest, limits: StoreLimits = _USUAL_LIMITS
) -> ModuleStores:
    """The stores of a module whose migrations are done (`migrations.py`); called with an account, they make its store.

    Raises ConfigurationError for a query that a module may not run, and Unavailable.
    """
    if not manifest.sql:
        return ModuleStores(database, _Room(manifest.name, "", "", {}, True, False, limits))
    async with database.connection() as connection:
        limited = _limiting_statements(limits, connection.get_server_version().major)
        bounds = await bounds_of(connection, manifest)
        queries = queries_of(manifest)
        for name, sql in queries.items():
            if (why := refusal_of_query(sql, bounds)) is not None:
                raise ConfigurationError(f"the query {name} of the module {manifest.name} is refused: {why}")
        statements = await room_statements(connection, manifest.name)
        caged = await can_enter(connection, statements)
    enter = f"{statements.enter}; {statements.look}" if caged else statements.look
    # The driver knows statements by their text: two modules may have the same for tables of the same name.
    marked = {name: f"-- {manifest.name}\n{sql}" for name, sql in queries.items()}
    return ModuleStores(database, _Room(manifest.name, limited, enter, marked, caged, True, limits))


def _limiting_statements(limits: StoreLimits, server: int) -> str:
    """With which a transaction begins, on a server of this version."""
    settings = {"statement_timeout": limits.statement_s, "idle_in_transaction_session_timeout": limits.transaction_s}
    if (
        server >= _WITH_TRANSACTION_TIMEOUT
    ):  # between the parts of a statement that is being prepared, no other limit counts
        settings["transaction_timeout"] = limits.transaction_s
    return "; ".join(f"set local {name} = '{seconds}s'" for name, seconds in settings.items())


class ModuleStores:
    """The stores of one module in this process, which share its connections."""

    def __init__(self, database: Database, room: _Room) -> None:
        self._database = database
        self._room = room
        self._places = asyncio.Semaphore(room.limits.connections)

    def __call__(self, account: str) -> ModuleStore:
        """The store of an account, which is empty in a module without accounts. Raises ConfigurationError."""
        if not self._room.kept:
            raise ConfigurationError(
                f"the module {self._room.module} has no tables: its manifest names no package with `sql`"
            )
        return _Store(self, account, None)

    def within(self, database: Database) -> ModuleStores:
        """The same in a transaction of others. They write first: what follows is done by the module's role."""
        return ModuleStores(database, self._room)

    def for_chore(self, lease: ChoreLease) -> ModuleStore:
        """The store of a chore: each transaction raises `TakenOver` once the lease is over. See `ports/chores.py`."""
        return _Store(self, lease.key.account, lease)

    @property
    def caged(self) -> bool:
        """Whether a role keeps the module within its schema; if not, only the check of its queries does."""
        return self._room.caged

    @property
    def queries(self) -> Mapping[str, str]:
        """By names like `events.in_range`."""
        return self._room.queries

    def find_query(self, name: str) -> str:
        """Raises LookupError."""
        try:
            return self._room.queries[name]
        except KeyError:
            raise LookupError(f"the module {self._room.module} has no query {name!r}") from None

    @asynccontextmanager
    async def transaction(self, lease: ChoreLease | None = None) -> AsyncIterator[_Connection]:
        """A connection in a transaction of the module, which keeps `lease`. Raises Unavailable, Conflict, TakenOver."""
        async with self._take_place(), self._database.connection() as connection:
            try:
                async with connection.transaction():
                    # Limits first: a process that is stopped then keeps no lock that it gets afterwards.
                    if lease is None:
                        await connection.execute(f"{self._room.limited}; {self._room.enter}")
                    else:
                        await connection.execute(self._room.limited)
                        await require_lease(connection, lease)
                        await connection.execute(self._room.enter)
                    yield connection
            except asyncpg.QueryCanceledError as error:
                raise Unavailable(f"a query of the module {self._room.module} took too long: {error}") from error
            except (asyncpg.InvalidCachedStatementError, asyncpg.IdleInTransactionSessionTimeoutError) as error:
                raise Unavailable(f"the module {self._room.module} must try again: {error}") from error
            except asyncpg.IntegrityConstraintViolationError as error:
                raise Conflict(f"the module {self._room.module} cannot store this: {error}") from error

    @asynccontextmanager
    async def _take_place(self) -> AsyncIterator[None]:
        try:
            await asyncio.wait_for(self._places.acquire(), self._room.limits.statement_s)
        except TimeoutError:
            raise Unavailable(
                f"the module {self._room.module} has {self._room.limits.connections} connections in use, "
                "as many as a module may"
            ) from None
        try:
            yield
        finally:
            self._places.release()


class _Store:
    """`ModuleStore` for one account: each use is a transaction of its own."""

    def __init__(self, stores: ModuleStores, account: str, lease: ChoreLease | None) -> None:
        self._stores = stores
        self._account = account
        self._lease = lease

    async def rows(self, name: str, *args: object) -> Sequence[Mapping[str, Any]]:
        async with self.transaction() as store:
            return await store.rows(name, *args)

    async def run(self, name: str, *args: object) -> int:
        async with self.transaction() as store:
            return await store.run(name, *args)

    def transaction(self) -> AbstractAsyncContextManager[ModuleStore]:
        return self._open_transaction()

    @asynccontextmanager
    async def _open_transaction(self) -> AsyncIterator[ModuleStore]:
        try:
            async with self._stores.transaction(self._lease) as connection:
                store = _OneTransaction(self._stores, self._account, connection)
                try:
                    yield store
                except Exception as error:
                    if error is store.failure:
                        raise
                    raise _OwnError(error) from error
        except _OwnError as own:
            raise own.error from own.error.__cause__


class _OwnError(Exception):
    """The module itself failed within a transaction, which its database must not be blamed for, as for a timeout."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _OneTransaction:
    """`ModuleStore` within a transaction; its queries run one after the other. `failure`: of the last one."""

    def __init__(self, stores: ModuleStores, account: str, connection: _Connection) -> None:
        self._stores = stores
        self._account = account
        self._connection = connection
        self._turn = asyncio.Lock()
        self.failure: Exception | None = None

    async def rows(self, name: str, *args: object) -> Sequence[Mapping[str, Any]]:
        sql = self._stores.find_query(name)
        async with self._one_query():
            return [dict(row) for row in await self._connection.fetch(sql, self._account, *args)]

    async def run(self, name: str, *args: object) -> int:
        sql = self._stores.find_query(name)
        async with self._one_query():
            done = await self._connection.execute(sql, self._account, *args)
        return int(done.rpartition(" ")[2])

    @asynccontextmanager
    async def _one_query(self) -> AsyncIterator[None]:
        async with self._turn:
            try:
                yield
            except Exception as error:
                self.failure = error
                raise

    def transaction(self) -> AbstractAsyncContextManager[ModuleStore]:
        raise RuntimeError("a transaction of a module has no transaction within it")
