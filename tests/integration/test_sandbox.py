"""The sandbox against commands that try to get out of it, as root and as a plain user; and commands that mean no harm.

Each attempt is a shell command that exits with 0 if it has got what it wanted. Those that want something of this
machine are made outside as well, where they must succeed: otherwise they would show nothing. All run in one sandbox,
each in a shell of its own; those that want to use up the machine have one each, and a guard around it that the kernel
keeps (`tests/sandboxed.py`), for the tests beside this one and their machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from switchboard.ports.sandbox import SandboxRules
from switchboard.sandbox.run import CommandExit, NoSandbox, Sandbox
from tests import bombs
from tests.forked import Forks
from tests.sandboxed import QUOTA, remove_groups
from tests.waiting import eventually

MIB: Final = 1024**2
SECRET: Final = "heron-7141"
ROOT: Final = os.geteuid() == 0


def py(code: str) -> str:
    return f"python3 -c {shlex.quote(code)}"


def syscall(number: int, *arguments: object) -> str:
    """Succeeds if the system call does, or if the kernel has looked at its arguments."""
    given = ", ".join(map(str, (number, *arguments)))
    library = "import ctypes as c, errno as e, sys; l = c.CDLL(None, use_errno=True)"
    return py(f"{library}; sys.exit(l.syscall({given}) < 0 and c.get_errno() in (e.EPERM, e.ENOSYS))")


OUTSIDE: Final = {
    "another butler's file": "grep -q {secret} {other}/secret",
    "the token of the operator": "grep -q {secret} {data}/operator.token",
    "the settings": "grep -q {secret} {data}/switchboard.toml",
    "a file through a link": "ln -sf {other}/secret link; grep -q {secret} link",
    "a directory through a link": "ln -sfn {other} dir; grep -q {secret} dir/secret",
    "a file through ..": "grep -q {secret} ../../../../../../../../../../{other}/secret",
    "a hard link": "rm -f hard; ln {other}/secret hard && grep -q {secret} hard",
    "a file of the root by the process": "grep -q {secret} /proc/self/root/{other}/secret",
    "the directory of the process": "grep -q {secret} /proc/self/cwd/../other/secret",
    "the environment of another process": "tr '\\0' '\\n' </proc/{pid}/environ | grep -q {secret}",
    "all environments": "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -q {secret}",
    "all command lines": "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -q 'sleep 7141[.]5'",
    "a root directory of another process": "grep -q {secret} /proc/{pid}/root/{other}/secret",
    "a signal to another process": "kill -0 {pid}",
    "a socket of the machine": py("import socket; socket.socket(socket.AF_UNIX).connect('{socket}')"),
    "the database": py("import socket; socket.socket(socket.AF_UNIX).connect('{data}/.s.PGSQL.5432')"),
    "a socket without a file": py("import socket; socket.socket(socket.AF_UNIX).connect('\\0' + '{abstract}')"),
    "a port of the loopback": py("import socket; socket.create_connection(('127.0.0.1', {port}), 2)"),
    "a port of every address": py("import socket; socket.create_connection(('0.0.0.0', {port}), 2)"),
    "a race with a link": py(
        "import os, sys, threading\n"
        "def swap():\n"
        "  for _ in range(2000):\n"
        "    try: os.symlink(\"{other}\" + '/secret', 'r.new'); os.replace('r.new', 'race')\n"
        "    except OSError: pass\n"
        "t = threading.Thread(target=swap); t.start(); found = False\n"
        "while t.is_alive() and not found:\n"
        "  try: found = \"{secret}\" in open('race').read()\n"
        "  except OSError: pass\n"
        "sys.exit(not found)"
    ),
}
"""What a program outside gets."""

ATTEMPTS: Final = {
    "passwords": "cat /etc/shadow",
    "a home": "ls /root || ls /home",
    "what runs": "ls /run || ls /var",
    "this program": "test -e {source}",
    "the machine's own name": 'test "$(hostname)" = {hostname}',
    "an environment": "env | grep -q -e {secret} -e SWITCHBOARD -e DATABASE",
    "a server outside": py("import socket; socket.create_connection(('1.1.1.1', 53), 2)"),
    "a name outside": "getent hosts example.com",
    "a raw socket": py("import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
    "a packet socket": py("import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    "the host of a virtual machine": py("import socket; socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)"),
    "a family of sockets": py("import socket; socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)"),
    "another interface": py("import socket, sys; sys.exit([n for _, n in socket.if_nameindex()] == ['lo'])"),
    "a setting of the kernel": "echo x >/proc/sys/kernel/core_pattern || echo x >/proc/sys/kernel/hostname",
    "a magic key": "echo h >/proc/sysrq-trigger",
    "memory of the kernel": "head -c 1 /proc/kcore || head -c 1 /proc/kmsg || head -c 1 /dev/mem",
    "settings of devices": "ls /sys/class",
    "a disk": "mknod disk b 8 0 || cat /dev/sda /dev/vda | head -c 1 | grep -q .",
    "programs of the machine": "echo x >/usr/bin/{mark} || touch /usr/{mark}",
    "its certificates": "touch /etc/ssl/certs/{mark}",
    "its users": "echo x >>/etc/passwd && id -u {mark}",
    "its root": "touch /{mark} || mkdir /{mark}",
    "its devices": "touch /dev/{mark}",
    "a mount": "mount -t tmpfs none /tmp || mount --bind / /tmp",
    "to write again": "mount -o remount,rw /usr",
    "an unmount": "umount /workspace || umount -l /proc",
    "a root of its own": "chroot /usr /bin/true",
    "rights by a program": "sudo -n true || su -c true root",
    "a program with the owner's rights": "cp /bin/true t; chmod u+s t && test -u t",
    "a program with the group's rights": "cp /bin/true g; chmod g+s g && test -g g",
    "a file with the owner's rights": py("import os; os.close(os.open('s', os.O_CREAT, 0o4755)); os.stat('s')"),
    "another user": py("import os; os.setuid(0)"),
    "another owner": "touch own; chown 0:0 own",
    "namespaces of users": "unshare --user true || unshare -Ur true",
    "other namespaces": "unshare --mount true || unshare --net true || unshare --pid true",
    "a sandbox in the sandbox": "bwrap --ro-bind / / true",
    "namespaces by clone": syscall(56, "0x10000000 | 17", 0, 0, 0, 0),
    "namespaces by clone3": syscall(435, 0, 0),
    "a namespace of another": py(
        "import ctypes, os, sys; l = ctypes.CDLL(None); sys.exit(l.setns(os.open('/proc/1/ns/mnt', 0), 0))"
    ),
    "to trace": syscall(101, 0, 0, 0, 0),
    "a descriptor of a process": syscall(438, 0, 0, 0),
    "to compare processes": syscall(312, 1, 1, 0, 0, 0),
    "to read a process": syscall(310, 1, 0, 0, 0, 0, 0),
    "its first process": "kill -9 1; head -c 1 /proc/1/mem",
    "memory of nobody": syscall(319, 'b"x"', 0),
    "shared memory of nobody": syscall(29, 0, 4096, "0o1600"),
    "messages of nobody": syscall(68, 0, "0o1600"),
    "programs in the kernel": syscall(321, 0, 0, 0),
    "a ring": syscall(425, 1, 0),
    "a key": syscall(248, 'b"user"', 'b"x"', 'b"y"', 1, -3),
    "events": syscall(298, 0, 0, -1, -1, 0),
    "faults": syscall(323, 0),
    "the other set of calls": syscall(0x40000000 + 39),
    "the log of the kernel": syscall(103, 3, 0, 0),
    "files by number": syscall(304, -100, 0, 0),
    "a terminal": "echo x >/dev/tty",
    "keys into a terminal": py("import fcntl, termios; fcntl.ioctl(0, termios.TIOCSTI, b'x')"),
    "a file that is its input": "test -f /proc/1/fd/0 && echo x >/proc/1/fd/0",
    "options by a variable": 'set -- --bind / /tmp/all; "$@"',
    "options by a file name": "touch -- '--bind'; ls /tmp/all",
    "a preloaded library": 'test -n "$LD_PRELOAD$LD_LIBRARY_PATH"',
    "a core of the machine": 'ulimit -c unlimited && test "$(ulimit -c)" = unlimited',
    "not to be killed first": "echo -1000 >/proc/self/oom_score_adj && grep -q -e - /proc/self/oom_score_adj",
    "more processes": py("import resource as r; r.setrlimit(r.RLIMIT_NPROC, (999, 999))"),
    "another control group": "ls /sys/fs/cgroup || mount -t cgroup2 none /tmp",
    "more of a schedule": "nice -n -5 sh -c 'test $(nice) -lt 0'",
}
"""What no program inside must get."""

HARMLESS: Final = {
    "echo hello": "hello",
    "echo one two | tr ' ' '\\n' | sort -r | head -1": "two",
    "printf 'b\\na\\n' >f; sort f": "a\nb",
    "printf 'x\\ny\\n' >>lines; wc -l <lines": "2",
    "seq 10 | awk '{s += $1} END {print s}'": "55",
    "echo abc | sed s/b/x/": "axc",
    "echo abc | cut -c2": "b",
    "mkdir -p d/e; touch d/e/f; find d -type f": "d/e/f",
    "cat <<X\nhere\nX": "here",
    "python3 -c 'print(6 * 7)'": "42",
    "python3 -c 'import json; print(json.dumps([1]))'": "[1]",
    'python3 -c \'import subprocess as s; print(s.check_output(["echo", "hi"], text=True).strip())\'': "hi",
    "python3 -c 'import threading as t; x = t.Thread(target=print, args=(1,)); x.start(); x.join()'": "1",
    "python3 -c 'import multiprocessing as m; p = m.Process(target=print, args=(2,)); p.start(); p.join()'": "2",
    "python3 -c 'import tempfile; f = tempfile.TemporaryFile(); f.write(b\"x\"); print(f.tell())'": "1",
    "python3 -c 'import hashlib; print(hashlib.md5(b\"\").hexdigest()[:4])'": "d41d",
    "x=5; echo $((x + 1))": "6",
    "for i in 1 2; do echo $i; done": "1\n2",
    "false || echo no": "no",
    "(exit 3); echo $?": "3",
    "echo a 1>&2": "a",
    "sleep 0 & wait; echo waited": "waited",
    "pwd": "/workspace",
    "id -un": "butler",
    "echo $HOME": "/workspace",
    "echo x >/tmp/t; cat /tmp/t": "x",
    "tar cf a.tar f && tar tf a.tar": "f",
    "gzip -c f | gunzip | head -1": "b",
    "ln -sf f l; readlink l": "f",
    "chmod 755 f; stat -c %a f": "755",
    "date -u -d @0 +%Y": "1970",
    "echo 'a b' | xargs -n1 echo": "a\nb",
    "head -c 3 /dev/zero | od -An -tx1 | tr -d ' '": "000000",
    "diff f f && echo same": "same",
    "grep -c a f": "1",
    "mv f f2 && cp f2 f && rm f2 && ls f": "f",
    "test -s /etc/ssl/certs/ca-certificates.crt || true; echo ok": "ok",
}
if shutil.which("git"):
    HARMLESS["git init -q r && cd r && git status --short && git rev-parse --is-inside-work-tree"] = "true"


_SHOWN: Final = "od -An -v -tx1 /tmp/out | tr -d ' \\n'; echo"


def in_shells(commands: Mapping[str, str]) -> str:
    """One command that runs each in a shell of its own, and tells of each a line: exit code, output as JSON."""
    runs = [
        f"sh -c {shlex.quote(command)} >/tmp/out 2>&1 </dev/null; printf '%s ' $?; {_SHOWN}"
        for command in commands.values()
    ]
    return "\n".join(runs)


def results_of(commands: Mapping[str, str], output: str) -> dict[str, tuple[int, str]]:
    """Of each its exit code and its output."""
    lines = [line.partition(" ") for line in output.splitlines()]
    results = [(int(code), bytes.fromhex(shown).decode("utf-8", "replace").strip()) for code, _, shown in lines]
    return dict(zip(commands, results, strict=True))


@dataclass(frozen=True, slots=True)
class Place:
    """The machine with what must stay out of reach, and the workspace."""

    root: Path
    workspace: Path
    data: Path
    names: Mapping[str, object]

    def filled(self, commands: Mapping[str, str]) -> dict[str, str]:
        """The commands with the names of this place."""
        filled: dict[str, str] = {}
        for name, command in commands.items():
            filled[name] = command
            for key, value in self.names.items():
                filled[name] = filled[name].replace(f"{{{key}}}", str(value))
        return filled


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        root.chmod(0o755)  # a plain user is kept out by the sandbox, and not by this
        yield from _furnished(root)


def _furnished(root: Path) -> Iterator[Place]:
    data, other, workspace = root / "data", root / "other", root / "workspace"
    for directory in (data, other, workspace):
        directory.mkdir()
    for secret in (data / "operator.token", data / "switchboard.toml", other / "secret"):
        secret.write_text(SECRET)
    abstract = f"sandbox-{os.getpid()}"
    with (
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as database,
        socket.socket(socket.AF_UNIX) as unnamed,
        socket.create_server(("127.0.0.1", 0)) as port,
        subprocess.Popen(["/bin/sleep", "7141.5"], env={"SECRET": SECRET}) as process,
    ):
        named.bind(f"{root}/s")
        named.listen(50)
        database.bind(f"{data}/.s.PGSQL.5432")
        database.listen(50)
        unnamed.bind(f"\0{abstract}")
        unnamed.listen(50)
        names = {
            "secret": SECRET,
            "other": other,
            "data": data,
            "pid": process.pid,
            "socket": f"{root}/s",
            "abstract": abstract,
            "port": port.getsockname()[1],
            "source": Path(__file__).resolve(),
            "hostname": socket.gethostname(),
            "mark": f"mark-{os.getpid()}",
        }
        try:
            yield Place(root, workspace, data, names)
        finally:
            process.kill()


@pytest_asyncio.fixture
async def sandbox(place: Place) -> Sandbox:
    made = Sandbox(SandboxRules(hidden=(place.data,)))
    if lacking := await made.lacking():
        pytest.skip(lacking)
    return made


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A workspace for what wants all of it; its files can be large."""
    workspace = tmp_path / "small"
    yield workspace
    shutil.rmtree(workspace, ignore_errors=True)


