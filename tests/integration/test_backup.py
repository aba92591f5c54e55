"""`switchboard backup` and `restore`: whole or not at all, beside whatever else happens, and never outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyrage
import pytest

from switchboard.app.ops.installation import sealing
from switchboard.app.ops.installation.archive import (
    ArchiveEntry,
    ArchiveWriter,
    Contents,
    members,
    read_manifest,
)
from switchboard.app.ownership import read_ours
from switchboard.app.rules.seed import read_seed
from switchboard.app.settings import load_settings
from switchboard.connectors.kernel.accounts import read_declarations
from tests.commands import Cli, ask, envelope, served
from tests.postgres import Postgres
from tests.processes import DEADLINE, EXECUTABLE, Server, butler, switchboard, until

TEAM = {
    "team": {"name": "root"},
    "purpose": "Everything",
    "systems": [butler("memo"), {"type": "intelligence"}],
    "routing_rules": [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/memo"}]}],
}
CANARY = "canary-secret"


@pytest.fixture(scope="module")
def server(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`switchboard up` on a database of its own."""
    with served(postgres, tmp_path_factory.mktemp("served"), TEAM) as started:
        yield started


class House:
    """An installation beside the server: its files, its commands, and an empty database to restore into."""

    def __init__(self, root: Path, cli: Cli, empty: str, patch: pytest.MonkeyPatch) -> None:
        self.root, self.cli, self.empty, self.patch = root, cli, empty, patch
        self.file = root.parent / "backup.tar"
        self.passphrase = root.parent / "passphrase"

    def write(self, path: str, text: str) -> Path:
        """A private file of the installation."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o600)
        return file

    def save(self, *options: object) -> dict[str, Any]:
        return self.cli.json("backup", self.file, *options)

    def restore(self, *options: object, code: int = 0) -> dict[str, Any]:
        """Restore into `new`, with an empty database."""
        with self.patch.context() as patch:
            patch.setenv("SWITCHBOARD_DATABASE_URL", self.empty)
            return self.cli.json("restore", self.file, self.new, *options, code=code)

    @property
    def new(self) -> Path:
        return self.root.parent / "new"


@pytest.fixture
def house(
    server: Server,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    empty_database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> House:
    """With a team, an account, secrets in several places, and a workspace elsewhere."""
    root, outside = tmp_path / "house", tmp_path / "elsewhere"
    made = House(root, Cli(capsys, monkeypatch, server.environment), empty_database_url, monkeypatch)
    for name in ("DATA_DIR", "TEAMS_DIR", "PORT", "LOG_LEVEL"):
        monkeypatch.delenv(f"SWITCHBOARD_{name}")
    key = made.write("keys/model", f"{CANARY}-1\n")
    made.write("channels.d/bot.toml", 'channel = "telegram"\nsecrets.token.file = "bot.token"\n')
    made.write("channels.d/bot.token", f"{CANARY}-2\n")
    (tmp_path / "hook").write_text(f"{CANARY}-3\n")
    outside.mkdir()
    (outside / "kept.txt").write_text("kept")
    member = {"engine": "http", "config": {"url": "http://127.0.0.1:9", "secret_file": str(tmp_path / "hook")}}
    files = {"name": "files", "type": "operation", "config": {"workspace": str(outside), "prompt_file": "prompt.md"}}
    team = {**TEAM, "systems": [*TEAM["systems"], {"name": "System1/hook", **member}, files]}
    made.write("teams/root.json", json.dumps(team))
    made.write("teams/prompt.md", "be kind")
    made.write("data/workspaces/memo/note.txt", "a note")
    (root / "data").chmod(0o700)
    models = f'[[models]]\nname = "m"\nkind = "openai"\nmodel = "m"\napi_key_file = "{key}"\n'
    models += 'base_url = "http://127.0.0.1:9/v1"\n[dead_letters]\n'
    models += 'tell = {url = "https://example.org", secret_env = "HOOK_SECRET"}\n'
    made.write("switchboard.toml", f'teams_dir = "teams"\ndata_dir = "{root / "data"}"\n{models}')
    made.passphrase.write_text("correct horse\n")
    made.passphrase.chmod(0o600)
    monkeypatch.chdir(root)
    return made


@pytest.fixture
def sealed_with_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """As age does with a key: to make one of a passphrase takes a second on purpose, each time."""
    key = pyrage.x25519.Identity.generate()
    monkeypatch.setattr(sealing, "seal", lambda data, _: pyrage.encrypt(data, [key.to_public()]))
    monkeypatch.setattr(sealing, "unseal", lambda data, _: pyrage.decrypt(data, [key]))


def content(root: Path) -> dict[str, str]:
    """All files below a directory."""
    return {str(one.relative_to(root)): one.read_text() for one in root.rglob("*") if one.is_file()}


def test_everything_comes_back_elsewhere_and_leads_there(house: House) -> None:
    said = house.save("--passphrase-file", house.passphrase)
    assert house.file.stat().st_mode & 0o777 == 0o600
    assert CANARY.encode() not in house.file.read_bytes()
    assert (said["secrets"], said["left_out"], said["changed"]) == ("encrypted", [], [])
    sizes = {part["kind"]: part["files"] for part in said["parts"]}
    assert sizes == {"database": 1, "settings": 1, "team files": 2, "accounts": 1, "secrets": 3, "workspaces": 2}
    restored = house.restore("--passphrase-file", house.passphrase, "--paused")
    assert "environment variable HOOK_SECRET" in restored["give_again"]
    before, after = content(house.root), content(house.new)
    paths = (
        "keys/model",
        "channels.d/bot.token",
        "channels.d/bot.toml",
        "teams/prompt.md",
        "data/workspaces/memo/note.txt",
    )
    assert [after[path] for path in paths] == [before[path] for path in paths]
    assert after["channels.d/bot.paused"] == ""
    assert (after["secrets/hook"], after["workspaces/elsewhere/kept.txt"]) == (f"{CANARY}-3\n", "kept")
    assert (house.new / "channels.d/bot.token").stat().st_mode & 0o777 == 0o600
    for path in ("switchboard.toml", "teams/root.json"):
        assert str(house.root) not in after[path]
        assert str(house.root.parent / "elsewhere") not in after[path]
    assert sorted(restored["edited"]) == ["switchboard.toml", "teams/root.json"]
    assert not [path for path in after if "restoring" in path]
    with house.patch.context() as patch:
        patch.chdir(house.new)
        patch.setenv("SWITCHBOARD_DATABASE_URL", house.empty)
        findings = {one["name"]: one for one in house.cli.json("doctor", code=1)["findings"]}
        assert house.cli.json("db", "migrate")["applied"] == []
    assert findings["team files"]["status"] == findings["settings"]["status"] == "ok"


def _teams_elsewhere(house: House, place: str) -> str:
    """A team outside of the installation, whose files are named relative to several places; returns `teams_dir`."""
    teams = house.root / place
    teams.mkdir(parents=True, exist_ok=True)
    config = {"workspace": "../ws", "prompt_file": "prompt.md", "secret_file": f"{place}/hook"}
    systems = [{"name": "ws", "type": "operation", "config": config}, {"type": "intelligence"}]
    house.write(f"{place}/root.json", json.dumps({**TEAM, "systems": systems, "routing_rules": []}, indent=1))
    house.write(f"{place}/prompt.md", "prompt")
    house.write(f"{place}/hook", f"{CANARY}-3")
    house.write(f"{place}/../ws/file", "work")
    return place


def _teams_by_a_link(house: House) -> str:
    _teams_elsewhere(house, "../shared/teams")
    (house.root / "linked").symlink_to(house.root.parent / "shared/teams")
    return 'teams_dir = "linked"'


LAYOUTS: dict[str, Callable[[House], str]] = {
    "beside": lambda house: f"teams_dir = '{_teams_elsewhere(house, 'teams2')}'",
    "above": lambda house: f"teams_dir = '{_teams_elsewhere(house, '../shared/teams')}'\ndata_dir = '../data too'",
    "by a link": _teams_by_a_link,
    "in the root": lambda house: (
        f"channels_dir = '{house.root}/accounts'\nteams_dir = \"{_teams_elsewhere(house, '.')}\""
    ),
}


@pytest.mark.usefixtures("sealed_with_a_key")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_wherever_files_lie_they_are_restored_inside(house: House, layout: str) -> None:
    """A team's files may be anywhere: what is restored leads nowhere else, and secrets are never plain."""
    (house.root / "switchboard.toml").write_text(LAYOUTS[layout](house))
    accounts = house.root / ("accounts" if layout == "in the root" else "channels.d")
    accounts.mkdir(exist_ok=True)
    (accounts / "a.toml").write_text(f"channel = 'telegram'\n[secrets.token]\nfile = '{house.root.parent / 'hook'}'\n")
    house.save("--passphrase-file", house.passphrase)
    assert CANARY.encode() not in house.file.read_bytes()
    restored = house.restore("--passphrase-file", house.passphrase)
    assert not [one for one in restored["give_again"] if "should be" in one]
    with house.patch.context() as patch:
        patch.chdir(house.new)
        settings = load_settings()
        assert settings.teams_dir is not None
        seed = read_seed(settings.teams_dir)
        assert seed is not None
        options = next(one.options for team in seed.teams for one in team.members if one.name == "ws")
        token = read_declarations(settings.channels_dir / "a.toml", read_ours).secret_files[0]
        places = [*(Path(str(options[name])) for name in ("workspace", "prompt_file", "secret_file")), token]
        places += [settings.teams_dir, settings.channels_dir, settings.data_dir]
        assert [one for one in places if not one.resolve().is_relative_to(house.new)] == []
        texts = [(places[0] / "file").read_text(), places[1].read_text(), places[2].read_text(), places[3].read_text()]
    assert texts == ["work", "prompt", f"{CANARY}-3", f"{CANARY}-3\n"]


