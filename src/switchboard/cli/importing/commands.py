"""`switchboard import`: imports mails and envelopes from files, each once, however often it runs.

Called by `cli/main.py`. In: files; out: the number of accepted entries, and a list of the refused ones. A broken entry
affects only itself; a busy server is waited for. Order is kept where it matters: within a file of envelopes, and among
the mails of one thread. Next: `cli/client.py`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Final, TypeVar
from zlib import crc32

import typer
from msgspec import Struct
from msgspec.structs import asdict
from rich.console import RenderableType
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from switchboard.cli.client import Client, ask
from switchboard.cli.importing.large import submit_by_parts
from switchboard.cli.importing.sources import SourceFile, SourceItem, SourceKind, find_sources, read_items, thread_of
from switchboard.cli.missing import MissingOption
from switchboard.cli.output import FAILED, OK, Json, NoServer, clean, errors, exit_unless_ok, one_line, out, show, table
from switchboard.core.envelope.read import parse_envelope
from switchboard.core.files.imports import MAX_ENTRY
from switchboard.domain.errors import InvalidInput, Overloaded, SenderOverRate, SwitchboardError, TooLarge, Unavailable
from switchboard.domain.json_values import JsonObject
from switchboard.transport.mail_reading import MailReader

BATCH: Final = 100
BATCH_BYTES: Final = 4_194_304
FLIGHTS: Final = 8
"""Mails on their way at the same time; those of one thread never overtake each other."""
PATIENCE: Final = 120.0
"""Seconds that a server may be busy or gone in the middle before we give up (and can be run again)."""
_WHOLE: Final = 1_000_000
"""Bytes of a mail up to which it is submitted as it is."""
_LISTED: Final = 1000
_BUSY: Final = frozenset({Overloaded.code, SenderOverRate.code, Unavailable.code})
_T = TypeVar("_T")


class EntryRefusal(Struct, frozen=True):
    """A refused entry, and why."""

    file: str
    place: str
    code: str
    reason: str


@dataclass(slots=True)
class ImportTally:
    """The results so far. Of refused entries, the first thousand are kept in words; all are counted."""

    new: int = 0
    duplicates: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    refusals: list[EntryRefusal] = field(default_factory=list)
    troubles: set[str] = field(default_factory=set)
    """Codes of what had to be waited for; each is told once."""

    @property
    def begun(self) -> bool:
        """Whether anything was decided yet."""
        return bool(self.new or self.duplicates or self.refused)

    def take(self, answer: Json) -> None:
        """Count an entry that the server accepted."""
        if answer["duplicate"]:
            self.duplicates += 1
        else:
            self.new += 1

    def wait(self, error: SwitchboardError) -> None:
        """Say why it pauses."""
        if error.code not in self.troubles:
            self.troubles.add(error.code)
            errors().print(f"waiting: {clean(error.message)}", style="yellow", soft_wrap=True)

    def refuse(self, item: SourceItem, code: str, reason: str) -> None:
        """Count a refused entry."""
        self.refused[code] += 1
        if len(self.refusals) < _LISTED:
            self.refusals.append(EntryRefusal(str(item.file), item.place, code, reason))


def import_files(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", help="mbox or .eml files, folders of .eml files or Maildirs, JSON lines."),
    ],
    *,
    endpoint: Annotated[str, typer.Option(help="For mails: the address that received them, without `email/`.")] = "",
    kind: Annotated[SourceKind | None, typer.Option(help="What the files are; by default it is detected.")] = None,
) -> None:
    """Import mails and envelopes. Repeat it at any time: nothing is stored twice. Exit code 1: some were refused."""
    sources = find_sources(paths, kind)
    if not endpoint and any(source.kind != "jsonl" for source in sources):
        raise MissingOption(
            "mails need the address that received them: --endpoint you@example.org", param_hint="--endpoint"
        )
    tally = ImportTally()
    try:
        ask(lambda client: _import_sources(client, sources, endpoint, tally))
    except (KeyboardInterrupt, SwitchboardError):
        if tally.begun:
            errors().print("stopped; run the same command again to continue, nothing is stored twice", style="yellow")
            errors().print(_counts_table(tally))
        raise
    show(_summary_of(tally), lambda _: _show_tally(tally))
    exit_unless_ok(FAILED if tally.refused else OK)


async def _import_sources(client: Client, sources: Sequence[SourceFile], endpoint: str, tally: ImportTally) -> None:
    # Before anything is read: waiting does not help if there is no server, or the token is invalid.
    await client.get("/v1/messages", {"limit": 1})
    reader = MailReader()
    with _make_progress() as progress:
        bar = progress.add_task("importing", total=sum(source.size for source in sources) or 1)
        try:
            for source in sources:
                mails = _Mails(client, reader, endpoint, tally)
                await _import_file(mails, source, lambda size: progress.advance(bar, size))
        finally:
            await reader.close()
        progress.update(bar, completed=sum(source.size for source in sources) or 1)


def _make_progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = errors()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


async def _import_file(mails: _Mails, source: SourceFile, advance: Callable[[int], None]) -> None:
    items = _short_enough(_read_items(source, mails.tally), mails.tally)
    if source.kind == "jsonl":
        for batch in _split_batches(items):
            await _submit_batch(mails.client, batch, mails.tally)
            advance(sum(len(item.data) + 1 for item in batch))
        return

    async def submit(item: SourceItem) -> None:
        await mails.submit(item)
        advance(len(item.data))

    async with _flights_of(submit) as launch:
        for item in items:
            await launch(item)


def _read_items(source: SourceFile, tally: ImportTally) -> Iterator[SourceItem]:
    """The items of a file; if it becomes unreadable, that is one refusal."""
    try:
        yield from read_items(source)
    except InvalidInput as error:
        tally.refuse(SourceItem(source.file, "", b""), error.code, error.message)
    except OSError as error:
        tally.refuse(SourceItem(source.file, "", b""), "unreadable_file", str(error))


def _short_enough(items: Iterable[SourceItem], tally: ImportTally) -> Iterator[SourceItem]:
    for item in items:
        if item.too_long:
            tally.refuse(item, "too_large", f"it is longer than {MAX_ENTRY} bytes")
        else:
            yield item


def _split_batches(items: Iterable[SourceItem]) -> Iterator[list[SourceItem]]:
    batch: list[SourceItem] = []
    size = 0
    for item in items:
        if batch and (len(batch) == BATCH or size + len(item.data) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += len(item.data)
    if batch:
        yield batch


async def _submit_batch(client: Client, batch: Sequence[SourceItem], tally: ImportTally) -> None:
    left = [item for item in batch if _is_json(item, tally)]
    while left:
        left = await patiently(partial(_submit_once, client, left, tally), tally.wait)


async def _submit_once(client: Client, items: Sequence[SourceItem], tally: ImportTally) -> list[SourceItem]:
    """Submit a batch; returns the items that the server had no room for. Raises Overloaded if it had room for none."""
    body = b'{"envelopes":[' + b",".join(item.data for item in items) + b"]}"
    try:
        results = (await client.post("/v1/ingest/batch", body))["results"]
    except (InvalidInput, TooLarge) as error:
        if len(items) == 1:
            tally.refuse(items[0], error.code, error.message)
            return []
        # The server rejects the batch as a whole: one by one, the faulty item is found.
        for item in items:
            await _submit_batch(client, [item], tally)
        return []
    busy = [item for item, result in zip(items, results, strict=True) if not _count_result(item, result, tally)]
    if len(busy) == len(items):
        raise Overloaded(str(results[0]["error"]["message"]), retry_after=1.0)
    return busy


def _count_result(item: SourceItem, result: Json, tally: ImportTally) -> bool:
    """Count the server's result for an item; False if it must be submitted again."""
    error = result.get("error")
    if error is None:
        tally.take(result)
    elif error["code"] in _BUSY:
        return False
    else:
        tally.refuse(item, str(error["code"]), str(error["message"]))
    return True