def alive(mark: str) -> list[str]:
    """The processes of this machine that have `mark` in their command lines."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if mark.encode() in file.read_bytes():
                found.append(file.parent.name)
    return found


def outcomes(commands: Mapping[str, str], output: bytes | str) -> dict[str, tuple[int, str]]:
    return results_of(commands, output if isinstance(output, str) else output.decode())


def test_what_succeeds_outside(place: Place) -> None:
    commands = place.filled(OUTSIDE)
    place.workspace.mkdir(exist_ok=True)
    ran = subprocess.run(
        ["/bin/sh", "-c", in_shells(commands)], cwd=place.workspace, capture_output=True, text=True, check=True
    )
    failed = {name: result for name, result in outcomes(commands, ran.stdout).items() if result[0] != 0}
    assert failed == {}
    for left in place.workspace.iterdir():
        left.unlink()


async def test_no_attempt_succeeds(place: Place, sandbox: Sandbox) -> None:
    commands = place.filled({**OUTSIDE, **ATTEMPTS})
    assert len(commands) >= 70
    done = await sandbox.run(in_shells(commands), place.workspace, QUOTA, 60)
    assert (done.killed, done.status) == ("", 0)
    assert {name: told for name, (code, told) in outcomes(commands, done.output).items() if code == 0} == {}
    assert [path for path in (Path("/usr/bin"), Path("/usr"), Path("/")) if any(path.glob("mark-*"))] == []


async def test_commands_that_mean_no_harm(tmp_path: Path, sandbox: Sandbox) -> None:
    assert len(HARMLESS) >= 25
    done = await sandbox.run(in_shells({name: name for name in HARMLESS}), tmp_path, QUOTA, 60)
    told = outcomes(HARMLESS, done.output)
    assert told == {command: (0, output) for command, output in HARMLESS.items()}


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
async def test_a_plain_user(place: Place, forks: Forks) -> None:
    workspace = place.root / "plain"
    workspace.mkdir()
    attempts = place.filled({**OUTSIDE, **ATTEMPTS})
    commands = {**attempts, **{name: name for name in HARMLESS}}
    said = await _forked(forks, "plain", place, _job({"": in_shells(commands)}, workspace, place))
    if said["lacking"]:
        pytest.skip(said["lacking"])
    output, status, killed = said["ended"][""]
    assert (status, killed) == (0, "")
    told = outcomes(commands, output)
    assert {name: told[name] for name in attempts if told[name][0] == 0} == {}
    assert {name: told[name] for name in HARMLESS} == {command: (0, output) for command, output in HARMLESS.items()}


async def test_commands_run_without_what_a_unit_of_systemd_takes(place: Place, forks: Forks) -> None:
    workspace = place.root / "serviced"
    workspace.mkdir()
    commands = {name: name for name in HARMLESS}
    said = await _forked(forks, "serviced", place, _job({"": in_shells(commands)}, workspace, place))
    if said["lacking"]:
        pytest.skip(said["lacking"])
    output, status, killed = said["ended"][""]
    assert (status, killed) == (0, "")
    assert outcomes(commands, output) == {command: (0, output) for command, output in HARMLESS.items()}


@pytest.mark.skipif(not ROOT, reason="only root can take these away from one process")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed")
@pytest.mark.parametrize(
    ("who", "why"),
    [
        ("forbidden", "bubblewrap does not work here: bwrap: "),
        ("ungrouped", "the kernel limits the processes of root in control groups only, and none can be made here"),
    ],
)
async def test_there_is_none_without_namespaces_or_limits(who: str, why: str, place: Place, forks: Forks) -> None:
    said = await _forked(forks, who, place, _job({"": "echo no"}, place.workspace, place))
    assert said["lacking"].startswith(why)


@pytest.mark.parametrize("who", ["root", "plain"])
async def test_bombs_take_no_more_than_they_may(who: str, place: Place, forks: Forks) -> None:
    if who == "root" and not ROOT:
        pytest.skip("we are not root")
    workspace = place.root / f"bombed-{who}"
    workspace.mkdir()
    said = await _forked(forks, who, place, bombs.job(workspace, place.data))
    if said["lacking"]:
        pytest.skip(said["lacking"])
    assert bombs.wrong(said) == {}


def _job(commands: Mapping[str, str], workspace: Path, place: Place) -> dict[str, Any]:
    where = {"workspace": f"{workspace}", "hidden": f"{place.data}", "quota": QUOTA}
    return {"commands": commands, **where, "limits": {}, "guarded": False}


async def _forked(forks: Forks, who: str, place: Place, job: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=place.root) as name:
        file = Path(name) / "job.json"
        file.write_text(json.dumps(job))
        env = {"PATH": os.environ["PATH"]}
        errors = place.root / f"{who}.err"
        process = forks.start("tests.sandboxed", who, f"{file}", env=env, errors=errors, cwd=place.root)
        code = await process.wait(60)
        assert code == 0, process.errors.read_text()
        said: dict[str, Any] = json.loads(file.with_suffix(".out").read_text())
        remove_groups(said)
        return said


@pytest.mark.usefixtures("sandbox")
async def test_limits_are_there_before_a_command_starts(small: Path) -> None:
    limited = Sandbox(SandboxRules(processes=40))
    done = await limited.run("cat /proc/self/limits /proc/self/oom_score_adj /proc/self/cgroup; nice", small, MIB, 60)
    told = done.output.decode()
    assert re.search(r"^Max processes +40 +40 ", told, re.MULTILINE)
    assert re.search(rf"^Max file size +{MIB} +{MIB} ", told, re.MULTILINE)
    assert "\n900\n" in told
    assert ("/switchboard-" in told) is ("control group" in limited.limits)
    assert int(told.splitlines()[-1]) > os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.usefixtures("sandbox")
async def test_files_in_memory_are_limited(small: Path) -> None:
    limited = Sandbox(SandboxRules(tmpfs=8 * MIB))
    done = await limited.run("cat /dev/zero >/tmp/x; cat /dev/zero >/dev/shm/x; du -sm /tmp /dev/shm", small, QUOTA, 60)
    assert done.killed == ""
    assert done.output.decode().splitlines()[-2:] == ["6\t/tmp", "2\t/dev/shm"]


async def test_a_full_workspace_can_be_tidied(small: Path, sandbox: Sandbox) -> None:
    assert (await sandbox.run("head -c 2M /dev/zero >much", small, QUOTA, 60)).status == 0
    tidied = await sandbox.run("rm much; ls", small, MIB, 60)
    assert tidied == CommandExit(b"", 0)


OUTLIVING: Final = (
    "sleep 7141.{0} & echo",
    "nohup setsid sleep 7141.{0} >/dev/null 2>&1 & echo",
    "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM; sleep 7141.{0}' </dev/null >/dev/null 2>&1 &); echo",
)


@pytest.mark.parametrize("end", ["by itself", "time is up", "cancelled"])
async def test_nothing_outlives_a_command(end: str, tmp_path: Path, sandbox: Sandbox) -> None:
    mark = f"{os.getpid()}"
    command = "\n".join(one.format(mark) for one in OUTLIVING) + "\ntouch begun"
    if end == "by itself":
        await sandbox.run(command, tmp_path, QUOTA, 60)
    elif end == "time is up":
        assert (await sandbox.run(f"{command}; sleep 7141.{mark}", tmp_path, QUOTA, 0.5)).killed == "its time was up"
    else:
        running = asyncio.ensure_future(sandbox.run(f"{command}; sleep 7141.{mark}", tmp_path, QUOTA))
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.01)
        assert alive(f"7141.{mark}") != []
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert (tmp_path / "begun").exists()
    assert alive(f"7141.{mark}") == []


_KILLED: Final = """
import asyncio, sys, time
from pathlib import Path
from switchboard.ports.sandbox import SandboxRules
from switchboard.sandbox import watchdog
from switchboard.sandbox.run import Sandbox