@pytest.mark.usefixtures("sealed_with_a_key")
@pytest.mark.parametrize(
    "directory", ["teams/keys", "channels.d/keys", "data/workspaces/memo/keys", "../elsewhere/keys"]
)
def test_a_secret_behind_a_link_is_no_plain_file(house: House, directory: str) -> None:
    """As Kubernetes places secrets: the name that an option has is a link, through a link, to the file."""
    place = house.write(f"{directory}/..1/model.key", f"{CANARY}-4").parent.parent
    (place / "..data").symlink_to("..1")
    (place / "model.key").symlink_to("..data/model.key")
    text = (house.root / "switchboard.toml").read_text()
    house.write("switchboard.toml", text.replace(str(house.root / "keys/model"), f"{directory}/model.key"))
    house.save("--passphrase-file", house.passphrase)
    assert CANARY.encode() not in house.file.read_bytes()
    house.restore("--passphrase-file", house.passphrase)
    named = tomllib.loads((house.new / "switchboard.toml").read_text())["models"][0]["api_key_file"]
    restored = house.new / named
    assert (restored.resolve().is_relative_to(house.new), restored.read_text()) == (True, f"{CANARY}-4")


@pytest.mark.usefixtures("sealed_with_a_key")
def test_the_password_of_an_account_of_a_module_is_a_secret(house: House) -> None:
    place = house.write("secrets-of-ann", f"{CANARY}-5")
    login = 'url = "https://dav.example"\nuser = "u"\n'
    tables = f'[modules.contacts.accounts.ann]\n{login}person = "ann"\npassword = {{file = "{place}"}}\n'
    tables += f'[modules.contacts.accounts.home]\n{login}group = "g"\npassword = {{env = "HOME_PASSWORD"}}\n'
    house.write("switchboard.toml", (house.root / "switchboard.toml").read_text() + tables)
    house.save("--passphrase-file", house.passphrase)
    assert CANARY.encode() not in house.file.read_bytes()
    restored = house.restore("--passphrase-file", house.passphrase)
    assert "environment variable HOME_PASSWORD" in restored["give_again"]
    accounts = tomllib.loads((house.new / "switchboard.toml").read_text())["modules"]["contacts"]["accounts"]
    kept = house.new / accounts["ann"]["password"]["file"]
    assert (kept.resolve().is_relative_to(house.new), kept.read_text()) == (True, f"{CANARY}-5")


