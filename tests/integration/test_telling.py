"""Somebody outside is told of each dead letter: a real webhook, which fails, hangs, and is told again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import UUID

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from switchboard.app.dead_letters.telling import DeadLetterWebhook
from switchboard.app.ops.calls import check_calls
from switchboard.app.ops.maintenance import maintenance_tasks
from switchboard.app.settings import DeadLetterSettings, Settings
from switchboard.domain.errors import ConfigurationError
from switchboard.store.messages import dead_letters
from switchboard.store.messages.dead_letters import DeadLetterHandling
from switchboard.transport.signed_post import verify
from switchboard.transport.webhook_spec import WebhookSpec
from tests.engines import Hook, a_hook
from tests.lab import DEFAULT_TEAMS, Lab, lab, submission
from tests.waiting import SOON

SECRET = "canary-secret"


@pytest.fixture
async def hook(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hook]:
    monkeypatch.setenv("TELL_SECRET", SECRET)
    async with a_hook() as running:
        yield running


@pytest.fixture
async def parts(database_url: str) -> AsyncIterator[Lab]:
    """Without rules: whatever comes is a dead letter."""
    async with lab(database_url, DEFAULT_TEAMS, ()) as made:
        yield made


def webhook(parts: Lab, hook: Hook, clock: Callable[[], float] = time.monotonic) -> DeadLetterWebhook:
    settings = WebhookSpec(url=hook.url, secret_env="TELL_SECRET", allow_private=True)
    return DeadLetterWebhook(parts.database, settings, clock=clock)


async def die(parts: Lab, count: int = 1) -> list[UUID]:
    """The ids of so many new dead letters."""
    for _ in range(count):
        await parts.accept.accept(submission("my secret wish"))
    rows = await parts.database.rows(
        "select dead_letter_id from dead_letter order by dead_letter_id desc limit $1", count
    )
    return [row["dead_letter_id"] for row in rows]


def keys(hook: Hook) -> list[str]:
    return [headers["Idempotency-Key"] for headers in hook.headers]


async def later(parts: Lab) -> None:
    """What is to be repeated is due."""
    await parts.database.run("update dead_letter set tell_after = clock_timestamp()")


async def test_a_webhook_is_told_once_signed_and_without_what_was_written(parts: Lab, hook: Hook) -> None:
    hook.says(204)
    [dead_letter] = await die(parts)
    assert await webhook(parts, hook).post_due() == 1
    await later(parts)
    assert await webhook(parts, hook).post_due() == 0
    [body], [headers] = hook.bodies, hook.headers
    timestamp, signature = headers["Switchboard-Timestamp"], headers["Switchboard-Signature"]
    seen = verify(SECRET.encode(), timestamp=timestamp, signature=signature, body=body, now=time.time())
    assert (seen, keys(hook)) == ("valid", [str(dead_letter)])
    given = json.loads(body)
    assert (given["schema_version"], given["dead_letter_id"]) == ("dead_letter.v1", str(dead_letter))
    assert (given["team_id"], given["category"], given["reason"]) == ("root", "no_route", "no rule matches")
    assert given["created_at"].endswith("Z")
    assert f"switchboard dlq show {dead_letter}" in given["text"]
    assert b"secret wish" not in body
    assert b"alice" not in body


@pytest.mark.parametrize("status", [302, 404, 429, 500])
async def test_a_webhook_that_fails_is_told_again_with_the_same_key(parts: Lab, hook: Hook, status: int) -> None:
    hook.says(status)
    [dead_letter] = await die(parts)
    with capture_logs() as logs:
        assert await webhook(parts, hook).post_due() == 0
        assert await webhook(parts, hook).post_due() == 0, "not at once"
    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert f"answered {status}" in logs[0]["error"]
    await later(parts)
    hook.says(200)
    assert await webhook(parts, hook).post_due() == 1
    assert keys(hook) == [str(dead_letter)] * 2


async def test_each_failure_doubles_the_wait_up_to_an_hour(parts: Lab, hook: Hook) -> None:
    hook.says(503)
    await die(parts)
    waits = []
    for _ in range(9):
        await parts.database.run("update dead_letter set tell_after = 'epoch'")
        before = await parts.database.value("select clock_timestamp()")
        await webhook(parts, hook).post_due()
        waits.append((await parts.database.value("select tell_after from dead_letter") - before).total_seconds())
    wanted = [min(30 * 2**n, 3600) for n in range(9)]
    assert all(wait >= want for wait, want in zip(waits, wanted, strict=True))
    assert waits[-1] < 3600 * 2


async def test_a_process_that_dies_while_it_tells_leaves_it_to_the_next(parts: Lab, hook: Hook) -> None:
    reached, gone = asyncio.Event(), asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        reached.set()
        await gone.wait()
        return web.Response()

    hook.handler = hang
    [dead_letter] = await die(parts)
    telling = asyncio.create_task(webhook(parts, hook).post_due())
    async with asyncio.timeout(SOON):
        await reached.wait()
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)
    gone.set()
    hook.says(200)
    await later(parts)
    assert await webhook(parts, hook).post_due() == 1
    assert keys(hook) == [str(dead_letter)] * 2


async def test_of_many_and_by_two_workers_each_is_told_once(parts: Lab, hook: Hook) -> None:
    hook.says(200)
    expected = {str(one) for one in await die(parts, 25)}
    told = await asyncio.gather(*(webhook(parts, hook).post_due() for _ in range(2)))
    assert sum(told) + await webhook(parts, hook).post_due() == 25
    assert len(keys(hook)) == 25
    assert set(keys(hook)) == expected


async def test_a_slow_webhook_does_not_hold_up_other_maintenance(parts: Lab, hook: Hook) -> None:
    now = 0.0

    async def answer_slowly(_: web.Request) -> web.StreamResponse:
        nonlocal now
        now += 0.3
        return web.Response()

    hook.handler = answer_slowly
    await die(parts, 25)
    slow = webhook(parts, hook, clock=lambda: now)
    assert [await slow.post_due() for _ in range(4)] == [10, 10, 5, 0], "one batch at a time"
    assert len(set(keys(hook))) == 25


async def test_what_was_handled_meanwhile_is_not_told(parts: Lab, hook: Hook) -> None:
    hook.says(200)
    [dead_letter] = await die(parts)
    await dead_letters.handle(parts.database, dead_letter, DeadLetterHandling("olga", "spam"))
    assert await webhook(parts, hook).post_due() == 0
    assert hook.bodies == []


async def test_somebody_is_told_only_where_that_is_wanted(
    parts: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    webhook = WebhookSpec(url="https://pager.example/", secret_env="TELL_SECRET")
    settings = Settings(data_dir=tmp_path, dead_letters=DeadLetterSettings(tell=webhook))
    with pytest.raises(ConfigurationError, match=r"dead_letters\.tell: the environment variable TELL_SECRET holds no"):
        check_calls(settings)
    monkeypatch.setenv("TELL_SECRET", SECRET)
    check_calls(settings)
    for wanted, names in ((settings.dead_letters, {"tell"}), (DeadLetterSettings(), set[str]())):
        made = maintenance_tasks(parts.database, parts.notifier, wanted, ())
        assert {task.name for task in made} & {"tell"} == names
