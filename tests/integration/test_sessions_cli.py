"""Sessions with command lines: small programs as real processes, which replay what real ones printed, or misbehave."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from switchboard.core.classification.judge import is_ours
from switchboard.domain.llm import FailureKind, ModelFailure, Reply, Request
from switchboard.llm.cli import CliSession
from switchboard.llm.port import CliKind
from switchboard.llm.spec import CLI_KINDS, ModelSpec, Passed
from switchboard.llm.web import open_client
from switchboard.transport.programs import death_guard
from tests.asking import REQUEST, prompt, request
from tests.routing_server import TOKEN, routing_server
from tests.waiting import eventually

RECORDINGS: Final = Path(__file__).parents[1] / "fixtures" / "cli"
SILENT: Final = {("opencode", "mcp_down"), ("opencode", "bad_token"), ("gemini-cli", "bad_token")}
"""These programs tell nothing of a tool that they did not get: that is seen before they are started."""
every_cli = pytest.mark.parametrize("kind", CLI_KINDS)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where sessions make their directories; in the end nothing may be left in it."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


@dataclass(frozen=True, slots=True)
class Fake:
    """A program, and the MCP server of the session that runs it."""

    session: CliSession
    url: str

    async def run(self, **more: Any) -> Reply:
        """One session."""
        return await self.session.run(self.request(**more))

    def request(self, **more: Any) -> Request:
        """A question for it."""
        return request(**{"token": TOKEN, "mcp_url": self.url, "deadline": 30.0, **more})


@asynccontextmanager
async def fake(home: Path, body: str, kind: CliKind = "claude-code", *, grace: float = 3.0) -> AsyncIterator[Fake]:
    """A program of Python."""
    program = home / "program"
    program.write_text(f"#!{sys.executable} -S\n{PRELUDE}{textwrap.dedent(body)}", encoding="utf-8")
    program.chmod(0o755)
    model = ModelSpec("fake", kind, "scripted-1", "http://127.0.0.1:9", program=str(program))
    async with routing_server(("health", "finance")) as server, open_client() as http:
        yield Fake(CliSession(model, kind, "sk-canary", http, death_guard(), grace), server.url)


PRELUDE: Final = """\
import os, pathlib, signal, sys, time
here = pathlib.Path(__file__).parent
def mark(name, text=None):
    (here / f"{name}.part").write_text(str(os.getpid()) if text is None else text)
    (here / f"{name}.part").rename(here / name)