def test_a_secret_in_the_place_of_another_file_is_refused(house: House) -> None:
    """A secret from elsewhere goes to `secrets`, where this installation has its team files."""
    (house.root / "teams").rename(house.root / "secrets")
    text = (house.root / "switchboard.toml").read_text()
    house.write("switchboard.toml", text.replace('teams_dir = "teams"', 'teams_dir = "secrets"'))
    house.write("secrets/hook", "no secret")
    refused = house.cli.json("backup", house.file, code=1)["error"]
    assert (refused["code"], "secrets/hook" in refused["message"]) == ("configuration", True)
    assert not house.file.exists()


def test_without_a_passphrase_secrets_are_left_out_and_named(house: House) -> None:
    named = ["channels.d/bot.token", "keys/model", "secrets/hook"]
    said = house.save()
    assert said["secrets"] == "left out"
    assert set(named) < set(said["give_again"])
    assert CANARY.encode() not in house.file.read_bytes()
    restored = house.restore()
    assert set(named) < set(restored["give_again"])
    assert CANARY not in "".join(content(house.new).values())


def test_passwords_in_the_settings_are_secrets(house: House) -> None:
    settings = house.root / "switchboard.toml"
    settings.write_text(f'database_url = "postgresql://u:{CANARY}@127.0.0.1:9/d"\n' + settings.read_text())
    said = house.save()
    assert CANARY.encode() not in house.file.read_bytes()
    assert "switchboard.toml: the password in database_url" in said["give_again"]
    house.restore()
    assert "postgresql://u@127.0.0.1:9/d" in (house.new / "switchboard.toml").read_text()


