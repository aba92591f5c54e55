"""Files of other users are not believed, and the operator's token goes nowhere that a file in the directory says.

Real commands, real owners (as root), and a listener that writes down what reaches it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from switchboard.app.ownership import require_ours
from switchboard.app.settings import load_settings
from switchboard.domain.errors import ConfigurationError
from tests.processes import environment, running, switchboard, told, write_teams

TOKEN = f"sb_o_{'x' * 43}"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@dataclass(frozen=True, slots=True)
class Trap:
    """Something that listens where it should not be asked, and the Authorization headers that it was sent."""

    port: int
    sent: list[str | None] = field(default_factory=list)


@pytest.fixture
def trap() -> Iterator[Trap]:
    sent: list[str | None] = []

    class _Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers["authorization"])
            self.send_response(200)
            self.send_header("content-length", "37")
            self.end_headers()
            self.wfile.write(b'{"messages": [], "next_cursor": null}')

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the overridden method
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield Trap(server.server_address[1], sent)
        server.shutdown()
        thread.join()


def give_away(path: Path) -> None:
    """Make it, and what is in it, `nobody`'s."""
    nobody = pwd.getpwnam("nobody")
    for one in [path, *(path.rglob("*") if path.is_dir() else ())]:
        os.chown(one, nobody.pw_uid, nobody.pw_gid, follow_symlinks=False)


def with_token(data_dir: Path) -> Path:
    """A data directory with an operator's token in it."""
    data_dir.mkdir(mode=0o700)
    (data_dir / "operator.token").write_text(f"{TOKEN}\n")
    (data_dir / "operator.token").chmod(0o600)
    return data_dir


def settings_file(place: Path, text: str) -> Path:
    file = place / "switchboard.toml"
    file.write_text(text)
    file.chmod(0o644)
    return file


def client_environment(data_dir: Path, **more: str) -> dict[str, str]:
    """Without a port, so that the file's counts."""
    given = environment(data_dir, **more)
    return given if "PORT" in more else {name: value for name, value in given.items() if name != "SWITCHBOARD_PORT"}


@needs_root
@pytest.mark.parametrize("command", ["up", "doctor"])
def test_a_settings_file_of_another_user_is_refused(place: Path, command: str) -> None:
    give_away(settings_file(place, f'postgres_binaries = "{place}"\n'))
    done = switchboard(environment(place / "data"), command, cwd=place)
    assert done.returncode == 1
    assert "switchboard.toml belongs to the user nobody" in " ".join((done.stderr + done.stdout).split())
    assert not (place / "data").exists()


@needs_root
def test_a_link_of_another_user_is_refused(place: Path) -> None:
    (place / "mine.toml").write_text("port = 1\n")
    link = place / "switchboard.toml"
    link.symlink_to(place / "mine.toml")
    load_settings(link)
    give_away(link)
    with pytest.raises(ConfigurationError, match="belongs to the user nobody"):
        load_settings(link)


@pytest.mark.parametrize("mode", [0o646, 0o666, 0o602])
def test_a_settings_file_that_others_may_write_runs_no_program(place: Path, mode: int) -> None:
    program = place / "postgres"
    program.write_text(f"#!/bin/sh\ntouch {place}/was-run\n")
    for name in ("initdb", "pg_ctl"):
        shutil.copy(program, place / name)
    for name in ("postgres", "initdb", "pg_ctl"):
        (place / name).chmod(0o755)
    settings_file(place, f'postgres_binaries = "{place}"\n').chmod(mode)
    done = switchboard(environment(place / "data"), "up", cwd=place)
    assert done.returncode == 1
    assert "switchboard.toml is writable by other users; close it: chmod go-w" in " ".join(done.stderr.split())
    assert not (place / "was-run").exists()


@needs_root
def test_a_group_may_write_only_if_it_is_the_owners_own(place: Path) -> None:
    file = settings_file(place, "port = 1\n")
    file.chmod(0o664)
    load_settings(file)
    os.chown(file, 0, pwd.getpwnam("nobody").pw_gid)
    with pytest.raises(ConfigurationError, match="writable by other users"):
        load_settings(file)


@needs_root
@pytest.mark.parametrize("given_away", [".", "root.json"])
def test_team_files_of_another_user_are_refused(place: Path, given_away: str) -> None:
    teams = write_teams(place / "teams", {"team": {"name": "root"}, "systems": [{"name": "System4/root"}]})
    give_away(teams / given_away)
    done = switchboard(environment(place / "data", TEAMS_DIR=str(teams)), "up")
    assert done.returncode == 1
    assert "belongs to the user nobody" in " ".join(done.stderr.split())
    assert not (place / "data").exists()


@needs_root
@pytest.mark.parametrize("command", ["up", "serve"])
def test_a_data_directory_of_another_user_is_refused(place: Path, database_url: str, command: str) -> None:
    """Its operator.token would be valid: the user who made the directory would be the operator of root's server."""
    data_dir = with_token(place / "data")
    give_away(data_dir)
    env = environment(data_dir, **({"DATABASE_URL": database_url} if command == "serve" else {}))
    done = switchboard(env, command)
    assert done.returncode == 1
    assert "data belongs to the user nobody" in " ".join(done.stderr.split())
    assert sorted(path.name for path in data_dir.iterdir()) == ["operator.token"]


