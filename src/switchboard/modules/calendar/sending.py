"""Send the writes of a step, all or none: each once, and if one of them fails, those before it are taken back.

`carrying.py` calls it with what the step has noted (`writes.py`). In: a `WriteAttempt`; what goes wrong is a
CalendarRefusal, which says what there is now. Whoever repeats a step sends the same bytes, or finds what has become of
them, or goes on taking back. Next: `ports/collection_server.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from switchboard.core.text.compared_lines import has_all_lines
from switchboard.modules.accounts.failures import describe_failure
from switchboard.modules.calendar.describing import LookingCalendar, describe_object
from switchboard.modules.calendar.looking import CalendarRefusal, SeenAccount
from switchboard.modules.calendar.occurrences import CalendarKeeper
from switchboard.modules.calendar.writes import NewWrite, NotedWrite, WriteLease, is_as_written, writes_of_step
from switchboard.modules.mirror.kept import collections_in, forget_object, write_object
from switchboard.ports.collection_server import CollectionServer, ServerError, ServerObject, find_object

_NOTHING: Final = "nothing was written"


class WriteAttempt(Struct, frozen=True):
    """One attempt of a step, which has the lease of its account. `within`: how objects are read."""

    account: SeenAccount
    server: CollectionServer
    lease: WriteLease
    within: LookingCalendar

    async def writes(self) -> tuple[NotedWrite, ...]:
        """What the step has noted, as it is now."""
        return await writes_of_step(self.account.store, self.lease.step)


def describe_error(error: ServerError) -> str:
    """Why something was not written, in a sentence."""
    done = "it is not certain whether it was written" if error.state == "unknown" else _NOTHING
    return f"{done}: {describe_failure(error)}"


async def send_step(attempt: WriteAttempt, noted: Sequence[NotedWrite], *, again: bool) -> None:
    """What was begun is finished, or taken back if an earlier attempt had to. `again`: there was an earlier attempt.

    Raises CalendarRefusal.
    """
    if any(one.state in ("failed", "undoing", "undone") for one in noted):
        raise await give_up(attempt, f"{_NOTHING}: this was tried before; look at the calendar")
    for write in noted:
        try:
            await (_send_again if again else _send_write)(attempt, write)
        except (CalendarRefusal, ServerError) as error:
            raise await _give_up_after(attempt, error) from error
    for write in noted:
        if write.state == "done":  # by an earlier attempt
            await _require_there(attempt, write)


async def _give_up_after(attempt: WriteAttempt, error: CalendarRefusal | ServerError) -> CalendarRefusal:
    """Nothing is taken back while nobody knows whether the last write was carried out: better twice than not at all."""
    if isinstance(error, CalendarRefusal):
        return await give_up(attempt, str(error))
    if error.state != "unknown":
        return await give_up(attempt, describe_error(error))
    noted = await attempt.writes()
    done = [one for one in noted if one.state == "done"]
    told = f"; {await _told_state(attempt, done)}" if done else ""
    return CalendarRefusal(f"{describe_error(error)}{told}. {_how_undone(noted)}")


async def give_up(attempt: WriteAttempt, why: str) -> CalendarRefusal:
    """Take back what the step has written, the last first. Returns why nothing is written, or what is there instead."""
    left: list[NotedWrite] = []
    failures: list[str] = []
    for write in reversed(await attempt.writes()):
        if write.state == "started":
            await attempt.lease.finish_write(write, "failed")
        elif write.state in ("done", "undoing"):
            try:
                await _take_back(attempt, write)
            except ServerError as error:
                left.append(write)
                failures.append(str(error))
    await attempt.account.store.run("mails.drop", attempt.lease.step)
    if not left:
        return CalendarRefusal(why)
    reason = why.removeprefix(_NOTHING).lstrip(",: ").removeprefix("as ")
    return CalendarRefusal(
        f"it could not be done as a whole, and what was written could not be taken back ({failures[0]}): "
        f"{await _told_state(attempt, left)}. {_how_undone(left)}. The reason: {reason}"
    )


def _how_undone(noted: Sequence[NotedWrite]) -> str:
    return f"What was written of it is undone by calendar_undo with the change {noted[-1].short_id}"


async def _told_state(attempt: WriteAttempt, writes: Sequence[NotedWrite]) -> str:
    """What the server has of them now."""
    told: list[str] = []
    for write in writes:
        try:
            there = await find_object(attempt.server, write.url, write.name)
        except ServerError:
            meant = await _describe_data(attempt, write.after or write.before)
            told.append(f"what there is now of {meant} cannot be looked up")
            continue
        if there is not None:
            told.append(f"there is now {await _describe_data(attempt, there.data)}")
        else:
            told.append(f"{await _describe_data(attempt, write.before)} is deleted")
    return "; ".join(told)


async def _describe_data(attempt: WriteAttempt, data: bytes | None) -> str:
    return await asyncio.to_thread(describe_object, data or b"", attempt.within)


# One write ------------------------------------------------------------------------------------------------------------


async def _send_again(attempt: WriteAttempt, write: NotedWrite) -> None:
    """Send the same bytes, unless the server has them."""
    if write.state == "done":
        return
    try:
        there = await find_object(attempt.server, write.url, write.name)
    except ServerError as error:  # an earlier attempt may have sent it
        raise ServerError("unknown", str(error)) from error
    if there is None or write.after is None or not await _is_carried_out(write, write.after, there):
        await _send_write(attempt, write)
        return
    await _keep_object(attempt.account, write, there)
    ours = await is_as_written(there.data, write.after)  # else others may have added to it
    await attempt.lease.finish_write(write, "done", there.etag if ours else "", there.name)


async def _is_carried_out(write: NotedWrite, after: bytes, there: ServerObject) -> bool:
    return await asyncio.to_thread(has_all_lines, there.data, after, write.before or b"")


async def _require_there(attempt: WriteAttempt, write: NotedWrite) -> None:
    """Raises CalendarRefusal if it was written, and is not there any more."""
    try:
        gone = write.after is not None and await find_object(attempt.server, write.url, write.name) is None
    except ServerError:
        return
    if gone:
        raise CalendarRefusal(
            "this was written before, and somebody has deleted it since; it is not written again: ask the person"
        )


async def _send_write(attempt: WriteAttempt, write: NotedWrite) -> None:
    await attempt.lease.renew()
    try:
        written = await _write_object(attempt, write, (write.before, write.etag), write.after)
    except ServerError as error:
        if error.state != "unknown":
            await attempt.lease.finish_write(write, "failed")
        if error.state in ("changed", "missing"):
            raise CalendarRefusal(await _lost_race(attempt, write)) from error
        raise
    await attempt.lease.finish_write(write, "done", written.etag, written.name)


async def _write_object(
    attempt: WriteAttempt, write: NewWrite, old: tuple[bytes | None, str], new: bytes | None
) -> ServerObject:
    """Put `new` in place of `old`, which has an ETag, on the server and in the mirror. Returns what is there then."""
    before, etag = old
    server, store = attempt.server, attempt.account.store
    if new is None:
        await server.delete_object(write.url, ServerObject(write.name, etag, before or b""))
        await forget_object(store, write.collection, write.name, CalendarKeeper(attempt.account.account))
        return ServerObject(write.name, "", b"")
    if before is None:
        written = await server.create_object(write.url, ServerObject(write.name, "", new))
    else:
        written = await server.replace_object(write.url, ServerObject(write.name, etag, before), new)
    await _keep_object(attempt.account, write, written, etag)
    return written


async def _keep_object(account: SeenAccount, write: NewWrite, there: ServerObject, replaced: str | None = None) -> None:
    """What the server has, in the mirror, if that has the calendar."""
    if any(one.collection == write.collection for one in await collections_in(account.store)):
        etag = write.etag if replaced is None else replaced
        await write_object(account.store, write.collection, there, etag, CalendarKeeper(account.account))


async def _lost_race(attempt: WriteAttempt, write: NotedWrite) -> str:
    """What is there now, which is put into the mirror."""
    there = await find_object(attempt.server, write.url, write.name)
    if there is None:
        keeper = CalendarKeeper(attempt.account.account)
        await forget_object(attempt.account.store, write.collection, write.name, keeper)
        return f"{_NOTHING}, as somebody has deleted this event meanwhile; ask whether to create it again"
    await _keep_object(attempt.account, write, there)
    return (
        f"{_NOTHING}, as somebody else has changed this event meanwhile. "
        f"There is now: {await _describe_data(attempt, there.data)}. Look at it, and repeat what is still wanted"
    )


async def _take_back(attempt: WriteAttempt, write: NotedWrite) -> None:
    """Undo a write, if nobody has changed the object since. Raises ServerError."""
    await attempt.lease.renew()
    await attempt.lease.finish_write(write, "undoing")
    try:
        await _write_object(attempt, write, (write.after, write.now_etag), write.before)
    except ServerError as error:
        if error.state != "changed" or not await _is_taken_back(attempt, write):
            raise
    await attempt.lease.finish_write(write, "undone")


async def _is_taken_back(attempt: WriteAttempt, write: NotedWrite) -> bool:
    """Whether an earlier attempt has done it, and was interrupted."""
    there = await find_object(attempt.server, write.url, write.name)
    return there is not None and write.before is not None and await is_as_written(there.data, write.before)