def _is_json(item: SourceItem, tally: ImportTally) -> bool:
    """Whether a line may be part of a batch: a line that is not JSON would spoil it for the others."""
    try:
        if isinstance(json.loads(item.data), dict):
            return True
    except (ValueError, RecursionError):
        pass
    try:
        parse_envelope(item.data, now=datetime.now(UTC))
    except InvalidInput as error:
        tally.refuse(item, error.code, error.message)
        return False
    return True


class _Mails(Struct, frozen=True):
    """Submits mails and counts them; `reader` is for mails too large for one request."""

    client: Client
    reader: MailReader
    endpoint: str
    tally: ImportTally

    async def submit(self, item: SourceItem) -> None:
        try:
            self.tally.take(await patiently(lambda: self._submit_mail(item.data), self.tally.wait))
        except (InvalidInput, TooLarge) as error:
            self.tally.refuse(item, error.code, error.message)

    async def _submit_mail(self, mail: bytes) -> Json:
        # Not first as a whole: a server that refuses a large body closes the connection while we still send.
        if len(mail) > _WHOLE:
            answer = await submit_by_parts(self.client, self.reader, mail, self.endpoint)
            if answer is not None:
                return answer
        query = {"endpoint": self.endpoint, "provider": "file"}
        return await self.client.post("/v1/ingest", mail, media_type="message/rfc822", params=query)


