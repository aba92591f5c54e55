"""Files of accounts as people and programs may leave them: each is an account, or an error that says what is wrong."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog

from switchboard.app.ownership import read_ours
from switchboard.app.policies import Policies
from switchboard.app.settings import Settings
from switchboard.cli.channels.watching import supervise_accounts
from switchboard.connectors.kernel.accounts import configured
from switchboard.connectors.kernel.intake import Handling, prepared
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import ConfigurationError
from switchboard.ports.connector import Inbound
from tests.lab import envelope

GOOD = 'channel = "telegram"\nsecrets.token.file = "bot.token"\n'
ODD = {
    "many levels": f"channel = {'[' * 5000}",
    "a number without end": f"{GOOD}handling = {{file_bytes = {'9' * 5000}}}",
    "no name of a file": 'channel = "telegram"\nsecrets.token.file = "a\\u0000b"',
    "no name of a variable": 'channel = "telegram"\nsecrets.token.env = "a\\u0000=b"',
    "a directory": 'channel = "telegram"\nsecrets.token.file = ""',
    "a name too long": f'channel = "telegram"\nsecrets.token.file = "{"a" * 5000}"',
    "no time": f"{GOOD}handling = {{stale_direct_s = nan}}",
    "nothing": "",
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "bot.token").write_text("123456:TEST-TOKEN")
    for name, text in ODD.items():
        (tmp_path / f"{name}.toml").write_text(text)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "directory.toml").mkdir()
    (tmp_path / "link.toml").symlink_to("nowhere")
    return tmp_path


def test_an_odd_file_is_an_error_that_names_it(directory: Path) -> None:
    odd = sorted(directory.glob("*.toml"))
    assert len(odd) == len(ODD) + 3
    for file in odd:
        with pytest.raises(ConfigurationError, match=file.stem):
            configured(file, read_ours)


async def test_odd_files_keep_no_account_from_running(directory: Path) -> None:
    (directory / "good.toml").write_text(GOOD)
    started, stop = list[str](), asyncio.Event()

    async def start(name: str, end: asyncio.Event) -> None:
        started.append(name)
        stop.set()
        await end.wait()

    async with asyncio.timeout(20):
        await supervise_accounts(directory, start, stop)
    assert started == ["good"]


def test_each_odd_file_is_told_of_once_and_changes_no_policy(directory: Path) -> None:
    (directory / "good.toml").write_text(f'{GOOD}endpoint = "telegram/bot:123456"\nstrangers = "pair"')
    with structlog.testing.capture_logs() as logged:
        policies = Policies(Settings(channels_dir=directory))
        for _ in range(3):
            policies.look()
    assert dict(policies) == {("telegram", "bot:123456"): "pair"}
    told = [entry["account"] for entry in logged]
    assert sorted(set(told)) == sorted(told)
    assert {"link", "directory", "bytes", "many levels"} <= set(told)


@pytest.mark.parametrize("never", ["inf", "1e300"])
def test_an_account_may_say_that_no_message_is_ever_too_old(tmp_path: Path, never: str) -> None:
    (tmp_path / "bot.token").write_text("123456:TEST-TOKEN")
    file = tmp_path / "bot.toml"
    file.write_text(f"{GOOD}handling = {{stale_direct_s = {never}}}")
    handling, now = configured(file, read_ours).handling, datetime.now(UTC)
    old = envelope(of_event={"sent_at": (now - timedelta(days=9000)).isoformat()})
    taken = prepared(Inbound(envelope=old, raw=b"", direct=True), handling, now)
    assert isinstance(taken, Envelope)
    assert taken.control.ingestion_tier == "full"
    held = prepared(Inbound(envelope=old, raw=b"", direct=True), Handling(), now)
    assert isinstance(held, Envelope)
    assert held.control.ingestion_tier == "held"
