"""`switchboard bench`: measure it, as ratios to a baseline of the same run.

Called by `main.py`. In: options; out: a table (or JSON). The measurements are in `bench/`.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer
from msgspec.structs import asdict, replace

from switchboard.app.settings import load_settings
from switchboard.cli.output import FAILED, OK, errors, exit_unless_ok, out, print_json, table, wants_json
from switchboard.cli.processes.long_running import fast_loop, spare_the_collector
from switchboard.core.memory.settings import find_embedder
from switchboard.distribution import install_command
from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.ports.embedder import EmbeddingFailed

app = typer.Typer(no_args_is_help=True)

_PROMISED_RECALL: Final = 0.95
_PROMISED_MS: Final = 1000.0
"""Within so many milliseconds an edit decides in every process."""
_FAIR: Final = 3.0
"""A flood multiplies the p99 of a quiet sender by no more than this."""

_SHARE: Final = 1 / 3
"""Of a large file, how much a process may hold at a time."""

_OFTEN: Final = 40
"""Of so many statements it is shown how often they were executed."""
_WIDTH: Final = 90

Rounds = Annotated[int, typer.Option(min=1, max=50, help="Rounds; the median counts.")]
Seconds = Annotated[float, typer.Option(min=0.5, max=120, help="Seconds per measurement of a round.")]


@app.command()
def ingest(*, rounds: Rounds = 5, seconds: Seconds = 2.0) -> None:
    """Durable ingest, in batches over MCP and by single POSTs from 64 clients, beside pgbench and an empty endpoint."""
    with _extras():
        from switchboard.bench import ingest as module
    # Its client shares the cores with the measured server.
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        result = runner.run(module.measure(rounds, seconds))
    pgbench, nothing = (lambda r: r.pgbench), (lambda r: r.nothing)
    rows = [
        ("pgbench, 64 clients, single-row inserts", result.rate(pgbench), None, None),
        ("FastAPI endpoint that stores nothing", result.rate(nothing), result.ratio(nothing, pgbench), 1.0),
        *(
            (f"ingest_batch over MCP, {size} messages", *_rate_and_ratios(result, lambda r, size=size: r.batches[size]))
            for size in module.BATCHES
        ),
        ("single POSTs, 64 clients", *_rate_and_ratios(result, lambda r: r.single)),
    ]
    _show(("what", "per second", "x pgbench", "x empty endpoint"), rows)


def _rate_and_ratios(result: Any, of: Any) -> tuple[float, float, float]:
    return result.rate(of), result.ratio(of, lambda r: r.pgbench), result.ratio(of, lambda r: r.nothing)


@app.command()
def route(
    *,
    sizes: Annotated[str, typer.Option(help="Numbers of rules, separated by commas.")] = "10,1000,100000,1000000",
) -> None:
    """Decisions by rules: a hit, a miss, three levels of teams, beside a linear scan and two rule engines; changes."""
    with _extras():
        from switchboard.bench import route as module
    measured = [asdict(row) for row in module.measure(_numbers(sizes))]
    _show(tuple(measured[0]), [tuple(row.values()) for row in measured])


def _numbers(sizes: str) -> list[int]:
    try:
        numbers = [int(size) for size in sizes.split(",")]
    except ValueError:
        numbers = []
    if min(numbers, default=0) < 10:
        raise typer.BadParameter("give numbers of at least 10, such as 10,1000", param_hint="--sizes")
    return numbers


@app.command()
def turn(*, rounds: Rounds = 3, seconds: Seconds = 5.0) -> None:
    """From a message in to its reply in the outbox at 200 a second; and jobs a second with two workers."""
    with _extras():
        from switchboard.bench import turn as module
    result = asyncio.run(module.measure(rounds, seconds))
    rows = [
        ("message in → reply in the outbox at 200/s, p50", f"{result.p50_ms:.1f} ms", None),
        ("message in → reply in the outbox at 200/s, p99", f"{result.p99_ms:.1f} ms", None),
        ("pgbench, 64 clients, single-row inserts", f"{result.pgbench_per_s:.0f} /s", 1.0),
        (
            "jobs, enqueue → done, 2 workers, 500 conversations",
            f"{result.jobs_per_s:.0f} /s",
            result.jobs_per_s / result.pgbench_per_s,
        ),
    ]
    _show(("what", "measured", "x pgbench"), rows)


@app.command()
def fair(*, rounds: Rounds = 3, seconds: Seconds = 10.0) -> None:
    """How long a quiet sender waits for replies while others flood the workers, compared with no flood.

    Exit code 1: its p99 under a flood is more than three times that without.
    """
    with _extras():
        from switchboard.bench import fair as module
    result = asyncio.run(module.measure(rounds, seconds))
    ratios = {name: result.ratio(name) for name in result.p99_ms}
    rows = [
        (name, *(f"{statistics.median(of[name]):,.0f} ms" for of in (result.p50_ms, result.p99_ms)), ratio)
        for name, ratio in ratios.items()
    ]
    _show(("while", "p50", "p99", "x p99 without a flood"), rows)
    exit_unless_ok(OK if max(ratios.values()) <= _FAIR else FAILED)


@app.command()
def floods(
    *,
    seconds: Seconds = 10.0,
    watch: Annotated[float, typer.Option(min=0, max=600, help="Seconds to watch after each flood.")] = 60.0,
    only: Annotated[str, typer.Option(help="Floods, separated by semicolons; all by default.")] = "",
) -> None:
    """Floods of all kinds: memory, `/health`, other people's chats and lines in the log, meanwhile and after.

    Exit code 1: over 50 MB, a p99 of `/health` over 250 ms, chats twice as slow as beside an idle client, a traceback,
    or over 60 lines a minute.
    """
    with _extras():
        from switchboard.bench import floods as module
    plan = module.FloodPlan(seconds, watch, tuple(name.strip() for name in only.split(";") if name.strip()))
    results = asyncio.run(module.measure(plan, errors().print))
    rows = [
        (
            one.name,
            one.most_mb,
            one.settled_mb,
            *(answers.p99("health") for answers in (one.idle, one.during, one.after)),
            *(answers.p50("chats") for answers in (one.idle, one.during, one.after)),
            *(answers.p99("chats") for answers in (one.idle, one.during)),
            one.log_lines,
            one.tracebacks,
            one.sent_mb,
        )
        for one in results
    ]
    health = ("health p99 idle", "health during", "health after")
    chats = ("chat p50 idle", "chats during", "chats after", "chat p99 idle", "chat p99 during")
    _show(("flood", "MB", "MB 10 s after", *health, *chats, "log lines", "tracebacks", "sent MB"), rows)
    exit_unless_ok(OK if all(module.is_borne(one, (seconds + watch) / 60) for one in results) else FAILED)


@app.command()
def start(*, rounds: Rounds = 3) -> None:
    """Start-up, database included, from nothing and warm; resident memory without the database."""
    with _extras():
        from switchboard.bench import start as module
    result = asyncio.run(module.measure(rounds))
    rows = [
        ("first start until ready", f"{result.cold_s:.2f} s", result.cold_s / result.imports_s),
        ("later start until ready", f"{result.warm_s:.2f} s", result.warm_s / result.imports_s),
        ("later start until Telegram is polled", f"{result.polled_s:.2f} s", result.polled_s / result.imports_s),
        ("a Python process that imports FastAPI, uvicorn, asyncpg", f"{result.imports_s:.2f} s", 1.0),
        ("resident memory of server and worker", f"{result.memory_mb or 0:.0f} MB", None),
    ]
    _show(("what", "measured", "x imports"), rows)


@app.command()
def footprint(
    *,
    idle: Annotated[float, typer.Option(min=3, max=3600, help="Seconds from the start until it is looked at.")] = 60.0,
    turns: Annotated[int, typer.Option(min=0, max=10_000, help="Turns, one after the other.")] = 40,
    inside: Annotated[bool, typer.Option(help='Also a house with connectors = "inside", in the same run.')] = False,
) -> None:
    """Memory (PSS), processes, statements and CPU of `up` with Telegram, a model and the database: idle, after turns.

    Platform and model are servers on this machine, which do not count. Linux only.
    """
    with _extras():
        from switchboard.bench import footprint as module
    workload = module.FootprintWorkload(idle_s=idle, turns=turns)
    result = asyncio.run(module.measure(workload))
    houses = {"": result}
    if inside:
        houses["inside, "] = asyncio.run(module.measure(replace(workload, inside=True)))
    rows: list[tuple[object, ...]] = [
        ("a Python process that imports FastAPI, uvicorn, asyncpg", result.baseline_mb, 1.0, 1)
    ]
    for house, one in houses.items():
        for state, kinds in ((f"{house}idle", one.idle), (f"{house}after {turns} turns", one.used)):
            parts = [*((f"{state}: {kind}", each.memory_mb, each.processes) for kind, each in kinds.items())]
            parts.append((f"{state}: all", sum(mb for _, mb, _ in parts), sum(count for *_, count in parts)))
            rows += [(what, mb, mb / one.baseline_mb, count) for what, mb, count in parts]
        rows += [
            (f"{house}idle: statements a second", one.statements_a_second, None, None),
            (f"{house}idle: CPU seconds a minute", one.cpu_s_a_minute, None, None),
        ]
    _show(("what", "MB or figure", "x imports", "processes"), rows)
    if wants_json():
        return
    often = sorted(result.statements.items(), key=lambda one: -one[1])[:_OFTEN]
    _show(("statement of the idle house", "times"), [(text[:_WIDTH], count) for text, count in often])


@app.command()
def files(
    *,
    megabytes: Annotated[float, typer.Option(min=1, max=10_000, help="Size of the file, in 10^6 bytes.")] = 100,
) -> None:
    """A large file through connector and server to a butler: how much more memory each takes than for a small one.

    Exit code 1: more than a third of the file.
    """
    with _extras():
        from switchboard.bench import files as module
    result = asyncio.run(module.measure(megabytes))
    rows = [
        ("connector, file in", result.connector_mb, result.in_s),
        ("server, file in", result.server_in_mb, result.in_s),
        ("server, file out", result.server_out_mb, result.out_s),
    ]
    shown = [(what, f"{grew or 0:.1f} MB", (grew or 0) / megabytes, f"{took:.2f} s") for what, grew, took in rows]
    _show(("what", "memory", "x file", "took"), shown)
    exit_unless_ok(OK if all((grew or 0) < megabytes * _SHARE for _, grew, _ in rows) else FAILED)


@app.command()
def modules(
    *,
    sizes: Annotated[str, typer.Option(help="Numbers of cards and of events, separated by commas.")] = "2000,20000",
    calls: Annotated[int, typer.Option(min=1, max=10_000, help="Calls of each kind.")] = 200,
) -> None:
    """Tools that look up people and dates, beside a select of one row; a first sync, beside the bare reading of it.

    Exit code 1: the p50 of a tool is over 15 ms. Twice 20,000 objects are read first, which takes minutes.
    """
    with _extras():
        from switchboard.bench import modules as module
    result = asyncio.run(module.measure_modules(_numbers(sizes), calls))
    rows: list[tuple[object, ...]] = [
        (one.what, one.objects, f"{one.p50_ms:.1f} ms", f"{one.p99_ms:.1f} ms", one.ratio) for one in result.look_ups
    ]
    rows += [(one.what, one.objects, f"{one.per_thousand_s:.2f} s per 1,000", None, one.ratio) for one in result.syncs]
    _show(("what", "objects", "p50, or took", "p99", "x select, or x reading"), rows)
    exit_unless_ok(OK if all(one.p50_ms <= module.GOAL_MS for one in result.look_ups) else FAILED)


@app.command()
def embedder(
    *,
    calls: Annotated[int, typer.Option(min=32, max=10_000, help="Questions, and as many passages.")] = 320,
    name: Annotated[str | None, typer.Option(help="One of `embedders` in the settings, not the local model.")] = None,
) -> None:
    """What makes vectors for memory: start, memory, questions and passages, beside the reading of their words."""
    with _extras():
        from switchboard.bench import embedder as module
    spec = None if name is None else find_embedder(load_settings().embedders, name)
    try:
        result = asyncio.run(module.measure_embedder(calls, spec=spec))
    except EmbeddingFailed as failure:
        raise Unavailable(failure.reason) from failure
    rows: list[tuple[object, ...]] = [
        ("start", f"{result.start_s:.2f} s", None, f"{result.start_cpu_s:.2f} s", None),
        ("memory", None if result.memory_mb is None else f"{result.memory_mb:.0f} MB", None, None, None),
    ]
    rows += [
        (one.what, f"{one.p50_ms:.1f} ms", f"{one.p99_ms:.1f} ms", f"{one.cpu_ms:.1f} ms", one.ratio)
        for one in result.times
    ]
    _show(("what", "p50 of one, or took", "p99", "CPU time", "x reading its words"), rows)


@app.command()
def memory(
    *,
    facts: Annotated[
        list[int] | None,
        typer.Option(min=100, max=1_000_000, metavar="NUMBER", help="How many facts there are; repeatable."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=20, max=10_000, help="Questions for each reader.")] = 240,
) -> None:
    """Search in 1,000 to 100,000 facts, the vector of the question included, by readers who see 0.1 to 100 % of them.

    Exit code 1: one found fewer facts than there are, or fewer than 95 % of the nearest.
    """
    with _extras():
        from switchboard.bench import memory as module
    rows = [row for size in facts or module.SIZES for row in asyncio.run(module.measure_memory(size, rounds))]
    columns = ("facts", "seen", "p50 ms", "p99 ms", "CPU ms", f"recall@{module.FOUND}", "missing")
    _show(
        columns,
        [(one.facts, one.seen, one.p50_ms, one.p99_ms, one.cpu_ms, one.recall, one.missing) for one in rows],
    )
    exit_unless_ok(OK if all(not one.missing and one.recall >= _PROMISED_RECALL for one in rows) else FAILED)


@app.command()
def propagation(*, seconds: Seconds = 10.0) -> None:
    """From an edited rule to the first decision by it in two other processes: 10 edits and 500 messages a second.

    Exit code 1: a message was lost or decided by half a version, or the p99 is over a second.
    """
    with _extras():
        from switchboard.bench import propagation as module
    rows, good = [], True
    for ring, how in ((True, "with NOTIFY"), (False, "without: polling every 0.5 s")):
        result = asyncio.run(module.measure(module.PropagationWorkload(seconds=seconds, ring=ring)))
        waits = (f"{result.percentile(50):.1f} ms", f"{result.percentile(99):.1f} ms", f"{result.waits_ms[-1]:.1f} ms")
        rows.append((how, *waits, result.edits, result.messages, result.lost, result.torn))
        good &= not result.lost and not result.torn and result.percentile(99) <= _PROMISED_MS
    _show(("how", "p50", "p99", "most", "edits", "messages", "lost", "torn"), rows)
    exit_unless_ok(OK if good else FAILED)


@app.command()
def backtest(*, rounds: Rounds = 3) -> None:
    """20,000 stored messages decided again by changed rules, over HTTP, beside the same decisions in memory."""
    with _extras():
        from switchboard.bench import backtest as module
    result = asyncio.run(module.measure(rounds=rounds))
    rows = [
        ("one rule changed", result.one_rule, result.one_rule / result.pure),
        ("a file of 1,001 other rules", result.whole_file, result.whole_file / result.pure),
        ("the same decisions without database and server", result.pure, 1.0),
    ]
    _show(("proposed", "messages per second", "x in memory"), rows)


@app.command()
def classify(
    *,
    messages: Annotated[int, typer.Option(min=1, max=10_000, help="Messages per kind of API.")] = 200,
    runs: Annotated[int, typer.Option(min=1, max=1000, help="Messages per command line.")] = 10,
    claude: Annotated[str, typer.Option(help="The program of claude-code.")] = "claude",
    codex: Annotated[str, typer.Option(help="The program of codex.")] = "codex",
) -> None:
    """From a message in to its butler where a model must be asked that answers at once, beside the model's own client.

    The model is a scripted one on this machine. Command lines are the real ones, or are not measured.
    """
    with _extras():
        from switchboard.bench import classify as module
    results = asyncio.run(
        module.measure(module.ClassifyWorkload(messages, runs, {"claude-code": claude, "codex": codex}))
    )
    columns = ("kind", "what", "p50 ms", "p99 ms", "x bare p50", "x bare p99")
    _show(columns, [row for result in results for row in _classification_rows(result)])


@app.command("model-turn")
def model_turn(
    *,
    messages: Annotated[int, typer.Option(min=1, max=10_000, help="Messages of each kind.")] = 200,
) -> None:
    """What a turn with a model costs beyond the model, which answers at once: without tools, and per call of a tool."""
    with _extras():
        from switchboard.bench import model_turn as module
    result = asyncio.run(module.measure(messages))
    bare, plain = _p50_p99(result.bare_ms), _p50_p99(result.plain_ms)
    tool, delta, bare_delta = map(_p50_p99, (result.with_a_tool_ms, result.delta_ms, result.bare_delta_ms))
    rows = [
        ("the bare SDK, one request", *bare, None),
        ("a message to its reply", *plain, plain[0] - bare[0]),
        ("the same with one call of a tool", *tool, tool[0] - 2 * bare[0]),
        ("each call of a tool", tool[0] - plain[0], tool[1] - plain[1], tool[0] - plain[0] - bare[0]),
        ("the bare SDK, to the first delta", *bare_delta, None),
        ("the first delta over HTTP", *delta, delta[0] - bare_delta[0]),
    ]
    _show(("what", "p50 ms", "p99 ms", "beyond the SDK, p50 ms"), rows)


def _p50_p99(times: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(times)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, round(len(ordered) * 0.99))]


@app.command()
def plan(
    *,
    rounds: Rounds = 5,
    plans: Annotated[int, typer.Option(min=1, max=1000, help="Plans at once.")] = 100,
) -> None:
    """Plans of 101 and 401 uneven steps over their longest chain, steps that do nothing, and many plans at once.

    The limits are raised to 512 steps, 64 at once.
    """
    with _extras():
        from switchboard.bench import plan as module
    spare_the_collector()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:  # like a worker
        result = runner.run(module.measure(rounds, plans))
    rows = [(f"{size} uneven steps, x longest chain", one) for size, one in result.ratio.items()]
    rows += [
        ("a step that does nothing, µs", result.free_us),
        (f"{result.plans} plans at once, x longest chain", result.crowd),
    ]
    shown = [(what, one.journaled, one.in_memory, one.journaled - one.in_memory) for what, one in rows]
    _show(("what", "journaled", "journal in memory", "difference"), shown)


@app.command()
def channels(
    *,
    messages: Annotated[
        int, typer.Option(min=1, max=10_000, help="Messages on each channel, one after the other.")
    ] = 200,
    burst: Annotated[int, typer.Option(min=1, max=100_000, help="Messages to Telegram at once.")] = 1000,
    mails: Annotated[int, typer.Option(min=0, max=1000, help="Mails, one after the other.")] = 20,
) -> None:
    """From a message on a channel to the reply there, beside a bare bot of Telegram; a burst; memory; the start.

    The platforms are servers on this machine. Exit code 1: a message of the burst was not answered, or out of order.
    """
    with _extras():
        from switchboard.bench import channels as module
    result = asyncio.run(module.measure(module.ChannelsWorkload(messages, burst, mails)))
    bare, flood = _p50_p99(result.bare_ms), result.burst
    mail = _p50_p99(result.mail_ms) if result.mail_ms else (result.missing and f"needs {result.missing}", None)
    rows = [
        ("a bare bot of Telegram, p50 and p99 in ms", *bare, 1.0),
        *(
            (f"{name}, p50 and p99 in ms", *(found := _p50_p99(times)), found[0] / bare[0])
            for name, times in result.chat_ms.items()
        ),
        ("mail, p50 and p99 in ms", *mail, None),
        (f"{flood.messages} messages at once, stored after s", flood.stored_s, None, None),
        (
            f"answered: {flood.answered}, after s; Telegram's limit",
            flood.answered_s,
            flood.messages / module.PER_SECOND,
            None,
        ),
        ("of these out of order", flood.out_of_order, None, None),
        *((f"memory of {name} before and after, MB", *mb, None) for name, mb in result.memory_mb.items()),
        *((f"start {name}, s", seconds, None, None) for name, seconds in result.ready_s.items()),
    ]
    _show(("what", "measured", "second", "x bare bot"), rows)
    exit_unless_ok(OK if flood.answered == flood.messages and not flood.out_of_order else FAILED)


@app.command()
def grow(
    *,
    messages: Annotated[int, typer.Option(min=1000, max=100_000_000, help="Messages in the end.")] = 1_000_000,
    aged: Annotated[float, typer.Option(min=0, max=1, help="Share of them that goes through real turns.")] = 0.02,
) -> None:
    """Bytes per message of every table; the time of lists and look-ups at a tenth of the messages and at all of them.

    Most messages are filled in by SQL, as copies of real ones. A million takes minutes and some GB of disk.
    """
    with _extras():
        from switchboard.bench import grow as module
    result = asyncio.run(module.measure(messages, aged, errors().print))
    columns = ("table", "rows", "indexes", "total")
    sizes = [dict(zip(columns, row, strict=True)) for row in module.summary(result)]
    times = [
        {"look-up": name, f"ms at {messages // 10:,}": few, f"ms at {messages:,}": many, "ratio": many / few}
        for (name, few), many in zip(result.few.items(), result.many.values(), strict=True)
    ]
    if wants_json():
        print_json({"messages": messages, "bytes_per_message": sizes, "times": times})
        return
    _show(("bytes per message", *columns[1:]), [tuple(row.values()) for row in sizes])
    _show(tuple(times[0]), [tuple(row.values()) for row in times])


def _classification_rows(result: Any) -> list[tuple[object, ...]]:
    """One row for each way of asking the model, the bare client first."""
    if result.missing:
        return [(result.kind, result.missing, None, None, None, None)]
    bare = "the program, without a tool" if result.called_ms else "the official SDK, the same request"
    ways = [(bare, result.bare_ms), ("the program, calling Switchboard's tool", result.called_ms)]
    ways.append(("message in → butler starts", result.routed_ms))
    from switchboard.bench.lab import percentile

    base = [percentile(result.bare_ms, percent) for percent in (50, 99)]
    rows = ((what, [percentile(times, percent) for percent in (50, 99)]) for what, times in ways if times)
    return [(result.kind, what, *found, *(a / b for a, b in zip(found, base, strict=True))) for what, found in rows]


@contextmanager
def _extras() -> Iterator[None]:
    """Wraps the import of a benchmark. Raises ConfigurationError if a package that it needs is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        extras = "bench,models" if error.name == "anthropic" else "bench"
        raise ConfigurationError(f"the benchmarks need the package {error.name}: {install_command(extras)}") from error


def _show(columns: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> None:
    if wants_json():
        print_json({"rows": [dict(zip(columns, row, strict=True)) for row in rows]})
        return
    out().print(table(*columns, rows=[tuple(_figure(cell) for cell in row) for row in rows], keep=columns))


def _figure(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
    return "" if value is None else str(value)
