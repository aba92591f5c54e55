"""Chats, e-mail and a folder obey the laws of connectors.

Chats against the strict servers of `switchboard.testing`, e-mail against pymap and aiosmtpd.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.testing.connectors import (
    RECEIVING_DEATHS,
    SENDING_DEATHS,
    ConnectorCheck,
    checks_for,
    in_its_time,
    in_no_time,
    killed_while_receiving,
    killed_while_sending,
)
from tests.chat_drivers import CHATS
from tests.documents import HOME, blocks
from tests.drivers import FolderDriver, MailDriver, mail_driver
from tests.mail_servers import Imap, Postbox, running_pymap, running_smtp
from tests.width import WIDE

_LAWS: Final = [(name, check) for name, chat in CHATS.items() for check in checks_for(chat.driver)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of connections that are killed
@pytest.mark.parametrize(("chat", "check"), _LAWS, ids=[f"{name}-{check.__name__}" for name, check in _LAWS])
def test_chat(chat: str, check: ConnectorCheck) -> None:
    async def checked() -> None:
        async with CHATS[chat].open() as driver:
            await check(driver)

    in_no_time(checked())


@pytest.fixture(scope="module")
def pymap() -> Iterator[Imap]:
    with running_pymap() as imap:
        yield imap


@pytest.fixture
def smtp() -> Iterator[tuple[Postbox, int]]:
    with running_smtp() as server:
        yield server
    with warnings.catch_warnings():  # a connector that is killed within this process leaves its sockets behind
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "check",
    [one for one in checks_for(MailDriver) if WIDE or "a_kill" not in one.__name__ or "is_fetched" in one.__name__],
    ids=lambda check: check.__name__,
)
def test_email(check: ConnectorCheck, pymap: Imap, smtp: tuple[Postbox, int]) -> None:
    postbox, port = smtp

    async def checked() -> None:
        async with mail_driver(pymap, postbox.mails, port) as driver:
            await check(driver)

    in_its_time(checked())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_email_that_is_killed(pymap: Imap, smtp: tuple[Postbox, int]) -> None:
    """At some of the points, as each takes a second; `make kit` does so at all of them."""
    postbox, port = smtp

    async def checked() -> None:
        async with mail_driver(pymap, postbox.mails, port) as driver:
            rows = await killed_while_receiving(driver, RECEIVING_DEATHS[::4], 1)
            rows += await killed_while_sending(driver, SENDING_DEATHS[::5], 1)
            assert not any(row.lost or row.doubled for row in rows), rows

    in_its_time(checked())


@pytest.mark.parametrize("check", checks_for(FolderDriver), ids=lambda check: check.__name__)
def test_a_folder_by_the_test_of_the_manual(
    check: ConnectorCheck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(HOME / "src/switchboard/examples/connectors/folder"))
    [test] = [one for one in blocks(HOME / "docs/add-a-channel.md") if (one.language, one.mark) == ("python", "file")]
    space: dict[str, Any] = {}
    exec(test.text, space)  # noqa: S102 - a snippet of our own documents
    assert checks_for(space["FolderDriver"]) == checks_for(FolderDriver)
    space["test_folder"](check, tmp_path)