async def patiently(work: Callable[[], Awaitable[_T]], tell: Callable[[SwitchboardError], None]) -> _T:
    """Repeat `work` while the server is busy or away, for at most PATIENCE seconds; `tell` receives the reason."""
    started, delay = time.monotonic(), 0.25
    while True:
        try:
            return await work()
        except (Overloaded, Unavailable, NoServer) as error:
            if time.monotonic() - started > PATIENCE:
                raise
            tell(error)
            await asyncio.sleep(error.retry_after if isinstance(error, Overloaded) else delay)
            delay = min(delay * 2, 5.0)


@asynccontextmanager
async def _flights_of(
    submit: Callable[[SourceItem], Awaitable[None]],
) -> AsyncIterator[Callable[[SourceItem], Awaitable[None]]]:
    """Send several mails at once. Each thread of mails has a queue, so that its order is kept."""
    queues: list[asyncio.Queue[SourceItem | None]] = [asyncio.Queue(maxsize=16) for _ in range(FLIGHTS)]

    async def fly(queue: asyncio.Queue[SourceItem | None]) -> None:
        while (item := await queue.get()) is not None:
            await submit(item)

    async def launch(item: SourceItem) -> None:
        await queues[crc32(thread_of(item.data)) % FLIGHTS].put(item)

    try:
        async with asyncio.TaskGroup() as group:
            for queue in queues:
                group.create_task(fly(queue))
            yield launch
            for queue in queues:
                await queue.put(None)
    except ExceptionGroup as trouble:
        raise _first_error(trouble) from trouble


def _first_error(trouble: ExceptionGroup[Exception]) -> Exception:
    """One of several errors: the cause of one would have stopped all."""
    return next((one for one in trouble.exceptions if isinstance(one, SwitchboardError)), trouble)


def _summary_of(tally: ImportTally) -> JsonObject:
    return {
        "new": tally.new,
        "duplicates": tally.duplicates,
        "refused": tally.refused.total(),
        "refusals": [asdict(refusal) for refusal in tally.refusals],
    }


def _show_tally(tally: ImportTally) -> None:
    console = out()
    console.print(_counts_table(tally))
    if tally.refusals:
        in_order = sorted(tally.refusals, key=lambda one: (one.file, len(one.place), one.place))  # line 9, line 10
        listed = ((r.file, r.place, r.code, one_line(r.reason, 300)) for r in in_order)
        console.print()
        console.print(
            table("refused in", "at", "code", "why", rows=listed, keep=("refused in", "at", "code"), wrap=True)
        )
    if tally.refused.total() > len(tally.refusals):
        console.print(f"… and {tally.refused.total() - len(tally.refusals)} more")


def _counts_table(tally: ImportTally) -> RenderableType:
    reasons = [(f"  {code}", count) for code, count in tally.refused.most_common()]
    rows = [("new", tally.new), ("duplicates", tally.duplicates), ("refused", tally.refused.total()), *reasons]
    return table("", "", rows=rows)
