"""The contents of a sandbox, as the arguments of bubblewrap (`bwrap`). Pure.

`run.py` calls it. In: what exists on this machine, and the workspace; out: an argument vector. Everything inside is
named here; from the machine these are programs, libraries and certificates, read-only. A name that somebody chose is
always the value of an option that takes one, and the command follows `--`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from switchboard.ports.sandbox import SandboxRules

WORKSPACE: Final = "/workspace"
"""The path of the workspace inside, where a command begins."""
PROGRAMS: Final = ("/usr",)
LINKED: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Links into /usr on most systems, directories on others."""
CONFIGURATION: Final = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ssl/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
)
SHOWN_OF_PROC: Final = frozenset(
    {
        "cpuinfo",
        "filesystems",
        "loadavg",
        "meminfo",
        "mounts",
        "net",
        "self",
        "stat",
        "thread-self",
        "uptime",
        "version",
    }
)
"""What programs need. The rest of /proc may be settings of the machine, which a command run by root could change."""
ENVIRONMENT: Final = {
    "HOME": WORKSPACE,
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TERM": "dumb",
    "TMPDIR": "/tmp",  # noqa: S108 (the directory inside)
    "USER": "butler",
}
USER: Final = 1000
FILES: Final = {
    "/etc/passwd": f"butler:x:{USER}:{USER}::{WORKSPACE}:/bin/sh\n",
    "/etc/group": f"butler:x:{USER}:\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
"""Small files that programs read, instead of the machine's."""
# Nothing may run before we release it, but bwrap also continues when we have died, so the shell waits for a line. If
# the machine runs short of memory, the kernel kills the processes inside before ours.
_FIRST: Final = 'read -r go </proc/self/fd/{0} || exit 1; echo 900 >/proc/self/oom_score_adj; exec "$@"'
RELEASE: Final = b"!\n"
"""Releases a command: a byte for bwrap, a line for the first shell inside."""
# Output and errors are one stream, in the order of writing.
_SHELL: Final = ("/bin/sh", "-c", 'exec /bin/sh -c "$1" 2>&1', "sh")
_SHARED_PART: Final = 4
"""A quarter of the memory for files is for /dev/shm."""


class Machine(Struct, frozen=True):
    """What exists outside: `linked` are links with their targets, `bound` are paths that are shown as they are."""

    bwrap: str
    """The path of bubblewrap."""
    linked: Mapping[str, str]
    bound: tuple[str, ...]
    proc_files: tuple[str, ...]
    """Names of files in /proc that are hidden; the next field has those of directories."""
    proc_directories: tuple[str, ...]


class Descriptors(Struct, frozen=True):
    """Open files for bwrap: the filter of system calls; each of `FILES`; where bwrap reports the process inside; where
    this process waits for a byte before it starts the command; and a copy, where the command's shell waits for a line.
    """

    syscalls: int
    files: Mapping[str, int]
    told: int
    released: int
    let_go: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """All of them."""
        return (self.syscalls, *self.files.values(), self.told, self.released, self.let_go)


class Room(Struct, frozen=True):
    """What one command gets: a workspace, an absolute path that may take `disk` bytes; the rules say the rest."""

    workspace: Path
    rules: SandboxRules
    disk: int


class Inside(Struct, frozen=True):
    """What runs: its arguments, its first directory, and its path of the workspace.

    `shown` is the absolute path of a directory that it sees at the same path, read-only; empty: none.
    """

    argv: Sequence[str]
    begins: str = WORKSPACE
    place: str = WORKSPACE
    shown: str = ""


def shell(command: str) -> Inside:
    """What runs for a shell command."""
    return Inside((*_SHELL, command))


def _show_system(machine: Machine, room: Room, opened: Descriptors) -> Iterator[str]:
    """What the command sees of this machine besides the workspace, read-only; and what is covered."""
    for path in machine.bound:
        yield from ("--ro-bind", path, path)
    for path, target in machine.linked.items():
        yield from ("--symlink", target, path)
    for path in _cover_hidden(machine, room.rules.hidden):
        yield from ("--size", "4096", "--tmpfs", path)
    for path, number in opened.files.items():
        yield from ("--ro-bind-data", f"{number}", path)
    yield from ("--proc", "/proc")
    for name in machine.proc_directories:
        yield from ("--size", "4096", "--tmpfs", f"/proc/{name}")
    for name in machine.proc_files:
        yield from ("--ro-bind", "/dev/null", f"/proc/{name}")


def arguments(machine: Machine, room: Room, opened: Descriptors, inside: Inside) -> tuple[str, ...]:
    """The argument vector of bwrap. Its environment is that of the command."""
    tmpfs = room.rules.tmpfs
    shared = tmpfs // _SHARED_PART
    return (
        machine.bwrap,
        *("--unshare-all", "--unshare-user", "--disable-userns", "--new-session"),
        *("--cap-drop", "ALL", "--uid", f"{USER}", "--gid", f"{USER}", "--hostname", "sandbox"),
        *("--seccomp", f"{opened.syscalls}", "--info-fd", f"{opened.told}", "--block-fd", f"{opened.released}"),
        *_show_system(machine, room, opened),
        *("--dev", "/dev", "--size", f"{shared}", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108
        *("--size", f"{tmpfs - shared}", "--tmpfs", "/tmp"),  # noqa: S108
        *(("--ro-bind", inside.shown, inside.shown) if inside.shown else ()),
        *("--bind", f"{room.workspace}", inside.place, "--chdir", inside.begins),
        *("--remount-ro", "/", "--", "/bin/sh", "-c", _FIRST.format(opened.let_go), "sh", *inside.argv),
    )


def _cover_hidden(machine: Machine, hidden: Iterable[Path]) -> list[str]:
    """Switchboard's own directories below the shown ones."""
    return [f"{one}" for one in hidden if any(one.is_relative_to(path) for path in machine.bound)]
