"""`make local-model-report`: what the local model gets done in an installation as a user has it, task by task.

Each message of `messages.json` is sent once; its result is a line of a JSON-lines file, so a report that was
interrupted goes on where it was. Other work on the machine makes it slower, and the model's answers no different.
`--sentences --times 10` sends the four of the household ten times, each in a conversation of its own.
`--checkout` measures another checkout of Switchboard (with its own `.venv`), such as an older release.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import httpx
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tests.local_model.house import House, Places, running_house
from tests.local_model.pages import serve_pages
from tests.local_model.places import BUILD, missing
from tests.local_model.server import local_model
from tests.local_model.tasks import GOALS, PRIVATE, SENTENCES, TASKS, Asked, Half, Judged, messages

_HERE: Final = Path(__file__).resolve().parents[2]
_HALVES: Final[Sequence[Half]] = ("tune", "measure")


class Result(Struct, frozen=True):
    """What became of one message, as a line of the file of results."""

    label: str
    task: str
    half: Half
    id: str
    ok: bool
    raw: bool
    seconds: float
    why: str = ""
    answer: str = ""


class Share(Struct, frozen=True):
    """How many messages of a task succeeded, in each half, and `goal` of all (0: it has none)."""

    task: str
    tune: str
    measure: str
    ok: int
    of: int
    goal: int
    seconds: float


def main() -> None:
    """Run what is missing, then print the shares."""
    # Otherwise the installation and the server of the model would go on without it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped; the next run goes on from here"))
    options = _options()
    label = options.label or _label(options)
    done = [one for one in _read(options.results) if one.label == label]
    wanted = list(_wanted(options))
    left = [one for one in wanted if one[2].id not in {result.id for result in done}]
    if left:
        done += _run(left, options, label)
    ids = {asked.id for _, _, asked in wanted}
    _print(label, [one for one in done if one.id in ids], as_json=options.json)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.local_model.report", description=__doc__)
    parser.add_argument("--only", choices=list(TASKS), action="append", help="a task; repeat it for several")
    parser.add_argument("--half", choices=_HALVES, help="only the messages to tune with, or only the others")
    parser.add_argument("--id", action="append", help="only this message; repeat it for several")
    parser.add_argument(
        "--sentences", action="store_const", dest="id", const=[*SENTENCES], help="only the four of the household"
    )
    parser.add_argument("--times", type=int, default=1, help="how often each is sent")
    parser.add_argument("--calls", choices=["native", "schema"], default="", help="the model's setting `calls`")
    parser.add_argument("--checkout", type=Path, default=_HERE, help="the checkout to measure; by default this one")
    parser.add_argument("--label", default="", help="a name for this state; by default the commit")
    parser.add_argument("--url", default="", help="a server with a model, `http://…/v1`, instead of the local model")
    parser.add_argument("--results", type=Path, default=BUILD / "report.jsonl", help="the file of results")
    parser.add_argument("--json", action="store_true", help="print the shares as JSON")
    return parser.parse_args()


def _label(options: argparse.Namespace) -> str:
    command = ["git", "-C", str(options.checkout), "describe", "--always", "--dirty", "--abbrev=10"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return f"{commit}-{options.calls}" if options.calls else commit


def _wanted(options: argparse.Namespace) -> Iterator[tuple[str, Half, Asked]]:
    for task, halves in messages().items():
        for half in _HALVES:
            if (not options.only or task in options.only) and options.half in {None, half}:
                chosen = [one for one in halves[half] if not options.id or one.id in options.id]
                yield from ((task, half, again) for one in chosen for again in _repeated(one, options.times))


def _repeated(asked: Asked, times: int) -> Iterator[Asked]:
    """The message so often; the further ones have a number in their id."""
    yield asked
    yield from (replace(asked, id=f"{asked.id}#{number}") for number in range(2, times + 1))


def _read(results: Path) -> list[Result]:
    lines = results.read_text().splitlines() if results.exists() else []
    return [msgspec.json.decode(line, type=Result) for line in lines]


def _run(left: Iterable[tuple[str, Half, Asked]], options: argparse.Namespace, label: str) -> list[Result]:
    if not options.url and missing():
        sys.exit(missing())
    found: list[Result] = []
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="local-model-", dir="/var/tmp")))
        log = options.results.with_name("llama-server.log")
        model = options.url or stack.enter_context(local_model(log))
        pages = stack.enter_context(serve_pages())
        programs = options.checkout / ".venv" / "bin"
        private = any(task in PRIVATE for task, _, _ in left)  # which older releases do not know
        house = stack.enter_context(running_house(data, Places(programs, model, pages, options.calls, private)))
        lines = stack.enter_context(options.results.open("a"))
        for task, half, asked in left:
            began = time.monotonic()
            judged = _judged(house, task, asked)
            seconds = round(time.monotonic() - began, 1)
            why = "" if judged.ok else judged.why
            found.append(Result(label, task, half, asked.id, judged.ok, judged.raw, seconds, why, judged.answer))
            lines.write(msgspec.json.encode(found[-1]).decode() + "\n")
            lines.flush()
            _tell(found[-1])
    return found


def _judged(house: House, task: str, asked: Asked) -> Judged:
    """The judgement; what the installation answers with an error is not done. Raises if it is not there any more."""
    try:
        return TASKS[task](house, asked)
    except (httpx.HTTPStatusError, httpx.TimeoutException) as error:
        return Judged(False, f"{type(error).__name__}: {error}")


def _tell(result: Result) -> None:
    marks = ("" if result.ok else f": {result.why}") + (" (raw markup)" if result.raw else "")
    print(f"{'ok  ' if result.ok else 'MISS'} {result.id} {result.seconds:.0f} s{marks}", file=sys.stderr, flush=True)


def _print(label: str, results: Sequence[Result], *, as_json: bool) -> None:
    shares, raw = list(_shares(results)), sum(one.raw for one in results)
    if as_json:
        told = {"label": label, "raw": raw, "tasks": [msgspec.to_builtins(one) for one in shares]}
        print(json.dumps(told))
        return
    print(f"{'task':<14}{'tune':>8}{'measure':>9}{'all':>8}  goal   seconds each   ({label})")
    for one in shares:
        goal = f"{one.goal}/{len(_all(one.task))}" if one.goal else "-"
        print(f"{one.task:<14}{one.tune:>8}{one.measure:>9}{f'{one.ok}/{one.of}':>8}  {goal:<6} {one.seconds:.0f}")
    print(f"raw markup that reached a person: {raw} of {len(results)} (goal 0)")


def _all(task: str) -> list[Asked]:
    return [one for half in messages()[task].values() for one in half]


def _shares(results: Sequence[Result]) -> Iterator[Share]:
    for task in TASKS:
        mine = [one for one in results if one.task == task]
        if mine:
            tuned, measured = (_share([one for one in mine if one.half == half]) for half in _HALVES)
            seconds = sum(one.seconds for one in mine) / len(mine)
            yield Share(task, tuned, measured, sum(one.ok for one in mine), len(mine), GOALS.get(task, 0), seconds)


def _share(results: Sequence[Result]) -> str:
    return f"{sum(one.ok for one in results)}/{len(results)}" if results else "-"


if __name__ == "__main__":
    main()