"""


def replay(kind: CliKind, case: str) -> str:
    """A program that prints what the real one did, and ends as it did."""
    recorded = json.loads((RECORDINGS / kind / "cases.json").read_text(encoding="utf-8"))["cases"][case]
    return f"""
        sys.stdin.read()
        sys.stdout.write(pathlib.Path({str(RECORDINGS / kind / case)!r} + ".jsonl").read_text())
        sys.stderr.write({recorded["stderr"]!r})
        sys.exit({recorded["exit"]})
    """


async def gone(mark: Path) -> None:
    """Wait until the process that left this mark has ended."""

    async def ended() -> bool:
        return not _runs(int(_text(mark)))

    await eventually(ended)


def _runs(pid: int) -> bool:
    """A zombie that nobody has waited for does not."""
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in _text(Path(f"/proc/{pid}/status"))
    except (ProcessLookupError, FileNotFoundError):
        return False


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _pids(home: Path) -> list[Path]:
    return list(home.glob("pid*[0-9]"))


def marked(home: Path, name: str) -> Callable[[], Awaitable[bool]]:
    """Whether the program has come so far."""

    async def there() -> bool:
        return (home / name).exists()

    return there


# What they printed ----------------------------------------------------------------------------------------------------


@every_cli
@pytest.mark.usefixtures("scratch")
@pytest.mark.parametrize(("case", "calls"), [("ok", [True]), ("two_calls", [True, True]), ("tool_error", [False])])
async def test_calls_are_read_with_their_results(tmp_path: Path, kind: CliKind, case: str, calls: list[bool]) -> None:
    async with fake(tmp_path, replay(kind, case), kind) as program:
        transcript = await program.run()
    assert [call.ok for call in transcript.calls] == calls
    assert all(map(is_ours, transcript.calls))
    assert transcript.usage.input_tokens > 0
    assert not transcript.usage.estimated


@every_cli
@pytest.mark.usefixtures("scratch")
async def test_a_model_that_did_not_call_has_failed_in_nothing(tmp_path: Path, kind: CliKind) -> None:
    async with fake(tmp_path, replay(kind, "no_call"), kind) as program:
        transcript = await program.run()
    assert (transcript.text, transcript.calls) == ("Routed to health.", ())


@every_cli
@pytest.mark.parametrize(
    ("case", "failure"),
    [
        ("mcp_down", "unavailable"),
        ("bad_token", "unavailable"),
        ("denied", "defect"),
        ("api_error", "unavailable"),
        ("garbage", "garbage"),
    ],
)
@pytest.mark.usefixtures("scratch")
async def test_exit_codes_are_not_believed(tmp_path: Path, kind: CliKind, case: str, failure: FailureKind) -> None:
    async with fake(tmp_path, replay(kind, case), kind) as program:
        if (kind, case) in SILENT:
            assert (await program.run()).calls == ()
            return
        with pytest.raises(ModelFailure) as caught:
            await program.run()
    assert caught.value.kind == failure, caught.value.message
    assert caught.value.reply.usage.input_tokens > 0


# Our MCP server -------------------------------------------------------------------------------------------------------


@every_cli
@pytest.mark.usefixtures("scratch")
async def test_without_our_tool_no_program_is_started(tmp_path: Path, kind: CliKind) -> None:
    async with fake(tmp_path, "mark('started')", kind) as program:
        for more, said in (
            ({"mcp_url": "http://127.0.0.1:9/mcp"}, "cannot be reached"),
            ({"token": "wrong"}, "status 401"),
            ({"token": None}, "a token of its own"),
            ({"mcp_url": None}, "needs an MCP server"),
        ):
            with pytest.raises(ModelFailure, match=said):
                await program.run(**more)
        async with routing_server((), tool="another_tool") as other:
            with pytest.raises(ModelFailure, match="no route_to_butler") as caught:
                await program.run(mcp_url=other.url)
    assert caught.value.alive  # no fault of the model
    assert not (tmp_path / "started").exists()


# What they are given --------------------------------------------------------------------------------------------------


@every_cli
@pytest.mark.usefixtures("scratch")
async def test_what_a_program_is_given(tmp_path: Path, kind: CliKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_SECRET", "canary-of-ours")
    body = """
        import json
        place = pathlib.Path(os.environ["TMPDIR"])
        files = {str(f.relative_to(place)): (f.read_text(), f.stat().st_mode & 0o777) for f in place.rglob("*")
                 if f.is_file()}
        mark("given", json.dumps([sys.argv, dict(os.environ), files, sys.stdin.read(), os.getcwd(), os.getsid(0),
                                  os.getpid(), place.stat().st_mode & 0o777]))
    """
    async with fake(tmp_path, body, kind) as program:
        with pytest.raises(ModelFailure):
            await program.run()
    argv, env, files, given, cwd, sid, pid, mode = json.loads((tmp_path / "given").read_text())
    assert "canary-of-ours" not in json.dumps([env, argv, files])
    assert TOKEN not in " ".join(argv)
    assert "sk-canary" not in " ".join(argv)
    assert TOKEN in json.dumps([env, files])
    assert REQUEST in json.dumps([argv, files])
    assert "sk-canary" in json.dumps([env, files])
    assert {mode for _, mode in files.values()} == {0o600}
    assert mode == 0o700
    assert "/scratch/switchboard-session-" in env["HOME"]
    assert cwd == str(Path(env["HOME"]).parent / "work")
    assert sid == pid
    asked = prompt()
    assert given == (asked.question if kind == "claude-code" else asked.text)
    assert kind != "claude-code" or asked.instructions in argv


@pytest.mark.usefixtures("scratch")
@pytest.mark.parametrize("allowed", [(), ("HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")])
async def test_of_our_proxies_and_certificates_it_gets_what_the_settings_allow(
    tmp_path: Path, allowed: tuple[Passed, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = {"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "intern.example", "SSL_CERT_FILE": "/etc/ours.pem"}
    async with fake(tmp_path, "import json; mark('given', json.dumps(dict(os.environ)))") as program:
        for name, value in (ours | {"HTTP_PROXY": "http://other.example"}).items():
            monkeypatch.setenv(name, value)
        for name in ("no_proxy", "NODE_EXTRA_CA_CERTS"):
            monkeypatch.delenv(name, raising=False)
        session = dataclasses.replace(program.session, spec=replace(program.session.spec, pass_env=allowed))
        with pytest.raises(ModelFailure):
            await session.run(program.request())
    env = json.loads((tmp_path / "given").read_text())
    named = ("PROXY", "CERT", "CA_BUNDLE")
    found = {name: value for name, value in env.items() if any(word in name.upper() for word in named)}
    passed = ours | {"NO_PROXY": "intern.example,127.0.0.1", "no_proxy": "intern.example,127.0.0.1"}
    assert found == (passed if allowed else {}), "and no proxy stands between it and our MCP server"


# Misbehaviour ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("scratch")
async def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    body = """
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            mark("child")
            time.sleep(600)
        mark("parent")
        time.sleep(600)
    """
    async with fake(tmp_path, body, grace=0.2) as program:
        with pytest.raises(ModelFailure) as caught:
            await program.run(deadline=4.0)
    assert caught.value.kind == "timeout"
    assert caught.value.retryable
    await gone(tmp_path / "parent")
    await gone(tmp_path / "child")


@pytest.mark.usefixtures("scratch")
async def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    body = """
        signal.signal(signal.SIGTERM, lambda *_: mark("asked"))
        mark("started")
        while True:
            time.sleep(600)
    """
    async with fake(tmp_path, body, grace=1.0) as program:
        running = asyncio.create_task(program.run())
        await eventually(marked(tmp_path, "started"))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert (tmp_path / "asked").exists()  # nicely first
    await gone(tmp_path / "started")


@pytest.mark.usefixtures("scratch")
async def test_a_child_that_holds_the_output_open_holds_up_nobody(tmp_path: Path) -> None:
    body = """
        if os.fork() == 0:
            mark("child")
            time.sleep(600)
        while not (here / "child").exists():
            time.sleep(0.01)
    """ + replay("claude-code", "ok")
    async with fake(tmp_path, body) as program:
        transcript = await program.run()
    assert [call.ok for call in transcript.calls] == [True]
    await gone(tmp_path / "child")


@pytest.mark.usefixtures("scratch")
async def test_a_call_that_was_taken_counts_though_the_program_was_killed(tmp_path: Path) -> None:
    lines = (RECORDINGS / "claude-code" / "ok.jsonl").read_text(encoding="utf-8").splitlines()[:4]
    body = f"""
        print({chr(10).join(lines)!r}, flush=True)
        time.sleep(600)
    """
    async with fake(tmp_path, body, grace=0.2) as program:
        transcript = await program.run(deadline=4.0)
    assert [call.ok for call in transcript.calls] == [True]
    assert transcript.stop_reason is None


@pytest.mark.parametrize(
    ("body", "failure", "said"),
    [
        ("print('<html>garbage</html>' * 1000)", "garbage", "nothing that is understood"),
        ("sys.stdout.buffer.write(bytes(range(256)) * 100)", "garbage", "nothing that is understood"),
        ("print('x' * 9_000_000)", "garbage", "more than it may"),
        ('while True: print(\'{"type": "system"}\')', "garbage", "more than it may"),
        ("pass", "unavailable", "broke off (exit status 0)"),
        ("sys.stderr.write('Invalid API key'); sys.exit(1)", "auth", "Invalid API key"),
        ("sys.stderr.write('unexpected status 401: no'); sys.exit(1)", "auth", "401"),
        ("sys.stderr.write('gave up after 403 ms, 401 ms'); sys.exit(1)", "unavailable", "403 ms"),
        ("sys.stderr.write('429 Too Many Requests'); sys.exit(0)", "rate_limited", "429"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "unavailable", "killed by signal 11"),
        ("sys.stdin.close(); print('{' * 100_000)", "garbage", "nothing that is understood"),
    ],
    ids=["page", "bytes", "huge", "endless", "silent", "key", "status", "duration", "limit", "crash", "braces"],
)
@pytest.mark.usefixtures("scratch")
async def test_whatever_a_program_does_is_one_failure(
    tmp_path: Path, body: str, failure: FailureKind, said: str
) -> None:
    async with fake(tmp_path, body, grace=0.2) as program:
        with pytest.raises(ModelFailure) as caught:
            await program.run()
    assert caught.value.kind == failure
    assert said in caught.value.message
    assert caught.value.reply.usage.estimated


@every_cli
@pytest.mark.usefixtures("scratch")
async def test_a_program_that_is_not_there(kind: CliKind, tmp_path: Path) -> None:
    model = ModelSpec("fake", kind, "m", "http://127.0.0.1:9", program=str(tmp_path / "nothing"))
    async with routing_server(()) as server, open_client() as http:
        with pytest.raises(ModelFailure, match="is not installed") as caught:
            await CliSession(model, kind, None, http).run(request(token=TOKEN, mcp_url=server.url))
    assert (caught.value.kind, caught.value.retryable) == ("defect", False)


@pytest.mark.usefixtures("scratch")
async def test_a_huge_message_goes_in_whole(tmp_path: Path) -> None:
    body = "mark('size', str(len(sys.stdin.read())))\n" + textwrap.dedent(replay("claude-code", "ok"))
    async with fake(tmp_path, body) as program:
        asked = request("x" * 300_000, token=TOKEN, mcp_url=program.url)
        await program.session.run(asked)
    assert int((tmp_path / "size").read_text()) == len(asked.said)


@pytest.mark.usefixtures("scratch")
async def test_many_at_once_and_cancelled_leave_nothing(tmp_path: Path) -> None:
    body = "mark(f'pid{os.getpid()}')\ntime.sleep(600)"
    async with fake(tmp_path, body, grace=0.2) as program:
        running = [asyncio.create_task(program.run()) for _ in range(8)]

        async def all_started() -> bool:
            return len(_pids(tmp_path)) == 8

        await eventually(all_started)
        for one in running:
            one.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended)
    for mark in _pids(tmp_path):
        await gone(mark)
