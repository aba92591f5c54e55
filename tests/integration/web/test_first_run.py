"""The first run: what is written and what never is, killed at every point; and Welcome in a real browser."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from gzip import compress
from pathlib import Path, PurePosixPath
from time import monotonic

import httpx2
import pytest

from switchboard.app.settings import load_settings
from switchboard.app.setup.discovery import Offer, models_at
from switchboard.app.setup.files import SETTINGS, Choice, files_of
from switchboard.app.setup.writing import write_whole
from switchboard.domain.errors import ConfigurationError
from switchboard.lanes import faults
from tests.browser import PHONE
from tests.first_run import WORKER, first_answer, first_tool_call, started, visitor_of
from tests.processes import DEADLINE, Server, environment, scripted_llm
from tests.servers import NO_TLS
from tests.terminals import on_its_terminal

OFFER = Offer("own", "openai", "m", "x", "http://127.0.0.1:9/v1")
FILES = files_of(Choice("jeeves", OFFER, "../files", "cli:ann"))


def there(directory: Path) -> dict[str, str]:
    """All files of a directory."""
    return {str(one.relative_to(directory)): one.read_text() for one in directory.rglob("*") if one.is_file()}


def killed_at(point: str, work: Callable[[], object]) -> bool:
    """Whether the work was killed there, in a process of its own."""
    child = os.fork()
    if not child:
        faults.arm(point)
        work()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("point", ["setup_staged", *(f"setup_published:{n}" for n in range(1, 4))])
def test_killed_while_it_writes_nothing_is_half_there(tmp_path: Path, point: str) -> None:
    assert killed_at(point, lambda: write_whole(tmp_path, FILES))
    left = {name: text for name, text in there(tmp_path).items() if not name.startswith(".switchboard-setup")}
    assert left.items() <= {str(name): text for name, text in FILES.items()}.items()
    assert (str(SETTINGS) in left) == (point == "setup_published:3"), "settings come last"
    write_whole(tmp_path, FILES)
    assert there(tmp_path) == {str(name): text for name, text in FILES.items()}
    for place in (tmp_path / SETTINGS, *(tmp_path / "teams").iterdir()):
        assert place.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "teams").stat().st_mode & 0o777 == 0o700
    assert load_settings(tmp_path / SETTINGS).models[0].model == "m"


@pytest.mark.parametrize("name", ["switchboard.toml", "teams/root.json", "teams/prompt.md", "teams/other.json"])
def test_what_exists_is_never_overwritten(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    place.parent.mkdir(exist_ok=True)
    place.write_text("mine")
    with pytest.raises(ConfigurationError, match=str(place.name)):
        write_whole(tmp_path, FILES)
    assert there(tmp_path) == {name: "mine"}


def test_settings_that_cannot_be_read_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="prompt"):
        write_whole(tmp_path, {**FILES, PurePosixPath("teams/root.json"): '{"prompt": 1}'})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "body", "found"),
    [
        (b"", b'{"data": [{"id": "m"}]}', ("m",)),
        (b"; charset=undefined", b'{"data": [{"id": "m"}]}', ("m",)),
        (b"; charset=rot13", b'{"data": [{"id": "m"}]}', ("m",)),
        (b"\r\ncontent-encoding: gzip", compress(b" " * 100_000), ()),
        (b"", b'{"data": [{"id": "' + b"x" * 1000 + b'"}, {"id": "a\\nb"}]}', ()),
        (b"", None, ()),
    ],
)
async def test_any_program_may_listen_where_models_are_looked_for(
    more: bytes, body: bytes | None, found: tuple[str, ...]
) -> None:
    gone = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json" + more + b"\r\n\r\n")
        with suppress(ConnectionError):
            writer.write(body or b"")
            while body is None:  # without end
                writer.write(b" " * 65_536)
                await writer.drain()
        writer.close()
        gone.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        assert await models_at(url) == found
        await gone.wait()


@contextmanager
def operator(server: Server) -> Iterator[httpx2.Client]:
    """The API for the operator."""
    token = Path(server.said["token_file"]).read_text(encoding="ascii").strip()
    headers = {"authorization": f"Bearer {token}"}
    with httpx2.Client(base_url=server.said["url"], headers=headers, verify=NO_TLS, timeout=DEADLINE) as http:
        yield http


@pytest.mark.parametrize("point", ["setup_recorded", "restart_drained"])
def test_killed_after_writing_the_next_start_has_it_all(tmp_path: Path, database_url: str, point: str) -> None:
    place = {"CHANNELS_DIR": str(tmp_path / "data/accounts")}
    with started(tmp_path, DATABASE_URL=database_url, CRASH_AT=point, **place) as server, operator(server) as http:
        assert http.get("/v1/setup").json()["wanted"]
        try:
            http.post("/v1/setup/files", json={"butler": "jeeves"})
        except httpx2.HTTPError:
            assert point == "setup_recorded", "that is before the answer"
        assert server.process.wait(DEADLINE) == -signal.SIGKILL
    with started(tmp_path, DATABASE_URL=database_url) as server, operator(server) as http:
        state = http.get("/v1/setup").json()
        assert (state["settable"], state["cards"]["model"], state["cards"]["say"]) == (False, "skipped", "open")
        [team] = http.get("/v1/teams").json()["teams"]
        assert [one["system_id"] for one in team["members"]] == ["System1/jeeves", "System4/root"]
        before = there(tmp_path / "teams")
        assert http.post("/v1/setup/files", json={"butler": "other"}).status_code == 409
        assert there(tmp_path / "teams") == before
    settings = tomllib.loads((tmp_path / SETTINGS).read_text(encoding="utf-8"))
    assert (settings["data_dir"], settings["channels_dir"]) == ("data", "data/accounts"), "as the first start had them"


def test_up_prints_a_link_that_shows_whom_it_signs_in_and_signs_in(tmp_path: Path, database_url: str) -> None:
    env = environment(tmp_path / "data", DATABASE_URL=database_url) | {"HOME": str(tmp_path), "TERM": "xterm"}
    with on_its_terminal(env, "up") as screen:
        screen.expect("Open it: ")
        screen.expect("(works once, within 10 minutes; for another: ")
        screen.expect(" open)")
        [link] = re.findall(r"Open it: (\S+)", screen.screen)
        with httpx2.Client(verify=NO_TLS, timeout=DEADLINE) as http:
            assert "operator-1" in http.get(link).text
            entered = http.post(link, headers={"origin": link.partition("/ui/")[0]})
            assert (entered.status_code, entered.headers["location"]) == (303, "/ui/")
            assert "<h1>Welcome</h1>" in http.get(link.partition("enter/")[0], follow_redirects=True).text
            assert http.get(link).status_code == 404, "once"
        screen.process.send_signal(signal.SIGTERM)
        assert screen.process.wait(DEADLINE) == 0


async def test_from_nothing_to_an_answer_and_to_a_tool_call(chromium: str, tmp_path: Path, database_url: str) -> None:
    began = monotonic()
    with scripted_llm(WORKER, tmp_path) as provider, started(tmp_path, DATABASE_URL=database_url) as server:
        answered = await first_answer(chromium, server, began)
        assert answered.clicks <= 3
        called = await first_tool_call(chromium, server, f"{provider}/v1", began)
        print(answered, called)  # noqa: T201 - figures of this machine, which no test goes by
        assert (tmp_path / "files/notes.txt").read_text() == "buy milk"
        with operator(server) as http:
            assert not http.get("/v1/setup").json()["wanted"], "somebody was answered, and a model is there"
            texts = [one["text"] for one in http.get("/v1/messages").json()["messages"]]
            assert "The bin is emptied on Tuesday" in texts, "what was written before the restart is kept"


async def test_without_script_there_is_an_answer_too(chromium: str, tmp_path: Path, database_url: str) -> None:
    with started(tmp_path, DATABASE_URL=database_url) as server:
        answered = await first_answer(chromium, server, monotonic(), script=False)
        assert answered.clicks <= 3


async def test_what_was_written_outlives_the_look_for_models(chromium: str, tmp_path: Path, database_url: str) -> None:
    with started(tmp_path, DATABASE_URL=database_url) as server:
        async with visitor_of(chromium, server) as visitor:
            await visitor.say("The bin is emptied on Tuesday")
            await visitor.draft("and on Friday")
            await visitor.look_for_models()
            assert await visitor.tab.evaluate("document.querySelector('#text').value") == "and on Friday"
            await visitor.click("#keep button[value=skipped]")
            assert "The bin is emptied on Tuesday" in await visitor.tab.text()


async def test_whoever_has_settings_is_not_welcomed(chromium: str, tmp_path: Path, database_url: str) -> None:
    (tmp_path / "switchboard.toml").write_text('log_level = "error"\n')
    with started(tmp_path, DATABASE_URL=database_url) as server:
        async with visitor_of(chromium, server) as visitor:
            assert await visitor.tab.evaluate("document.querySelector('h1').innerText") == "Now"
        with operator(server) as http:
            assert http.post("/v1/setup/files", json={}).status_code == 409
    assert there(tmp_path)["switchboard.toml"] == 'log_level = "error"\n'


async def test_a_step_is_skipped_and_taken_up_again(chromium: str, tmp_path: Path, database_url: str) -> None:
    with started(tmp_path, DATABASE_URL=database_url) as server:
        async with visitor_of(chromium, server, size=PHONE) as visitor:
            tab = visitor.tab
            assert await tab.find_barriers() == []
            assert await tab.evaluate("scrollY") == 0
            await visitor.click("#keep button[value=skipped]")
            assert "skipped" in await tab.evaluate("document.querySelector('#keep h2').innerText")
            await visitor.click("#keep button[value=open]")
            await visitor.click("main > form button")
            assert await tab.evaluate("document.querySelector('h1').innerText") == "Now"
            assert await tab.find_barriers() == []
        with operator(server) as http:
            first = http.get("/v1/audit?action=setup:card").json()["entries"][-1]
            assert first["detail"] == {"card": "keep", "state": "skipped", "reason": "on the page Welcome"}
