"""`make bare`: what a newcomer's first minutes take on a Debian that has nothing.

In: the checkout, run as root on Debian with `mmdebstrap`; out: a table in Markdown, or an exit code that is not 0. An
ordinary user installs in a new root file system, by pip and from a clone, as the README says, and runs the demo.
Everything is downloaded before, and counted apart; what is measured sees no network but the loopback. Every program
that the README does not name is missing there, and so are time zones. `make nightly` runs it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

from msgspec import Struct

from tests.dist import HOME, build

SUITE: Final = "bookworm"
_MIRROR: Final = "http://deb.debian.org/debian"
_USER: Final = "newcomer"
_PATH: Final = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_INSIDE: Final = """
mount -t proc proc "$1/proc" && mkdir -p "$1/dev/shm" && mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm" || exit
"$0" -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14s", b"lo", 0x41, b""))' || exit
root=$1 user=$2
shift 2
exec chroot --userspec="$user" "$root" /usr/bin/env -i HOME="/home/$user" USER="$user" "$@"
"""
"""What the first process of new namespaces does: 0x8914 is SIOCSIFFLAGS, which brings the loopback up."""


class Way(Struct, frozen=True):
    """A way to install: Debian's packages for it, its commands as the README has them, and then its demo."""

    name: str
    packages: tuple[str, ...]
    install: str
    demo: str


WAYS: Final = (
    Way(
        "pip",
        ("python3", "python3-venv"),
        "python3 -m venv ~/switchboard && ~/switchboard/bin/pip install --quiet switchboard-server",
        "~/switchboard/bin/switchboard demo",
    ),
    Way(
        "clone",
        ("git", "make", "python3-venv"),
        "git clone --quiet /srv/clone/switchboard.git checkout && cd checkout && make setup",
        "cd checkout && make demo",
    ),
)


class Machine:
    """The root file system, with an ordinary user."""

    def __init__(self, root: Path) -> None:
        self._root = root
        _run("mmdebstrap", "--quiet", "--variant=apt", "--include=ca-certificates", SUITE, str(root), _MIRROR)
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        self._as_root("apt-get", "update", "--quiet")
        self._as_root("useradd", "--create-home", "--shell", "/bin/bash", _USER)

    @property
    def packages(self) -> Path:
        """Where programs that install find what they would download."""
        return self._root / "srv"

    def apt_install(self, packages: Sequence[str]) -> str:
        """Install them; how much of it was downloaded, as apt says it."""
        apt = ("apt-get", "install", "--no-install-recommends")
        planned = self._as_root(*apt, "--assume-no", *packages, good=(0, 1))
        self._as_root(*apt, "--quiet", "--yes", *packages)
        found = re.search(r"Need to get (?:\S+ \S+/)?([\d.,]+ \S*B) ", planned)
        return found[1] if found else "0 B"

    def python_version(self) -> str:
        """Of Debian's Python, such as `3.11`."""
        return self._as_root("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()

    def do(self, command: str) -> float:
        """The seconds that the command of an ordinary user takes. Raises SystemExit with what it said if it fails."""
        began = monotonic()
        _run(
            *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", _INSIDE),
            *(sys.executable, str(self._root), _USER, "PATH=/usr/local/bin:/usr/bin:/bin"),
            *("/bin/bash", "-c", f"cd && {command}"),
        )
        return monotonic() - began

    def home_size(self) -> int:
        """Megabytes (of 2²⁰ bytes) of the user's home."""
        return megabytes(self._root / "home" / _USER)

    def offer(self, place: Path) -> None:
        """Let pip and uv look nowhere else than there; the user owns it, as git serves nobody else's."""
        inside = f"/{place.relative_to(self._root)}"
        self._as_root("chown", "-R", f"{_USER}:", str(inside))
        (self._root / "etc/pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {inside}\n")
        (self._root / "etc/uv").mkdir(exist_ok=True)
        (self._root / "etc/uv/uv.toml").write_text(f'no-index = true\nfind-links = ["{inside}"]\n')

    def _as_root(self, *command: str, good: tuple[int, ...] = (0,)) -> str:
        return _run(
            "chroot", str(self._root), "/usr/bin/env", _PATH, "DEBIAN_FRONTEND=noninteractive", *command, good=good
        )


def download(way: Way, machine: Machine, wheel: Path) -> None:
    """Put all that this way would download into the machine."""
    place = machine.packages / way.name
    fit = ("--only-binary=:all:", "--python-version", machine.python_version(), "--dest", str(place))
    pip = (sys.executable, "-m", "pip", "download", "--quiet", *fit)
    if way.name == "pip":
        _run(*pip, str(wheel))
    else:
        _run(*pip, "--no-deps", "--require-hashes", "-r", str(HOME / "requirements.lock"))
        _run(*pip, "uv", "hatchling", "editables")
        _run("git", "clone", "--quiet", "--bare", str(HOME), str(place / "switchboard.git"))
    machine.offer(place)


def row(way: Way, machine: Machine, wheel: Path) -> str:
    """Install and run it; its line of the table."""
    debian = machine.apt_install(way.packages)
    download(way, machine, wheel)
    fetched = megabytes(machine.packages / way.name)
    before = machine.home_size()
    seconds = machine.do(way.install)
    size = machine.home_size() - before
    demo = machine.do(way.demo)
    cells = (
        way.name,
        f"{' '.join(way.packages)}: {debian}",
        f"{fetched} MB",
        f"{seconds:.0f} s",
        f"{size} MB",
        f"{demo:.0f} s",
    )
    return f"| {' | '.join(cells)} |"


def megabytes(place: Path) -> int:
    """What is below it takes on disk, in 2²⁰ bytes, as `du -sm` says."""
    return int(_run("du", "-sm", str(place)).split()[0])


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _run(*command: str, good: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    if done.returncode not in good:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout[-6000:]}{done.stderr[-6000:]}")
    return done.stdout


def main(asked: list[str]) -> int:
    """Measure each way, or those asked for, one after the other on the same machine."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        sys.exit("make bare needs root and mmdebstrap (apt install mmdebstrap)")
    wheel = build()
    head = ("way", "Debian packages", "downloaded", "install", "takes up", "demo")
    _say(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    # Not in /tmp, which may be mounted so that no programs run there.
    with TemporaryDirectory(prefix="switchboard-bare-", dir="/var/tmp") as place:
        Path(place).chmod(0o755)
        machine = Machine(Path(place) / "root")
        for way in WAYS:
            if not asked or way.name in asked:
                _say(row(way, machine, wheel))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
