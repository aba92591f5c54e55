"""`make container`: builds the image of the `Containerfile`, and tries its root file system as a container runs it.

In: the checkout; out: an exit code, and the seconds and megabytes. No registry is asked: the base is a Debian made by
mmdebstrap, the image is built by buildah in a chroot. bwrap starts its root file system as the image says: its command,
variables and user, who has no capability, and writes to the volume only; there is no network but the loopback. There
`demo`, `init`, `up`, a message and its answer, `kill -9` and a restart, and the health check must work, and `doctor`
must say which option permits commands of butlers. Needs root. `make nightly` runs it, `make release` with it.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
from msgspec import Struct

from tests.dist import HOME, SCRIPT, build

DEBIAN: Final = "trixie"
"""As in the default of BASE."""
NEEDED: Final = ("buildah", "mmdebstrap", "bwrap", "nsenter")
UID: Final = 10001
ADDRESS: Final = "http://127.0.0.1:8470"
_SECONDS: Final = 120.0
_CLONE_NEWNET: Final = 0x40000000
_SIOCSIFFLAGS: Final = 0x8914
_UP_AND_RUNNING: Final = 0x41
_CERTIFICATE: Final = "/run/lent/certificates"
_UNPRIVILEGED: Final = (
    *("/usr/bin/setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"),
    *("--inh-caps=-all", "--bounding-set=-all"),
)


class Health(Struct, frozen=True, rename="pascal"):
    """The health check of an image: `CMD`, and the argument vector."""

    test: tuple[str, ...]


class Config(Struct, frozen=True, rename="pascal"):
    """What an image says about how to run it."""

    user: str
    env: tuple[str, ...]
    cmd: tuple[str, ...]
    entrypoint: tuple[str, ...]
    volumes: dict[str, dict[str, str]]
    working_dir: str
    healthcheck: Health


class _Docker(Struct, frozen=True):
    config: Config


class _Image(Struct, frozen=True):
    docker: _Docker = msgspec.field(name="Docker")


class Builder:
    """buildah with a storage of its own in a directory, which is removed with it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._buildah = (
            "buildah",
            "--root",
            f"{place}/storage",
            "--runroot",
            f"{place}/run",
            "--storage-driver",
            "vfs",
        )

    def image(self) -> tuple[Config, Path]:
        """What the image says, and its root file system."""
        (self._place / "Base").write_text("FROM scratch\nADD base.tar /\n")
        mirror = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
        base = f"{self._place}/base.tar"
        with _measured("the base, by mmdebstrap"):
            _run("mmdebstrap", "--quiet", "--variant=minbase", "--components=main", DEBIAN, base, mirror)
            self._bud("base", "--file", f"{self._place}/Base", f"{self._place}")
        with _measured("the image, by buildah"):
            lent = (word for one in self._lent() for word in ("--volume", one))
            self._bud("switchboard", "--build-arg", "BASE=localhost/base", *lent, "--file", "Containerfile", ".")
        told = _run(*self._buildah, "inspect", "--type", "image", "localhost/switchboard")
        container = _run(*self._buildah, "from", "localhost/switchboard").strip()
        root = Path(_run(*self._buildah, "mount", container).strip())
        return msgspec.json.decode(told, type=_Image).docker.config, root

    def _bud(self, name: str, *options: str) -> None:
        how = ("--isolation", "chroot", "--format", "docker", "--tag", f"localhost/{name}")
        _run(*self._buildah, "bud", *how, *options)

    def _lent(self) -> Iterator[str]:
        """How this machine reaches the index of packages; lent to the steps; an empty file stays where it was."""
        pip = (sys.executable, "-m", "pip", "config", "get")
        found = {}
        for name in ("cert", "index-url", "proxy"):
            asked = subprocess.run((*pip, f"global.{name}"), capture_output=True, text=True, check=False)
            if value := os.environ.get(f"PIP_{name.upper().replace('-', '_')}") or asked.stdout.strip():
                found[name] = value
        if certificate := found.get("cert"):
            yield f"{certificate}:{_CERTIFICATE}:ro"
            found["cert"] = _CERTIFICATE
        if found:
            file = self._place / "pip.conf"
            file.write_text("\n".join(["[global]", *(f"{name} = {value}" for name, value in found.items())]))
            yield f"{file}:/etc/pip.conf:ro"


