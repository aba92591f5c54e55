"""Files of accounts as people and programs may leave them: each is an account, or an error that says what is wrong."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
from msgspec.structs import replace

from switchboard.app.accounts.questions import read_value
from switchboard.app.channels import is_full
from switchboard.app.ops.doctor import check_machine
from switchboard.app.ownership import read_ours
from switchboard.app.policies import Policies
from switchboard.app.settings import MOST_INSIDE, TOO_MANY_INSIDE, Settings
from switchboard.app.supervisor import SupervisedProgram, supervise
from switchboard.app.whereabouts import OPERATOR_FILE
from switchboard.cli.channels.inside import serve_inside
from switchboard.cli.channels.serving import open_connectors
from switchboard.cli.channels.watching import is_there, supervise_accounts
from switchboard.cli.main import main
from switchboard.cli.output import NO_SERVER
from switchboard.connectors.kernel.accounts import Configured, ReadFile, pause_file, read_account
from switchboard.connectors.kernel.intake import Handling, prepare_envelope
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import ConfigurationError
from switchboard.ports.connector import Account, Inbound, Session
from tests.lab import envelope
from tests.waiting import eventually

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
            read_account(file, read_ours)


def test_a_secret_that_is_missing_is_named_with_its_file(tmp_path: Path) -> None:
    """As after a restore without secrets."""
    (tmp_path / "house.toml").write_text(GOOD)
    with pytest.raises(ConfigurationError) as refused:
        read_account(tmp_path / "house.toml", read_ours)
    assert f"secrets.token: the file {tmp_path / 'bot.token'} is missing; put it there" in refused.value.message


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


async def test_where_three_are_served_a_fourth_waits_until_one_is_gone(tmp_path: Path) -> None:
    """Also while a file of those that run changes; and `doctor` names the setting."""
    settings = Settings(channels_dir=tmp_path, data_dir=tmp_path, connectors="inside")
    (tmp_path / "bot.token").write_text("123456:TEST-TOKEN")
    for name in "bcd":
        (tmp_path / f"{name}.toml").write_text(GOOD)
    stop, let_go, started, running = asyncio.Event(), asyncio.Event(), list[str](), set[str]()

    async def start(name: str, end: asyncio.Event) -> None:
        started.append(name)
        running.add(name)
        await end.wait()
        if name == "b":
            await let_go.wait()
        running.discard(name)

    async def is_refused() -> bool:
        return any("connectors" in one.get("why", "") for one in logged)

    async def have_begun(number: int) -> bool:
        return len(started) == number

    assert not is_full(settings, more=0)
    with structlog.testing.capture_logs() as logged:
        async with asyncio.timeout(20), asyncio.TaskGroup() as both:
            both.create_task(supervise_accounts(tmp_path, start, stop, MOST_INSIDE))
            await eventually(lambda: have_begun(3))
            (tmp_path / "a.toml").write_text(GOOD)
            await eventually(is_refused)
            (tmp_path / "c.toml").write_text(f"{GOOD}# changed\n")
            await eventually(lambda: have_begun(4))
            assert (started[3], running) == ("c", {"b", "c", "d"})
            found = [one for one in check_machine(settings) if one.status == "error" and one.name == "accounts"]
            assert [one.remedy for one in found] == [TOO_MANY_INSIDE]
            pause_file(tmp_path / "b.toml").touch()
            (tmp_path / "c.toml").write_text(f"{GOOD}# changed again\n")
            await eventually(lambda: have_begun(5))
            assert (started[4], running) == ("c", {"b", "c", "d"}), "b is told to end, and has not ended"
            let_go.set()
            await eventually(lambda: have_begun(6))
            assert (started[5], running) == ("a", {"a", "c", "d"})
            stop.set()
    assert len([one for one in logged if one["event"] == "account not connected"]) == 1


@pytest.mark.parametrize(
    "error", [RuntimeError("a defect"), ConfigurationError("wrong"), asyncio.CancelledError(), SystemExit(3)]
)
async def test_whatever_an_account_inside_raises_it_alone_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    (tmp_path / OPERATOR_FILE).touch(mode=0o600)
    (tmp_path / "bot.token").write_text("123456:TEST-TOKEN")
    (tmp_path / "good.toml").write_text(GOOD)
    stop, begun = asyncio.Event(), list[str]()

    async def fail(account: Account) -> Session:
        begun.append(account.name)
        if len(begun) == 3:
            stop.set()
        raise error

    def broken(file: Path, read: ReadFile, public_url: str | None = None) -> Configured:
        found = read_account(file, read, public_url)
        return replace(found, manifest=replace(found.manifest, open=fail))

    monkeypatch.setattr("switchboard.cli.channels.inside.read_account", broken)
    with structlog.testing.capture_logs() as logged:
        async with asyncio.timeout(20):
            settings = Settings(channels_dir=tmp_path, data_dir=tmp_path)
            await serve_inside(settings, tmp_path / "good.toml", "http://127.0.0.1:1", stop)
    assert len(begun) == 3
    assert [one["name"] for one in logged if one["event"] == "process or account ended; starting it again"] == [
        "good",
        "good",
    ]


async def test_an_account_inside_that_does_not_end_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bot.token").write_text("123456:TEST-TOKEN")
    (tmp_path / "good.toml").write_text(GOOD)
    running, begin, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hang(*_: object) -> None:
        running.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("switchboard.cli.channels.inside.serve_inside", hang)
    monkeypatch.setattr("switchboard.cli.channels.serving._ENDS_S", 0.01)
    settings = Settings(channels_dir=tmp_path, data_dir=tmp_path, connectors="inside")
    with structlog.testing.capture_logs() as logged:
        async with asyncio.timeout(20), open_connectors(settings, "http://127.0.0.1:1", begin, stop):
            begin.set()
            await running.wait()
    assert [one["account"] for one in logged if one["event"] == "account does not end, and is cancelled"] == ["good"]


async def test_the_operators_token_leaves_this_machine_for_no_account_inside(tmp_path: Path) -> None:
    """A proxy of the environment would see it."""
    (tmp_path / OPERATOR_FILE).touch(mode=0o600)
    (tmp_path / "bot.token").write_text("123456:TEST-TOKEN")
    (tmp_path / "good.toml").write_text(GOOD)
    settings, stop = Settings(channels_dir=tmp_path, data_dir=tmp_path), asyncio.Event()
    with structlog.testing.capture_logs() as logged:
        async with asyncio.timeout(20), asyncio.TaskGroup() as both:
            both.create_task(serve_inside(settings, tmp_path / "good.toml", "http://192.0.2.1:8470", stop))

            async def is_told() -> bool:
                return bool(logged)

            await eventually(is_told)
            stop.set()
    assert "is not sent to http://192.0.2.1:8470" in logged[0]["why"]


async def test_the_process_of_a_paused_account_may_end_before_anybody_looks(tmp_path: Path) -> None:
    """As when its token is revoked: that is no accident, and no other process is started."""
    (tmp_path / "bot.token").write_text("123456:TEST-TOKEN")
    file = tmp_path / "good.toml"
    file.write_text(GOOD)
    stop, started, ended = asyncio.Event(), list[str](), tmp_path / "ended"
    program = [sys.executable, "-c", f"import os; os.close(os.open({str(ended)!r}, os.O_CREAT))"]

    def wanted() -> bool:
        if ended.exists():
            pause_file(file).touch()
        return is_there(file)

    async def start(name: str, end: asyncio.Event) -> None:
        started.append(name)
        await supervise(SupervisedProgram(program, name, wanted=wanted), end)

    async def told() -> bool:
        return bool(logged)

    with structlog.testing.capture_logs() as logged:
        async with asyncio.timeout(20), asyncio.TaskGroup() as both:
            both.create_task(supervise_accounts(tmp_path, start, stop))
            await eventually(told)
            stop.set()
    assert started == ["good"]
    assert [(one["event"], one["account"]) for one in logged] == [("account disconnected", "good")]


@pytest.mark.parametrize("paused", [True, False])
def test_what_cannot_be_removed_without_a_server_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, paused: bool
) -> None:
    """Also where the server has its data directory on another machine, so that there is none here."""
    monkeypatch.setenv("SWITCHBOARD_CHANNELS_DIR", str(tmp_path))
    monkeypatch.setenv("SWITCHBOARD_DATA_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("SWITCHBOARD_URL", "http://127.0.0.1:1")
    file = tmp_path / "good.toml"
    file.write_text(GOOD)
    if paused:
        pause_file(file).touch()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SystemExit) as ended:
        main(["channels", "remove", "good", "--yes"])
    assert ended.value.code == NO_SERVER
    assert sorted(tmp_path.iterdir()) == before


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
    handling, now = read_account(file, read_ours).handling, datetime.now(UTC)
    old = envelope(of_event={"sent_at": (now - timedelta(days=9000)).isoformat()})
    taken = prepare_envelope(Inbound(envelope=old, raw=b"", direct=True), handling, now)
    assert isinstance(taken, Envelope)
    assert taken.control.ingestion_tier == "full"
    held = prepare_envelope(Inbound(envelope=old, raw=b"", direct=True), Handling(), now)
    assert isinstance(held, Envelope)
    assert held.control.ingestion_tier == "held"


@pytest.mark.parametrize(
    ("typed", "value"),
    [("[1, 2]", [1, 2]), ('{"a": 1}', {"a": 1}), ("[ann]", "[ann]"), ("[" * 8000, "[" * 8000), ("7", "7"), ("", "")],
    ids=["list", "table", "no json", "nested", "number", "nothing"],
)
def test_what_is_typed_for_a_setting(typed: str, value: object) -> None:
    assert read_value(typed) == value