@needs_root
def test_a_token_file_of_another_user_is_refused(place: Path, database_url: str) -> None:
    data_dir = with_token(place / "data")
    give_away(data_dir / "operator.token")
    done = switchboard(environment(data_dir, DATABASE_URL=database_url), "serve")
    assert done.returncode == 1
    assert "operator.token belongs to the user nobody" in " ".join(done.stderr.split())


@needs_root
def test_the_token_of_another_users_directory_is_not_sent(place: Path, trap: Trap) -> None:
    data_dir = with_token(place / "data")
    give_away(data_dir)
    env = client_environment(data_dir, URL=f"http://127.0.0.1:{trap.port}")
    assert "belongs to the user nobody" in told(env, "messages", "list", code=1)["error"]["message"]
    assert trap.sent == []


@needs_root
def test_a_plain_user_believes_root_but_no_third_user(place: Path) -> None:
    nobody, other = pwd.getpwnam("nobody"), pwd.getpwnam("daemon")
    file = settings_file(place, "port = 1\n")
    program = f"import os, pathlib; from {require_ours.__module__} import require_ours; "
    program += f"os.setgroups([]); os.setgid({nobody.pw_gid}); os.setuid({nobody.pw_uid}); "
    program += f"require_ours(pathlib.Path({str(file)!r}))"

    def look() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (first := look()).returncode == 0, first.stderr
    os.chown(file, other.pw_uid, other.pw_gid)
    assert "belongs to the user daemon" in look().stderr


def test_the_data_directory_is_made_closed(place: Path) -> None:
    with running(environment(place / "data"), "up") as server:
        assert (place / "data").stat().st_mode & 0o7777 == (0o710 if os.geteuid() == 0 else 0o700)
        assert told(server.environment, "messages", "list")["messages"] == []


# The operator's token stays at home


def test_the_token_is_not_sent_where_a_file_in_the_directory_says(place: Path, trap: Trap) -> None:
    settings_file(place, f"port = {trap.port}\n")
    env = client_environment(with_token(place / "data"))
    done = switchboard(env, "messages", "list", cwd=place)
    said = " ".join(done.stderr.split())
    assert done.returncode == 1
    assert f"is not sent to http://127.0.0.1:{trap.port}: that address comes from switchboard.toml" in said
    assert f"set SWITCHBOARD_URL=http://127.0.0.1:{trap.port}" in said
    assert trap.sent == []


@pytest.mark.parametrize("named", ["url", "port", "started", "token"])
def test_the_token_is_sent_where_the_user_or_our_server_says(place: Path, trap: Trap, named: str) -> None:
    settings_file(place, f"port = {trap.port}\n")
    data_dir, url = with_token(place / "data"), f"http://127.0.0.1:{trap.port}"
    more = {"url": {"URL": url}, "port": {"PORT": str(trap.port)}, "token": {"TOKEN": TOKEN}}.get(named, {})
    if named == "started":
        (data_dir / "server.url").write_text(f"{url}\n")
    done = switchboard(client_environment(data_dir, **more), "messages", "list", cwd=place)
    assert done.returncode == 0, done.stderr
    assert trap.sent == [f"Bearer {TOKEN}"]


def test_the_token_file_is_not_sent_to_another_machine(place: Path) -> None:
    data_dir = with_token(place / "data")
    for url in ("http://switchboard.invalid:8470", "http://127.0.0.1@switchboard.invalid", "http://127.0.0.1.invalid"):
        error = told(client_environment(data_dir, URL=url), "messages", "list", code=1)["error"]
        assert "not this machine's loopback address; set SWITCHBOARD_TOKEN" in error["message"]
    env = client_environment(data_dir, URL="http://switchboard.invalid:8470", TOKEN=TOKEN)
    assert told(env, "messages", "list", code=3)["error"]["code"] == "no_server"


def test_no_file_in_the_directory_names_another_machine(place: Path) -> None:
    settings_file(place, '"host" = "switchboard.invalid"\n')
    env = client_environment(with_token(place / "data"), TOKEN=TOKEN)
    done = switchboard(env, "messages", "list", cwd=place)
    assert done.returncode == 1
    assert "set SWITCHBOARD_URL=http://switchboard.invalid:8470" in " ".join(done.stderr.split())


def test_commands_find_a_server_whose_port_is_in_the_file(place: Path, database_url: str) -> None:
    """A server notes where it listens, beside the token."""
    env = client_environment(place / "data", DATABASE_URL=database_url)
    with running(env | {"SWITCHBOARD_PORT": "0"}, "serve") as server:
        settings_file(place, f"port = {server.said['url'].rpartition(':')[2]}\n")
        done = switchboard(env, "messages", "list", "--json", cwd=place)
        assert done.returncode == 0, done.stderr
