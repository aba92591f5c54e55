"""`make release`: what must be true before a version is tagged, and then the tag.

In: the checkout, the targets of the Makefile that must pass; out: the statements of this release recorded, the wheel
by `make dist`, an annotated tag with the notes of the changelog. Begun again, it leaves out what has passed on the same
source: all of it takes two hours. With `--dry-run` it says what it would do, and whether it could.
Next: the operator pushes the tag.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from tests.houses import RELEASES

HOME: Final = Path(__file__).parent.parent
_HEADING: Final = re.compile(r"^## (?P<heading>.+)\n(?P<notes>(?:(?!## ).*\n?)*)", re.MULTILINE)


def notes(changelog: str) -> tuple[str, str]:
    """The topmost heading of the changelog, and what stands below it. Raises `ValueError` if there is none."""
    top = _HEADING.search(changelog)
    if top is None:
        raise ValueError("CHANGELOG.md has no heading")
    return top["heading"].strip(), top["notes"].strip()


def obstacles(version: str, changelog: str) -> list[str]:
    """What stands in the way of tagging this version, without the checks."""
    heading, text = notes(changelog)
    tag = f"v{version}"
    return [
        said
        for wrong, said in (
            (bool(_git("status", "--porcelain")), "the tree is not clean: commit what has changed"),
            (_git("branch", "--show-current") != "main", "this is not the branch main"),
            (heading != version, f"pyproject.toml says {version}, the topmost heading of CHANGELOG.md {heading}"),
            (not text, f"CHANGELOG.md says nothing about {heading}"),
            (bool(_git("tag", "--list", tag)), f"there is a tag {tag} already"),
            (not (RELEASES / f"{version}.dump").exists(), f"later releases lack a database of {version}: make house"),
        )
        if wrong
    ]


def release(targets: list[str], *, dry: bool) -> int:
    """Check, record, build, tag; the exit code. Nothing is tagged unless all of it has worked."""
    version: str = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    changelog = (HOME / "CHANGELOG.md").read_text(encoding="utf-8")
    found = obstacles(version, changelog)
    for one in found:
        _say(f"not yet: {one}")
    if found and not dry:
        return 1
    _run(("make", "statements"), dry=dry)
    if not dry and _git("status", "--porcelain"):
        _say("the statements of this release are recorded now: commit tests/fixtures/statements.json, and begin again")
        return 1
    for target in [*targets, "dist"]:
        _check(target, dry=dry)
    text = notes(changelog)[1]
    tag = ("git", "tag", "--annotate", "--cleanup=verbatim", f"v{version}", "--message", f"{version}\n\n{text}\n")
    _run(tag, dry=dry)
    _say(f"\n{text}" if dry else f"next: git push origin v{version}, and what is in dist/")
    return 1 if found else 0


def _check(target: str, *, dry: bool) -> None:
    """Run the target, unless it is a long one that has passed on the same source: a mended test voids no hours.

    `ci` and `dist` are of this very commit: they run all tests as they are now, and make what is published.
    """
    passed = HOME / _git("rev-parse", "--git-path", "passed")
    line = f"{_git('rev-parse', 'HEAD:src')} {target}\n"
    if target not in {"ci", "dist"} and passed.exists() and line in passed.read_text(encoding="utf-8"):
        _say(f"has passed on this source: make {target}")
        return
    _run(("make", target, "WHAT=all", "SKIPPING=refused"), dry=dry)
    if not dry:
        with passed.open("a", encoding="utf-8") as file:
            file.write(line)


def _run(command: tuple[str, ...], *, dry: bool) -> None:
    _say(f"{'would run' if dry else 'running'}: {' '.join(command).partition(chr(10))[0]}")
    if not dry:
        subprocess.run(command, cwd=HOME, check=True)


def _git(*arguments: str) -> str:
    command = ("/usr/bin/env", "git", *arguments)
    return subprocess.run(command, cwd=HOME, check=True, capture_output=True, text=True).stdout.strip()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        arguments = [argument for argument in sys.argv[1:] if argument != "--dry-run"]
        sys.exit(release(arguments, dry=len(arguments) < len(sys.argv) - 1))
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error.cmd[0]} {error.cmd[1]} has failed: nothing is tagged")