class Container:
    """The root file system of an image, run as the image says."""

    def __init__(self, config: Config, root: Path, volume: Path) -> None:
        self._config = config
        self._variables = dict(one.split("=", 1) for one in config.env)
        [place] = config.volumes
        self._volume = volume
        self._sees = ("--ro-bind", f"{root}", "/", "--bind", f"{volume}", place)

    def run(self, *words: str, fails: bool = False, whole_proc: bool = False) -> str:
        """`docker run --rm`: what it prints. Raises SystemExit if it fails though it should not."""
        command = self._command(words, whole_proc=whole_proc)
        _say(f"switchboard {' '.join(words)}{' (with all of /proc)' if whole_proc else ''}")
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
        if done.returncode and not fails:
            sys.exit(f"switchboard {words[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        _say(f"  {time.monotonic() - began:.1f} s")
        return done.stdout

    @contextmanager
    def up(self) -> Iterator[int]:
        """Its own command until the end of the block, which kills all of it; the process id of its first process."""
        told, telling = os.pipe()
        began = time.monotonic()
        command = self._command(self._config.cmd, "--info-fd", f"{telling}")
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, pass_fds=(telling,)
        )
        os.close(telling)
        with os.fdopen(told) as information:
            first: int = json.load(information)["child-pid"]
        try:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line)
                if "http://" in line:
                    break
            else:
                sys.exit(f"it did not start:\n{''.join(said)}")
            _say(f"up after {time.monotonic() - began:.1f} s")
            yield first
        finally:
            os.kill(first, signal.SIGKILL)
            process.communicate(timeout=_SECONDS)

    def execute(self, first: int, *argv: str) -> str:
        """`docker exec` in the running container: what it prints. Raises SystemExit if it fails."""
        inside = ("nsenter", f"--target={first}", "--mount", "--uts", "--ipc", "--pid", "--root", "--wd")
        variables = tuple(f"{name}={value}" for name, value in self._variables.items())
        command = (*inside, "/usr/bin/env", "--ignore-environment", *variables, *_UNPRIVILEGED, *argv)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
        if done.returncode:
            sys.exit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def check_health(self, first: int) -> None:
        """The health check of the image."""
        kind, *argv = self._config.healthcheck.test
        assert kind == "CMD"
        self.execute(first, *argv)

    def scripted_model(self) -> str:
        """The URL of a model that takes notes; it ends with us."""
        (script := self._volume / "script.json").write_text(json.dumps(SCRIPT))
        script.chmod(0o644)
        module = ("-m", "switchboard.testing.scripted_llm", "--script", "script.json")
        command = self._enclosed(("/opt/switchboard/bin/python3", *module))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        url: str = json.loads(process.stdout.readline())["url"]
        return url

    def _command(self, words: tuple[str, ...], *options: str, whole_proc: bool = False) -> tuple[str, ...]:
        return self._enclosed((*self._config.entrypoint, *words), *options, whole_proc=whole_proc)

    def _enclosed(self, argv: tuple[str, ...], *options: str, whole_proc: bool = False) -> tuple[str, ...]:
        """bwrap covers parts of /proc, as Docker and Podman do; without that, a /proc is that of the machine."""
        proc = ("--bind", "/proc", "/proc") if whole_proc else ("--unshare-pid", "--proc", "/proc")
        variables = (word for name, value in self._variables.items() for word in ("--setenv", name, value))
        return (
            *("bwrap", "--die-with-parent", "--unshare-ipc", "--unshare-uts", *self._sees, *proc, "--dev", "/dev"),
            *("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"),
            *("--clearenv", *variables, "--chdir", self._config.working_dir, *options),
            *("--", *_UNPRIVILEGED, *argv),
        )


def try_out(container: Container) -> None:
    """What docs/container.md says, in the container."""
    _cut_off()
    if "they balance" not in container.run("demo", "--scripted"):
        sys.exit("the demo says nothing of its books")
    url = container.scripted_model()
    container.run("init", "--yes", "--url", f"{url}/v1", "--model", "worker")
    with container.up() as first:
        container.check_health(first)
        _ask(container, first, "one")
        container.execute(first, "switchboard", "send", "Note that I must buy milk", "--id", "two")
    _say("killed by kill -9 right after a message was accepted, and started again")
    with container.up() as first:
        container.check_health(first)
        _ask(container, first, "two")
        container.execute(first, "switchboard", "doctor", "--full")
    for whole, wanted in ((False, "systempaths=unconfined"), (True, "✓ sandbox")):
        if wanted not in (said := container.run("doctor", fails=True, whole_proc=whole)):
            sys.exit(f"doctor does not say {wanted}:\n{said}")


def _ask(container: Container, first: int, event: str) -> None:
    """A message gets its answer; one that was accepted before is not accepted again."""
    words = ("switchboard", "send", "Note that I must buy milk", "--id", event, "--wait", "60")
    if "It is in notes.txt." not in (said := container.execute(first, *words)):
        sys.exit(f"the answer to message {event} is: {said}")
    _say(f"message {event} is answered")


def _cut_off() -> None:
    """No network for us and what we start, but a loopback of our own."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        sys.exit(f"no network of our own: {os.strerror(ctypes.get_errno())}")
    with socket.socket() as one:
        fcntl.ioctl(one, _SIOCSIFFLAGS, struct.pack("16sh14s", b"lo", _UP_AND_RUNNING, b""))


@contextmanager
def _measured(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    _say(f"{what}: {time.monotonic() - began:.0f} s")


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Build it, and try it."""
    missing = [one for one in NEEDED if shutil.which(one) is None]
    if missing or os.geteuid() != 0:
        sys.exit(f"this needs root and {', '.join(missing or NEEDED)}")
    build()
    with TemporaryDirectory(prefix="switchboard-container-") as place:
        config, root = Builder(Path(place)).image()
        _say(f"the root file system: {_run('du', '-sm', '--apparent-size', f'{root}').split()[0]} MB")
        assert config.user == f"{UID}:{UID}"
        (volume := Path(place) / "volume").mkdir(mode=0o700)
        os.chown(volume, UID, UID)
        with _measured("tried"):
            try_out(Container(config, root, volume))
    _say("the image works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
