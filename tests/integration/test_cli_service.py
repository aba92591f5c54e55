"""`switchboard service`: what the unit says, whether systemd understands it, and what install and remove touch."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from switchboard.cli.main import main
from switchboard.cli.service.unit import LEFT_OUT, UnitPlan, is_unchanged, unit_text
from switchboard.domain.errors import ConfigurationError
from tests.places import place
from tests.processes import EXECUTABLE, environment

__all__ = ["place"]
ROOT: Final = os.geteuid() == 0
BREAK_THE_SANDBOX: Final = (
    "RestrictNamespaces",
    "PrivateUsers",
    "ProtectProc",
    "ProcSubset",
    "ProtectKernelTunables",
    "ProtectKernelLogs",
    "SystemCallFilter",
)
SYSTEM: Final = UnitPlan(
    program=Path(sys.executable),
    directory=Path("/tmp"),  # noqa: S108 - it is there
    data_dir=Path('/var/lib/50% of "all" it\'s $HOME \\data'),
    account="root",
    writable=(Path("/srv/a b"), Path("/srv/teams")),
    credentials={"model": Path("/etc/hostname")},
    drain_s=20.5,
    watchdog=True,
)
PLANS: Final = {"system": SYSTEM, "user": replace(SYSTEM, account=None, watchdog=False)}


@pytest.mark.parametrize("kind", PLANS)
def test_systemd_understands_the_unit(kind: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    file = tmp_path / "switchboard.service"
    file.write_text(unit_text(PLANS[kind]))
    command = ["systemd-analyze", "verify", "--man=no", *(["--user"] if kind == "user" else []), str(file)]
    runtime = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, env=runtime, capture_output=True, text=True, check=False)
    about_it = [line for line in (done.stdout + done.stderr).splitlines() if "switchboard.service" in line]
    assert (done.returncode, about_it) == (0, [])


@pytest.mark.parametrize("kind", PLANS)
def test_the_unit_keeps_the_sandbox_intact_and_lists_what_is_left_out(kind: str) -> None:
    text = unit_text(PLANS[kind])
    options = set(re.findall(r"^(\w+)=", text, re.MULTILINE))
    assert options & {*BREAK_THE_SANDBOX, *LEFT_OUT} == set()
    assert set(BREAK_THE_SANDBOX) <= set(LEFT_OUT) == set(re.findall(r"^#   (\w+):", text, re.MULTILINE))
    assert "NoNewPrivileges" in options
    # In the manager of a user, these imply PrivateUsers.
    closing = {name for name in options if name.startswith(("Protect", "Private", "ReadWrite"))}
    assert bool(closing) == (kind == "system")
    assert is_unchanged(text)
    assert not is_unchanged(text.replace("Restart=on-failure", "Restart=always"))


def test_a_path_cannot_bring_a_line_of_its_own() -> None:
    for odd in ("/srv/a\nExecStartPre=/bin/evil", "/srv/a\\", "/srv/a "):
        with pytest.raises(ConfigurationError, match="cannot stand in a unit file"):
            unit_text(replace(SYSTEM, directory=Path(odd)))


class Service:
    """`switchboard service` as a plain user, with an installation and a home of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.unit = place / "config/systemd/user/switchboard.service"
        settings = 'data_dir = "data"\nteams_dir = "teams"\n[[models]]\nname = "m"\nkind = "openai"\n'
        (place / "switchboard.toml").write_text(f'{settings}base_url = "http://127.0.0.1:9/v1"\nmodel = "x"\n')
        if ROOT:
            for one in (place, place / "switchboard.toml"):
                os.chown(one, 65534, 65534)

    def run(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if ROOT else []
        env = environment(self.place / "data") | {
            "XDG_CONFIG_HOME": str(self.place / "config"),
            "HOME": str(self.place),
        }
        env.pop("SWITCHBOARD_DATA_DIR")
        command = [*as_nobody, EXECUTABLE, "service", *arguments, "--json"]
        done = subprocess.run(command, env=env, cwd=self.place, capture_output=True, text=True, check=False)
        if "ermission denied" in done.stderr and not done.stdout:
            pytest.skip("the checkout is closed to others")
        assert done.returncode == code, done.stdout + done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        return said


def test_install_writes_one_file_and_remove_takes_it_away(place: Path) -> None:
    service = Service(place)
    planned = service.run("install", "--dry-run")
    assert (planned["written"], service.unit.exists(), (place / "data").exists()) == (False, False, False)
    written = service.run("install")
    assert service.unit.read_text() == planned["text"] == written["text"]
    assert f'Environment="SWITCHBOARD_DATA_DIR={place}/data"' in written["text"]
    assert (place / "data").stat().st_mode & 0o777 == 0o700
    (place / "data" / "kept").touch()
    # Ours is replaced, an edited one is not.
    again = service.run("install", "--watchdog")
    assert "WatchdogSec=60" in again["text"]
    assert any("restart" in step for step in again["next"])
    edited = service.unit.read_text() + "# mine\n"
    service.unit.write_text(edited)
    assert service.run("status")["unchanged"] is False
    for refused in ("install", "remove"):
        assert "--force" in service.run(refused, code=1)["error"]["message"]
        assert service.unit.read_text() == edited
    service.run("install", "--force")
    told = service.run("status")
    assert (told["installed"], told["unchanged"], told["systemd"]) == (True, True, told["reason"] is None)
    assert service.run("remove")["removed"] is True
    assert (service.unit.exists(), (place / "data" / "kept").exists()) == (False, True)
    assert service.run("remove")["removed"] is False


def test_secrets_of_the_environment_are_named_and_credentials_are_loaded(place: Path) -> None:
    service = Service(place)
    with (place / "switchboard.toml").open("a") as settings:
        settings.write('api_key_env = "MODEL_KEY"\n')
    (place / "key").write_text("secret-heron")
    told = service.run("install", "--dry-run", "--credential", f"model={place}/key")
    assert f"LoadCredential=model:{place}/key" in told["text"].splitlines()
    assert "secret-heron" not in json.dumps(told)
    assert [note for note in told["notes"] if "MODEL_KEY" in note]


@pytest.mark.skipif(not ROOT, reason="only root can install a unit of the system")
def test_the_service_never_runs_as_root(place: Path) -> None:
    env = environment(place / "data")
    for options, told in (
        ((), "--create-user"),
        (("--user", "root"), "never runs as root"),
        (("--user", "no-such-account"), "there is no account"),
    ):
        command = [EXECUTABLE, "service", "install", "--directory", str(place), *options]
        done = subprocess.run(command, env=env, cwd=place, capture_output=True, text=True, check=False)
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr
    assert list(place.iterdir()) == []


@pytest.mark.skipif(not ROOT, reason="only root can install a unit of the system")
def test_a_system_unit_belongs_to_an_account_that_can_reach_everything(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, as the interpreter of a checkout may be closed to others."""
    program = place / "bin" / "switchboard"
    program.parent.mkdir()
    program.touch(0o755)
    settings = place / "switchboard.toml"
    settings.write_text('data_dir = "data"\n')
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    for name in [name for name in os.environ if name.startswith("SWITCHBOARD_")]:
        monkeypatch.delenv(name)
    arguments = ["service", "install", "--directory", str(place / "units"), "--user", "nobody", "--json"]
    for closed, mode in ((settings, 0o600), (program.parent, 0o700)):
        before = closed.stat().st_mode
        closed.chmod(mode)
        assert _main(arguments) == 1
        assert str(closed) in json.loads(capsys.readouterr().out)["error"]["message"]
        closed.chmod(before)
    assert not (place / "units").exists()
    assert _main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert "User=nobody" in (place / "units" / "switchboard.service").read_text().splitlines()
    assert f'ReadWritePaths="{place}/data"' in told["text"].splitlines()
    assert {(place / name).owner() for name in ("data", "channels.d")} == {"nobody"}
    assert any(step.startswith("runuser -u nobody -- ") for step in told["next"])


@pytest.mark.skipif(not ROOT, reason="only root can install a unit of the system")
def test_what_the_account_cannot_read_or_be_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "teams").mkdir(mode=0o700)
    (place / "key").touch(mode=0o600)
    (place / "switchboard").touch(mode=0o755)
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "executable", str(place / "python"))
    for name in [name for name in os.environ if name.startswith("SWITCHBOARD_")]:
        monkeypatch.delenv(name)
    model = '[[models]]\nname = "m"\nkind = "openai"\nmodel = "x"\napi_key_file = "key"\n'
    for settings, account, said in (
        ('teams_dir = "teams"\n', "nobody", f"cannot read {place}/teams"),
        (model, "nobody", f"cannot read {place}/key"),
        ('program_user = "nobody"\n', "nobody", "program_user needs root"),
        ("", "Bad Name", "no name of an account"),
    ):
        (place / "switchboard.toml").write_text(f'data_dir = "data"\n{settings}')
        option = "--create-user" if account != "nobody" else "--user"
        assert _main(["service", "install", "--dry-run", option, account, "--json"])
        told = capsys.readouterr()
        assert said in told.out + told.err


def _main(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)