def hold(*_):
    print("held", flush=True)
    time.sleep(600)

async def main():
    sandbox, workspace = Sandbox(SandboxRules()), Path(sys.argv[1])
    assert await sandbox.lacking() == ""
    if sys.argv[2] == "before its limits are set":
        watchdog.hold = hold
    running = asyncio.create_task(sandbox.run("touch begun; setsid sleep 7147", workspace, 2**20))
    while not (workspace / "begun").exists():
        await asyncio.sleep(0.01)
    print("begun", flush=True)
    await running

asyncio.run(main())
"""


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("when", ["before its limits are set", "while it runs"])
async def test_nothing_is_left_of_a_command_whose_worker_is_killed(when: str, tmp_path: Path) -> None:
    words = (sys.executable, "-c", _KILLED, f"{tmp_path}/w", when)
    worker = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    assert worker.stdout is not None
    begins = when == "while it runs"
    assert await worker.stdout.readline() == (b"begun\n" if begins else b"held\n")
    assert alive(f"{tmp_path}/w\0/workspace") != []
    worker.kill()
    await worker.wait()
    await eventually(lambda: nothing_with(f"{tmp_path}/w"))
    assert alive("sleep\x007147") == []
    assert (tmp_path / "w/begun").exists() is begins


async def nothing_with(mark: str) -> bool:
    return not alive(mark)


@pytest.mark.parametrize("name", ["--bind", "--", "a b", "$(touch x)", "-c;touch x", "x\n--ro-bind", "\u202e"])
async def test_no_option_is_smuggled_in_by_a_name(name: str, tmp_path: Path, sandbox: Sandbox) -> None:
    workspace = tmp_path / name
    done = await sandbox.run("echo y >f; ls; ls / | tr '\n' ' '", workspace, QUOTA, 60)
    assert (done.killed, [*workspace.iterdir()]) == ("", [workspace / "f"])
    assert done.output.decode().split()[-3:] == ["tmp", "usr", "workspace"]


@pytest.mark.parametrize("command", ["--bind / /all", "-- sh", "--help"])
async def test_a_command_is_no_option(command: str, tmp_path: Path, sandbox: Sandbox) -> None:
    done = await sandbox.run(command, tmp_path, QUOTA, 60)
    assert done.status in {2, 127}


async def test_a_workspace_around_our_own_files_is_refused(place: Place, sandbox: Sandbox) -> None:
    for wide in (place.root, place.data, Path("/")):
        with pytest.raises(NoSandbox, match="more than files of the butler"):
            await sandbox.run("true", wide, QUOTA)


@pytest.mark.usefixtures("sandbox")
async def test_our_own_directory_is_covered_where_programs_are(tmp_path: Path) -> None:
    covered = Sandbox(SandboxRules(hidden=(Path("/usr/share"),)))
    done = await covered.run("ls /usr/share | wc -l; ls /usr/lib | wc -l", tmp_path, QUOTA, 60)
    first, second = map(int, done.output.split())
    assert first == 0 < second


async def test_without_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}")
    without = Sandbox(SandboxRules())
    assert await without.lacking() == "bubblewrap (bwrap) is not installed"
    with pytest.raises(NoSandbox, match="not installed"):
        await without.run("true", tmp_path, QUOTA)
