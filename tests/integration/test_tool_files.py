"""The file tools: what they do, and that nothing outside of the workspace is reached, whatever is tried."""

from __future__ import annotations

import ast
import asyncio
import os
import random
import socket
import string
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from switchboard.ports.tools import NeedsMachine, ToolOutcome
from switchboard.tools.bash import Bash
from switchboard.tools.calls import call_tool
from switchboard.tools.files import MOST_SHOWN
from switchboard.tools.results import remove_results, turns_with_results
from switchboard.tools.search import MOST_SEARCHED
from switchboard.tools.threads import Stopped, StopSignal, in_thread
from switchboard.tools.workspace import MOST_WRITTEN, FileToWrite, ToolRefusal, write
from tests.documents import HOME, blocks
from tests.tools import KEY, TOOLS, TURN, called, scope_of

CANARY = "CANARY-of-the-outside"
TERABYTE = 1 << 40


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory beside the workspace, with a secret."""
    (place := tmp_path / "outside").mkdir()
    (place / "secret.txt").write_text(CANARY)
    (place / CANARY).mkdir()
    return place


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (place := tmp_path / "workspace").mkdir()
    return place


def contents(place: Path) -> dict[str, bytes | None]:
    """Everything below a directory."""
    return {str(one.relative_to(place)): one.read_bytes() if one.is_file() else None for one in place.rglob("*")}


def names(place: Path) -> list[str]:
    """What is in a directory."""
    return [one.name for one in place.iterdir()]


# What they do -------------------------------------------------------------------------------------------------------


async def test_what_is_written_is_read_listed_and_found(workspace: Path) -> None:
    written = await called(workspace, "write_file", path="notes/plan.md", content="one\ntwo\nthree\n")
    assert written == ToolOutcome("created notes/plan.md: 14 bytes")
    assert await called(workspace, "read_file", path="notes/plan.md") == ToolOutcome("one\ntwo\nthree")
    assert (await called(workspace, "list_files")).text == "notes/"
    assert (await called(workspace, "list_files", recursive=True)).text == "notes/\nnotes/plan.md (14 bytes)"
    assert (await called(workspace, "search_files", text="tw")).text == "notes/plan.md:2:two"
    again = await called(workspace, "write_file", path="./notes//plan.md", content="four")
    assert again == ToolOutcome("replaced notes/plan.md: 4 bytes")
    assert contents(workspace) == {"notes": None, "notes/plan.md": b"four"}


async def test_a_workspace_that_is_not_there_is_made(workspace: Path) -> None:
    assert (await called(workspace / "a" / "b", "list_files")).text == "[no files]"
    assert (await called(workspace / "c", "write_file", path="x", content="")).ok
    assert (workspace / "c" / "x").read_bytes() == b""


@pytest.mark.parametrize(
    ("content", "arguments", "shown"),
    [
        (b"", {}, "[the file has 0 lines]"),
        (b"a", {}, "a"),
        (b"a\n\n", {}, "a\n"),
        (b"a\r\nb\r\n", {}, "a\nb"),
        (b"\xef\xbb\xbfa", {}, "a"),
        (b"a\nb\nc", {"offset": 2}, "b\nc"),
        (b"a\nb\nc", {"limit": 2}, "a\nb\n[more lines follow: go on with offset 3]"),
        (b"a\nb\nc", {"offset": 2, "limit": 1}, "b\n[more lines follow: go on with offset 3]"),
        (b"a\nb\nc", {"offset": 3, "limit": 9}, "c"),
        (b"a\nb\nc", {"offset": 9}, "[the file has 3 lines]"),
        (b"caf\xe9", {}, "caf\ufffd\n[some bytes are not UTF-8, and are shown as \ufffd]"),
        ("\ufffd".encode(), {}, "\ufffd"),
        ("é\u2028ü".encode(), {}, "é\u2028ü"),
        (b"x" * 3000, {}, "x" * 2000 + " [… the line goes on]"),
        ("é".encode() * 900_000 + b"\nb", {}, "é" * 2000 + " [… the line goes on]\nb"),
    ],
)
async def test_reading(workspace: Path, content: bytes, arguments: dict[str, int], shown: str) -> None:
    (workspace / "file").write_bytes(content)
    assert await called(workspace, "read_file", path="file", **arguments) == ToolOutcome(shown)


async def test_a_long_file_is_read_in_several_calls(workspace: Path) -> None:
    lines = [f"line {number} " + "x" * (number % 300) for number in range(1, 2001)]
    (workspace / "long").write_text("\n".join(lines))
    offset, read = 1, list[str]()
    while True:
        outcome = await called(workspace, "read_file", path="long", offset=offset)
        *shown, last = outcome.text.split("\n")
        assert len(outcome.text) <= MOST_SHOWN + 100
        if not last.startswith("[more"):
            break
        read += shown
        offset = len(read) + 1
        assert last == f"[more lines follow: go on with offset {offset}]"
    assert [*read, *shown, last] == lines


async def test_the_permissions_of_a_file_stay_when_it_is_replaced(workspace: Path) -> None:
    (workspace / "run.sh").write_text("")
    (workspace / "run.sh").chmod(0o750)
    assert (await called(workspace, "write_file", path="run.sh", content="echo")).ok
    assert (workspace / "run.sh").stat().st_mode & 0o7777 == 0o750


async def test_names_that_would_mislead_are_shown_as_json(workspace: Path) -> None:
    for name in ("a\nb", "c\u202ed", "plain name.txt", "naïve"):
        (workspace / name).write_text("x")
    (workspace / os.fsdecode(b"\xff")).write_text("x")
    assert (await called(workspace, "list_files")).text.splitlines() == [
        '"a\\nb" (1 bytes)',
        '"c\\u202ed" (1 bytes)',
        "naïve (1 bytes)",
        "plain name.txt (1 bytes)",
        '"\\udcff" (1 bytes)',
    ]
    assert (await called(workspace, "read_file", path="a\nb")).ok


async def test_a_long_list_is_cut_and_says_so(workspace: Path) -> None:
    for number in range(1000):
        (workspace / f"file-with-a-rather-long-name-{number:04}").touch()
    outcome = await called(workspace, "list_files")
    shown = outcome.text.splitlines()
    assert shown[-1] == f"[{1000 - len(shown) + 1} more entries: list a directory of it]"
    assert len(outcome.text) <= MOST_SHOWN + 100


async def test_the_examples_of_the_manual(workspace: Path) -> None:
    examples = "".join(block.text for block in blocks(HOME / "docs/tools.md") if block.language == "pycon")
    for shown in examples.split(">>> ")[1:]:
        call, _, result = shown.partition("\n")
        made = ast.parse(call, mode="eval").body
        assert isinstance(made, ast.Call)
        tool = TOOLS[ast.unparse(made.func)]
        if isinstance(tool, NeedsMachine) and await tool.lacking():
            continue
        arguments = {one.arg or "": ast.literal_eval(one.value) for one in made.keywords}
        assert (await called(workspace, ast.unparse(made.func), **arguments)).text == result.rstrip("\n")
    bash = TOOLS["bash"]
    assert isinstance(bash, Bash)
    await bash.close()


# Searching ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def searched(workspace: Path) -> Path:
    (workspace / "b").mkdir()
    (workspace / "a.txt").write_bytes(b"First\r\nsecond [x]\nTHIRD\n")
    (workspace / "b" / "c.txt").write_text("a third\nStraße\n" + "y" * 5000 + " third")
    (workspace / "binary").write_bytes(b"third\x00")
    (workspace / ".hidden").write_text("third")
    (workspace / "latin").write_bytes(b"third \xe9")
    return workspace


def has_rg() -> bool:
    return any((Path(place) / "rg").exists() for place in os.environ["PATH"].split(os.pathsep))


needs_rg = pytest.mark.skipif(not has_rg(), reason="ripgrep (rg) is not installed")

FOUND = [
    ("third", {}, [".hidden:1:third", "b/c.txt:1:a third", "b/c.txt:3:" + "y" * 300, "latin:1:third \ufffd"]),
    ("third", {"path": "b"}, ["b/c.txt:1:a third", "b/c.txt:3:" + "y" * 300]),
    ("third", {"path": "b/c.txt"}, ["b/c.txt:1:a third", "b/c.txt:3:" + "y" * 300]),
    ("THIRD", {}, ["a.txt:3:THIRD"]),
    ("First", {}, ["a.txt:1:First"]),
    ("Straße", {}, ["b/c.txt:2:Straße"]),
    ("straße", {"ignore_case": True}, ["b/c.txt:2:Straße"]),
    ("nothing like it", {}, ["[no line was found]"]),
]


@pytest.mark.parametrize(("text", "arguments", "lines"), [*FOUND, ("[x]", {}, ["a.txt:2:second [x]"])])
async def test_texts(searched: Path, text: str, arguments: dict[str, object], lines: list[str]) -> None:
    assert (await called(searched, "search_files", text=text, **arguments)).text.split("\n") == lines


@needs_rg
@pytest.mark.parametrize(
    ("text", "arguments", "lines"),
    [
        *FOUND,
        (r"^sec.*\[x\]$", {}, ["a.txt:2:second [x]"]),
        ("t$", {"path": "."}, ["a.txt:1:First"]),
        ("-e", {}, ["[no line was found]"]),
    ],
)
async def test_expressions(searched: Path, text: str, arguments: dict[str, object], lines: list[str]) -> None:
    assert (await called(searched, "search_files", text=text, regex=True, **arguments)).text.split("\n") == lines


@needs_rg
@pytest.mark.parametrize(
    ("text", "said"), [("(", "unclosed group"), ("(?=x)", "look-around"), ("((a{99}){99}){99}", "size")]
)
async def test_what_is_no_expression_is_explained(searched: Path, text: str, said: str) -> None:
    outcome = await called(searched, "search_files", text=text, regex=True)
    assert not outcome.ok
    assert said in outcome.text


async def test_without_ripgrep_there_are_no_expressions(searched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    outcome = await called(searched, "search_files", text="th.*", regex=True)
    assert not outcome.ok
    assert "search for a text" in outcome.text
    assert (await called(searched, "search_files", text="Fir")).text == "a.txt:1:First"


@needs_rg
@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab \r\n", max_size=12), min_size=1, max_size=80), st.text("ab ", min_size=1, max_size=2))
@example(["a\n"] * 80, "a")
def test_ripgrep_finds_the_lines_that_we_find(files: list[str], text: str) -> None:
    async def both(place: Path) -> list[ToolOutcome]:
        return [await called(place, "search_files", text=text, regex=regex) for regex in (False, True)]

    with TemporaryDirectory() as place:
        for number, content in enumerate(files):
            (Path(place) / f"{number:02}").write_bytes(content.encode())
        ours, its = asyncio.run(both(Path(place)))
    assert ours == its


@needs_rg
@pytest.mark.parametrize("regex", [False, True])
async def test_no_text_and_no_expression_takes_for_ever(workspace: Path, regex: bool) -> None:
    (workspace / "file").write_text("a" * 2_000_000 + "!")
    outcome = await called(workspace, "search_files", text="(a+)+$", regex=regex)
    assert outcome == ToolOutcome("[no line was found]")


@pytest.mark.parametrize("regex", [False, pytest.param(True, marks=needs_rg)])
async def test_a_search_that_finds_too_much_says_so(workspace: Path, regex: bool) -> None:
    for number in range(100):
        (workspace / f"{number:03}").write_text("found\n" * 10)
    shown = (await called(workspace, "search_files", text="found", regex=regex)).text.splitlines()
    assert shown[199:] == ["019:10:found", "[there are more lines: search for something rarer, or in a directory]"]


# What they refuse ---------------------------------------------------------------------------------------------------


def special(workspace: Path, outside: Path) -> dict[str, str]:
    """What must not be opened, by path, with the word that says why."""
    (workspace / "real").mkdir()
    (workspace / "file").symlink_to(outside / "secret.txt")
    (workspace / "dir").symlink_to(outside)
    (workspace / "up").symlink_to("..")
    (workspace / "self").symlink_to("self")
    (workspace / "inside").symlink_to("real")
    (workspace / "hard").hardlink_to(outside / "secret.txt")
    os.mkfifo(workspace / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(workspace)  # the path of a socket is short
        server.bind("socket")
        os.chdir(here)
    return {
        "file": "link",
        "dir": "",
        "dir/secret.txt": "links are not followed",
        "up": "",
        "up/outside/secret.txt": "links are not followed",
        "self": "link",
        "inside/x": "links are not followed",
        "hard": "more than one name",
        "fifo": "FIFO",
        "fifo/x": "not a directory",
        "socket": "socket",
        "real": "directory",
        ".": "",
        "..": "'..'",
        "../outside/secret.txt": "'..'",
        "real/../../outside/secret.txt": "'..'",
        str(outside / "secret.txt"): "relative",
        "/etc/passwd": "relative",
        "//etc/passwd": "relative",
        "/proc/self/root/etc/passwd": "relative",
        "x" * 300: "too long",
        "x/" * 40: "parts",
        "a\x00b": "NUL",
        "\udcff": "character",
        ".switchboard-x": "not for use",
    }


async def test_special_files_and_paths_are_refused(workspace: Path, outside: Path) -> None:
    before = contents(outside)
    for path, why in special(workspace, outside).items():
        for name, more in (("read_file", {}), ("write_file", {"content": "x"})):
            outcome = await called(workspace, name, path=path, **more)
            assert not outcome.ok, (name, path)
            assert why in outcome.text
            assert CANARY not in outcome.text
    assert contents(outside) == before


async def test_links_are_neither_searched_nor_listed_through(workspace: Path, outside: Path) -> None:
    special(workspace, outside)
    listed = await called(workspace, "list_files", recursive=True)
    assert CANARY not in listed.text
    assert "dir (a symbolic link, which is not followed)\n" in listed.text
    assert "fifo (a FIFO)\n" in listed.text
    for regex in (False, *([True] if has_rg() else [])):
        assert (await called(workspace, "search_files", text="CANARY", regex=regex)).text == "[no line was found]"
        assert not (await called(workspace, "search_files", text="CANARY", regex=regex, path="dir")).ok
    assert not (await called(workspace, "list_files", path="dir")).ok
    assert not (await called(workspace, "list_files", path="up")).ok


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make devices")
async def test_devices_are_refused(workspace: Path) -> None:
    for name, minor in (("null", 3), ("zero", 5)):
        try:
            os.mknod(workspace / name, 0o20666, os.makedev(1, minor))
        except PermissionError:
            pytest.skip("devices cannot be made here")
    for name in ("null", "zero"):
        assert "a device" in (await called(workspace, "read_file", path=name)).text
        assert "a device" in (await called(workspace, "write_file", path=name, content="x")).text
    assert (await called(workspace, "search_files", text="x")).text == "[no line was found]"


@pytest.mark.parametrize("begins", [b"", b"text\n" * 10])
async def test_a_sparse_file_of_a_terabyte_costs_nothing(workspace: Path, begins: bytes) -> None:
    (workspace / "huge").write_bytes(begins)
    os.truncate(workspace / "huge", TERABYTE)
    assert "binary" in (await called(workspace, "read_file", path="huge")).text
    assert (await called(workspace, "list_files")).text == f"huge ({TERABYTE} bytes)"
    found = await called(workspace, "search_files", text="text")
    assert found.text == f"[no line was found]\n[1 files were not searched: they have more than {MOST_SEARCHED} bytes]"
    assert (await called(workspace, "write_file", path="small", content="fits")).ok
    assert (await called(workspace, "write_file", path="huge", content="short")).ok
    assert (workspace / "huge").read_text() == "short"


async def test_a_file_is_read_only_so_far(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchboard.tools.files.MOST_READ", 1_000_000)
    (workspace / "long").write_text("line\n" * 500_000)
    assert (await called(workspace, "read_file", path="long", offset=1000)).ok
    late = await called(workspace, "read_file", path="long", offset=499_000)
    assert not late.ok
    assert "only the first" in late.text


# Any path at all, against an oracle ---------------------------------------------------------------------------------

WORDS = ["", ".", "..", "real", "kept", "file", "dir", "up", "hard", "inside", "secret.txt", "outside", "etc", "passwd"]
PATHS = st.one_of(
    st.lists(st.sampled_from([*WORDS, "x"]), max_size=6).map("/".join),
    st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=4)), max_size=6).map("/".join),
    st.text(string.printable, max_size=20),
)


@contextmanager
def world() -> Iterator[tuple[Path, Path]]:
    with TemporaryDirectory() as place:
        outside, workspace = Path(place) / "outside", Path(place) / "workspace"
        outside.mkdir()
        workspace.mkdir()
        (outside / "secret.txt").write_text(CANARY)
        (outside / CANARY).mkdir()
        special(workspace, outside)
        (workspace / "kept").write_text("kept")
        (workspace / "real" / "kept").write_text("kept")
        yield workspace, outside


def may_be_read(workspace: Path, path: str) -> bool:
    """The oracle, which looks at what the system makes of the path. Nothing changes meanwhile."""
    if path.startswith("/") or ".." in path.split("/") or not path.isprintable():
        return False
    target = workspace / path
    try:
        return str(target) == os.path.realpath(target) and target.is_file() and target.stat().st_nlink == 1
    except (OSError, ValueError):
        return False


@settings(max_examples=150, deadline=None)
@given(PATHS)
@example("real/kept")
@example("./real//./kept")
@example("inside/kept")
@example("real/../kept")
def test_no_path_leaves_the_workspace(path: str) -> None:
    with world() as (workspace, outside):
        before = contents(outside)
        read = asyncio.run(called(workspace, "read_file", path=path))
        assert read.ok == may_be_read(workspace, path)
        assert not read.ok or read.text == "kept"
        asyncio.run(called(workspace, "write_file", path=path, content="written"))
        assert contents(outside) == before
        assert sorted(one.name for one in workspace.parent.iterdir()) == ["outside", "workspace"]
        for name in ("list_files", "search_files"):
            arguments = {"text": "CANARY"} if name == "search_files" else {"recursive": True}
            outcome = asyncio.run(called(workspace, name, path=path, **arguments))
            assert CANARY not in outcome.text


# What is exchanged while it is used --------------------------------------------------------------------------------


_EXCHANGING = """
import ctypes, mmap, os, struct, sys
one, other, count = sys.argv[1:]
renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
with open(count, "r+b") as file, mmap.mmap(file.fileno(), 8) as seen:
    swaps = 0
    while os.getppid() == int(os.environ["PARENT"]):
        assert renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2) == 0, ctypes.get_errno()
        swaps += 1
        seen[:] = struct.pack("=Q", swaps)