def test_what_was_open_is_counted(house: House, server: Server) -> None:
    """A reply that no connector has fetched: it may have been sent since."""
    with house.patch.context() as patch:
        patch.setenv("SWITCHBOARD_DATA_DIR", server.environment["SWITCHBOARD_DATA_DIR"])
        ask(lambda client: client.post("/v1/ingest", envelope("waits")))
        until(lambda: bool(house.cli.json("outbox", "list", "--state", "pending")["replies"]))
    house.save()
    assert house.restore()["open"] == {"messages": 0, "replies": 1}


def test_workspaces_can_be_left_out(house: House) -> None:
    house.save("--without-workspaces")
    with house.file.open("rb") as file:
        assert not [entry.path for entry in read_manifest(file).entries if "workspaces" in entry.path]


def test_what_cannot_be_restored_changes_nothing(house: House, tmp_path: Path) -> None:
    house.save("--passphrase-file", house.passphrase)
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong horse\n")
    assert "passphrase is not that" in house.restore("--passphrase-file", wrong, code=1)["error"]["message"]
    assert house.restore(code=2)["error"]["code"] == "usage"
    data = house.file.read_bytes()
    for damaged in (data[: len(data) // 2], data[:700] + b"?" + data[701:], b""):
        house.file.write_bytes(damaged)
        assert house.restore("--without-secrets", code=1)["error"]["code"] == "invalid_input"
    house.file.write_bytes(data)
    assert not house.new.exists()
    house.new.mkdir()
    (house.new / "mine").write_text("mine")
    assert house.restore("--without-secrets", code=1)["error"]["code"] == "conflict"
    assert content(house.new) == {"mine": "mine"}
    (house.new / "mine").unlink()
    assert house.cli.json("restore", house.file, house.new, "--without-secrets", code=1)["error"]["code"] == "conflict"
    assert not any(house.new.iterdir()), "the database was not empty"
    house.restore("--without-secrets")


@pytest.mark.parametrize(("release", "schema"), [("99.0.0", 1), ("0.1.0", 9999)])
def test_a_newer_release_is_refused(house: House, release: str, schema: int) -> None:
    with house.file.open("w+b") as file:
        writer = ArchiveWriter(file)
        writer.add(ArchiveEntry("database.dump"), b"PGDMP")
        writer.close(Contents(release, schema, "2026-01-01", "/srv/house", {"data_dir": "d", "channels_dir": "c"}))
    assert "install that release or a newer one" in house.restore(code=1)["error"]["message"]


def test_pausing_follows_no_link(house: House) -> None:
    outside = house.root.parent / "outside"
    (house.root / "channels.d/bot.paused").symlink_to(outside)
    house.save()
    assert house.restore("--paused")["paused"] == ["bot"]
    paused = house.new / "channels.d/bot.paused"
    assert (outside.exists(), paused.is_symlink(), paused.is_file()) == (False, False, True)


def test_links_and_odd_things_in_a_workspace(house: House) -> None:
    place = house.root / "data/workspaces/memo"
    secret = house.root.parent / "outside.txt"
    secret.write_text(CANARY)
    (place / "link").symlink_to(secret)
    (place / "directory").symlink_to(house.root.parent)
    (place / "broken").symlink_to("nowhere")
    os.mkfifo(place / "fifo")
    (place / os.fsdecode(b"\xff\xfe")).write_text("odd")
    (place / ("long" * 60)).write_text("long")
    deep = place
    for _ in range(250):
        deep = deep / "d"
        deep.mkdir()
    said = house.save()
    assert CANARY.encode() not in house.file.read_bytes()
    told = " ".join(said["left_out"])
    assert ("fifo is neither" in told, "lies too deep" in told, len(said["left_out"])) == (True, True, 2)
    house.restore()
    restored = house.new / "data/workspaces/memo"
    assert (restored / "link").readlink() == secret
    assert (restored / "directory").readlink() == house.root.parent
    assert (restored / os.fsdecode(b"\xff\xfe")).read_text() == "odd"
    assert (restored / ("long" * 60)).read_text() == "long"


def test_files_that_change_while_they_are_read(house: House) -> None:
    """Growing, shrinking, removed, replaced by links that lead outside: the backup is whole, and nothing is outside."""
    place = house.root / "data/workspaces/memo"
    outside = house.root.parent / "private"
    outside.mkdir()
    (outside / "x").write_text(CANARY)
    stop = Event()

    def change() -> None:
        round_ = 0
        while not stop.is_set():
            round_ += 1
            with (place / "log").open("ab") as log:
                log.write(b"x" * 200_000)
            if round_ % 7 == 0:
                os.truncate(place / "log", 10)
            inner = place / f"inner{round_ % 3}"
            if inner.is_symlink():
                inner.unlink()
                inner.mkdir()
                (inner / "x").write_text("inside")
            elif inner.is_dir():
                (inner / "x").unlink()
                inner.rmdir()
            else:
                inner.symlink_to(outside)

    thread = Thread(target=change)
    thread.start()
    try:
        for _ in range(8):
            house.save()
            with house.file.open("rb") as file:
                manifest = read_manifest(file)
                assert not any(CANARY.encode() in b"".join(pieces) for _, pieces in members(file))
            assert any(entry.path.endswith("memo/note.txt") for entry in manifest.entries)
    finally:
        stop.set()
        thread.join()


def run(*arguments: object, before: tuple[str, ...] = (), **more: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    if not before:
        return switchboard(os.environ | more, *map(str, arguments))
    command = [*before, EXECUTABLE, *map(str, arguments)]
    return subprocess.run(command, env=os.environ | more, capture_output=True, text=True, check=False)


def test_a_backup_that_is_killed_leaves_the_one_before(house: House) -> None:
    house.save()
    before = house.file.read_bytes()
    for point in ("backup_dumped", "backup_written"):
        done = run("backup", house.file, SWITCHBOARD_CRASH_AT=point)
        assert done.returncode == -signal.SIGKILL
        assert house.file.read_bytes() == before
        [left] = house.file.parent.glob(".backup.tar.*.partial")
        assert left.stat().st_mode & 0o777 == 0o600
    house.save()
    assert not list(house.file.parent.glob(".backup.tar.*.partial"))


@pytest.mark.parametrize("point", ["restore_begun", "restore_written"])
def test_a_restore_that_is_killed_leaves_nothing_that_starts(house: House, point: str) -> None:
    house.save()
    done = run("restore", house.file, house.new, SWITCHBOARD_CRASH_AT=point, SWITCHBOARD_DATABASE_URL=house.empty)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with house.patch.context() as patch:
        patch.chdir(house.new)
        for command in (("up",), ("doctor",), ("send", "x"), ("db", "migrate")):
            assert "this_restore_has_not_finished" in house.cli.run(*command)[2] + house.cli.run(*command)[1], command
    assert house.restore(code=1)["error"]["code"] == "conflict"


def test_a_restore_that_is_interrupted_leaves_nothing(house: House) -> None:
    house.save()
    command = [EXECUTABLE, "restore", str(house.file), str(house.new)]
    environment = os.environ | {"SWITCHBOARD_DATABASE_URL": house.empty}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        until(house.new.exists)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=DEADLINE)
    assert (process.returncode, "Traceback" in told, house.new.exists()) == (130, False, False), told
    house.restore()


def test_an_installation_whose_settings_are_in_the_environment(house: House) -> None:
    """It has no `switchboard.toml`; the restored one has."""
    (house.root / "switchboard.toml").unlink()
    with house.patch.context() as patch:
        patch.setenv("SWITCHBOARD_DATA_DIR", str(house.root / "data"))
        patch.setenv("SWITCHBOARD_TEAMS_DIR", "teams")
        patch.setenv("SWITCHBOARD_PORT", "1")
        variables = [one for one in house.save()["give_again"] if "SWITCHBOARD" in one]
        assert variables == [f"environment variable SWITCHBOARD_{name}" for name in ("DATABASE_URL", "PORT")]
        assert "unset the variable" in house.restore(code=1)["error"]["message"]
    with house.patch.context() as patch:
        patch.chdir(house.root / "teams")
        patch.setenv("SWITCHBOARD_DATABASE_URL", house.empty)
        house.cli.json("restore", house.file, "../../new")
        patch.chdir(house.new)
        settings = load_settings()
    assert settings.teams_dir == Path("teams")
    assert settings.data_dir == Path("data")
    assert (house.new / "teams/prompt.md").read_text() == "be kind"


@pytest.mark.parametrize("room", [100_000, 300_000])
def test_a_full_disk(house: House, room: int) -> None:
    """No file may become larger than so many bytes, as on a disk that is full."""
    house.write("data/workspaces/memo/large", "x" * 600_000)
    house.save()
    before = house.file.read_bytes()
    limit = ("prlimit", f"--fsize={room}")
    done = run("backup", house.file, before=limit)
    assert (done.returncode, "File too large" in done.stderr) == (1, True), done.stderr
    assert house.file.read_bytes() == before
    done = run("restore", house.file, house.new, before=limit, SWITCHBOARD_DATABASE_URL=house.empty)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert not house.new.exists()
    house.restore()