"""
"""A process of its own, so that it goes on between any two calls of the system here. 2 is RENAME_EXCHANGE: there is
always something at either place."""


@contextmanager
def exchanging(one: Path, other: Path) -> Iterator[Callable[[], int]]:
    """Something that exchanges the two all the time; how often it has."""
    with NamedTemporaryFile() as count:
        count.write(bytes(8))
        count.flush()
        argv = (sys.executable, "-c", _EXCHANGING, one, other, count.name)
        with subprocess.Popen(argv, env={"PARENT": str(os.getpid())}) as process:
            try:
                yield lambda: int.from_bytes(Path(count.name).read_bytes(), sys.byteorder)
                assert process.poll() is None
            finally:
                process.kill()


async def many(act: Callable[[], Awaitable[ToolOutcome]], swaps: Callable[[], int], least: int = 2000) -> Counter[bool]:
    """How often `act` went well and how often not, in that many rounds and exchanges at least."""
    seen = Counter[bool]()
    while seen.total() < least or swaps() < least:
        seen[(await act()).ok] += 1
    return seen


KINDS = ["directory", "file", "hard link"]


def exchangeable(workspace: Path, outside: Path, kind: str) -> tuple[Path, Path]:
    """A directory or file of the workspace, and a link of some kind to one outside."""
    (workspace / "d").mkdir(parents=True)
    (workspace / "d" / "file").write_text("inside")
    (outside / "file").write_text(CANARY)
    link = workspace / "link"
    if kind == "hard link":
        link.hardlink_to(outside / "file")
    else:
        link.symlink_to(outside if kind == "directory" else outside / "file")
    return workspace / ("d" if kind == "directory" else "d/file"), link


@pytest.mark.parametrize("kind", KINDS)
async def test_no_exchange_makes_reading_leave_the_workspace(workspace: Path, outside: Path, kind: str) -> None:
    async def use() -> ToolOutcome:
        outcome = await called(workspace, "read_file", path="d/file")
        assert outcome.text == "inside" if outcome.ok else CANARY not in outcome.text
        found = await called(workspace, "search_files", text="CANARY")
        assert found.text == "[no line was found]"
        return outcome

    with exchanging(*exchangeable(workspace, outside, kind)) as swaps:
        seen = await many(use, swaps)
    assert seen[True]
    assert seen[False]


@pytest.mark.parametrize("kind", KINDS)
async def test_no_exchange_makes_writing_leave_the_workspace(workspace: Path, outside: Path, kind: str) -> None:
    """In a few rounds, because a write may replace the link itself."""
    for number in range(10):
        place = workspace / str(number)
        pair = exchangeable(place, outside, kind)
        before = contents(outside)

        async def use(place: Path = place) -> ToolOutcome:
            return await called(place, "write_file", path="d/file", content="inside")

        with exchanging(*pair) as swaps:
            await many(use, swaps, 100)
        assert contents(outside) == before


@needs_rg
async def test_no_exchange_makes_ripgrep_leave_the_workspace(workspace: Path, outside: Path) -> None:
    (workspace / "d").mkdir()
    for number in range(20):
        (workspace / "d" / f"{number}.txt").write_text("inside")
        (outside / f"{number}.txt").write_text(CANARY)
    (workspace / "link").symlink_to(outside)

    async def search() -> ToolOutcome:
        outcome = await called(workspace, "search_files", text="CANARY|inside", regex=True)
        assert CANARY not in outcome.text
        return outcome

    with exchanging(workspace / "d", workspace / "link") as swaps:
        await many(search, swaps, 100)


async def test_a_directory_that_is_replaced_while_it_is_listed(workspace: Path, outside: Path) -> None:
    (workspace / "d" / "e").mkdir(parents=True)
    for number in range(20):
        (workspace / "d" / "e" / f"inside-{number}").touch()
        (outside / f"{CANARY}-{number}").touch()
    (outside / "e").mkdir()
    (outside / "e" / CANARY).touch()
    (workspace / "link").symlink_to(outside)

    async def use() -> ToolOutcome:
        outcome = await called(workspace, "list_files", recursive=True)
        assert outcome.ok
        assert CANARY not in outcome.text
        inner = await called(workspace, "list_files", path="d/e")
        assert CANARY not in inner.text
        return inner

    with exchanging(workspace / "d", workspace / "link") as swaps:
        seen = await many(use, swaps, 1000)
    assert seen[True]


async def test_a_fifo_in_the_place_of_a_file_blocks_nothing(workspace: Path) -> None:
    (workspace / "file").write_text("inside")
    os.mkfifo(workspace / "fifo")

    async def use() -> ToolOutcome:
        await called(workspace, "search_files", text="inside")
        await called(workspace, "list_files")
        outcome = await called(workspace, "read_file", path="file")
        assert not outcome.ok or outcome.text == "inside"
        return outcome

    with exchanging(workspace / "file", workspace / "fifo") as swaps:
        await many(use, swaps, 1000)


async def test_a_fifo_is_not_even_opened(workspace: Path) -> None:
    os.mkfifo(workspace / "fifo")

    def write() -> None:
        (workspace / "fifo").write_text("still here")

    writing = asyncio.create_task(asyncio.to_thread(write))
    for _ in range(200):
        assert not (await called(workspace, "read_file", path="fifo")).ok
    reading = asyncio.create_task(asyncio.to_thread((workspace / "fifo").read_text))
    await writing
    assert await reading == "still here"


# Writing whole or not at all ---------------------------------------------------------------------------------------


async def test_no_reader_sees_half_a_file(workspace: Path) -> None:
    whole = {"a" * 300_000, "b" * 300_000}
    (workspace / "file").write_text(min(whole))
    done = threading.Event()

    def read() -> set[str]:
        seen = set[str]()
        while not done.is_set():
            seen.add((workspace / "file").read_text())
        return seen

    reader = asyncio.create_task(asyncio.to_thread(read))
    for content in [*whole] * 50:
        assert (await called(workspace, "write_file", path="file", content=content)).ok
    done.set()
    assert await reader <= whole
    assert names(workspace) == ["file"]


def test_a_write_that_is_stopped_leaves_nothing(workspace: Path) -> None:
    (stop := StopSignal()).ask()
    (workspace / "file").write_text("before")
    with pytest.raises(Stopped):
        write(workspace, FileToWrite(("file",), b"after", KEY), stop)
    assert contents(workspace) == {"file": b"before"}


async def test_what_an_interrupted_step_left_is_replaced_when_it_runs_again(workspace: Path) -> None:
    (workspace / f".switchboard-{KEY}.tmp").write_text("half")
    assert (await called(workspace, "list_files")).text == "[no files]"
    assert (await called(workspace, "search_files", text="half")).text == "[no line was found]"
    assert (await called(workspace, "write_file", path="file", content="whole")).ok
    assert contents(workspace) == {"file": b"whole"}


async def test_the_quota_of_a_workspace(workspace: Path) -> None:
    async def written(path: str, size: int) -> ToolOutcome:
        scope = scope_of(workspace, quota=100_000)
        return await call_tool(TOOLS["write_file"], {"path": path, "content": "x" * size}, scope)

    for number in range(4):
        assert (await written(f"d/{number}", 20_000)).ok
    full = await written("d/5", 20_000)
    assert not full.ok
    assert "the workspace is full" in full.text
    assert len(names(workspace / "d")) == 4
    too_long = await written("e", MOST_WRITTEN + 1)
    assert "at most" in too_long.text


async def test_a_workspace_with_too_many_files_is_told(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchboard.tools.workspace.MOST_ENTRIES", 10)
    for number in range(11):
        (workspace / f"{number}").touch()
    for name, more in (
        ("list_files", {}),
        ("search_files", {"text": "x"}),
        ("write_file", {"path": "x", "content": ""}),
    ):
        outcome = await called(workspace, name, **more)
        assert not outcome.ok
        assert "too many" in outcome.text


# Removing results ----------------------------------------------------------------------------------------------------


def test_removing_results_follows_no_link_and_waits_for_no_fifo(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("keep")
    results = workspace / "tool-results" / str(TURN)
    (results / "deep" / "er").mkdir(parents=True)
    (results / "file.txt").write_text("gone")
    (results / "deep" / "er" / "file").write_text("gone")
    (results / "link").symlink_to(outside)
    (results / "hard").hardlink_to(outside / "file")
    os.mkfifo(results / "fifo")
    assert turns_with_results(workspace, StopSignal()) == [TURN]
    remove_results(workspace, TURN, StopSignal())
    assert contents(workspace) == {"tool-results": None}
    assert contents(outside) == {"file": b"keep"}


def test_links_and_fifos_in_place_of_results_lead_nowhere(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / str(TURN)).mkdir(parents=True)
    (outside / str(TURN) / "file").write_text("keep")
    assert turns_with_results(workspace, StopSignal()) == []
    (workspace / "tool-results").mkdir()
    place = workspace / "tool-results" / str(TURN)
    makers: list[Callable[[], None]] = [lambda: place.symlink_to(outside), lambda: os.mkfifo(place), place.touch]
    for make in makers:
        make()
        assert turns_with_results(workspace, StopSignal()) == []
        remove_results(workspace, TURN, StopSignal())  # as if it had been exchanged meanwhile
        assert not place.is_symlink()
        assert not place.exists()
    (workspace / "tool-results").rmdir()
    (workspace / "tool-results").symlink_to(outside)
    with pytest.raises(OSError, match=r"Not a directory|symbolic"):
        turns_with_results(workspace, StopSignal())
    with pytest.raises(OSError, match=r"Not a directory|symbolic"):
        remove_results(workspace, TURN, StopSignal())
    assert contents(outside) == {str(TURN): None, f"{TURN}/file": b"keep"}


def test_results_are_removed_however_deeply_they_are_nested(workspace: Path) -> None:
    deep = workspace / "tool-results" / str(TURN) / "/".join("d" * 400)
    deep.mkdir(parents=True)
    remove_results(workspace, TURN, StopSignal())
    assert not (workspace / "tool-results" / str(TURN)).exists()


# Stopping -----------------------------------------------------------------------------------------------------------


async def test_who_is_cancelled_waits_until_the_work_has_stopped() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(stop: StopSignal) -> None:
        begun.set()
        try:
            while True:
                stop.check()
        finally:
            ended.set()

    running = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(begun.wait)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


@needs_rg
async def test_a_search_that_is_cancelled_leaves_no_ripgrep(workspace: Path) -> None:
    # ripgrep has no short cut through this: it would take many minutes.
    (workspace / "file").write_bytes(random.Random(1).randbytes(3_000_000).translate(b"ab" * 128))

    def started() -> bool:
        children = " ".join(one.read_text() for one in Path("/proc/self/task").glob("*/children")).split()
        return any(Path(f"/proc/{pid}/comm").read_text() == "rg\n" for pid in children)

    searching = asyncio.create_task(
        called(workspace, "search_files", text="[ab]*a[ab]{300}[^ab]", regex=True),
    )
    while not started() and not searching.done():
        await asyncio.sleep(0)
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching
    assert not started()


async def test_descriptors_are_closed(workspace: Path, outside: Path) -> None:
    paths = [*special(workspace, outside), "kept"]
    (workspace / "kept").write_text("kept")
    opened = len(names(Path("/proc/self/fd")))
    for _ in range(20):
        for path in paths:
            await called(workspace, "read_file", path=path)
            await called(workspace, "write_file", path=path, content="kept")
            await called(workspace, "list_files", path=path, recursive=True)
        await called(workspace, "search_files", text="kept", regex=has_rg())
    assert len(names(Path("/proc/self/fd"))) <= opened + 2


def test_what_a_reader_has_apart_has_quotas_of_its_own(tmp_path: Path) -> None:
    def put(*parts: str) -> None:
        write(tmp_path, FileToWrite(parts, b"x" * 20_000, KEY), StopSignal(), 50_000)

    put("inbox", "1.png")
    put("inbox", "2.png")
    with pytest.raises(ToolRefusal, match="is full"):
        put("inbox", "3.png")
    put("tool-results", "turn", "read_file.txt")
    assert sorted(names(tmp_path / "inbox")) == ["1.png", "2.png"]
