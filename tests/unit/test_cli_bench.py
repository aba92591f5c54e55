"""What measurements mean for the exit code, and how they are shown."""

from __future__ import annotations

import json
import sys

import pytest
from msgspec.structs import replace

from switchboard import bench
from switchboard.bench import classify, fair, grow, propagation
from switchboard.bench.propagation import PropagationResult, PropagationWorkload
from switchboard.cli.main import main
from switchboard.distribution import install_command

GOOD = PropagationResult(waits_ms=(1.0, 2.0, 900.0), edits=3, messages=10, lost=0, torn=0, versions=3)


@pytest.mark.parametrize(
    ("measured", "code"),
    [
        (GOOD, 0),
        (replace(GOOD, lost=1), 1),
        (replace(GOOD, torn=1), 1),
        (replace(GOOD, waits_ms=(1.0, 1500.0, 1500.0)), 1),
    ],
)
def test_a_promise_that_is_not_kept_is_a_failure(
    measured: PropagationResult, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def measure(plan: PropagationWorkload) -> PropagationResult:
        return measured if plan.ring else GOOD

    monkeypatch.setattr(propagation, "measure", measure)
    with pytest.raises(SystemExit) as ended:
        main(["bench", "propagation", "--json"])
    assert ended.value.code == code


@pytest.mark.parametrize(("flooded", "code"), [([300.0, 590.0, 2000.0], 0), ([610.0, 300.0, 700.0], 1)])
def test_too_long_a_wait_because_of_others_is_a_failure(
    flooded: list[float], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The median over the rounds of the ratio to the same round without a flood counts."""
    times = {"nobody": [200.0, 200.0, 200.0], "a flood": flooded}

    async def measure(rounds: int, seconds: float) -> fair.FairResult:
        assert (rounds, seconds) == (3, 1.0)
        return fair.FairResult(times, times)

    monkeypatch.setattr(fair, "measure", measure)
    with pytest.raises(SystemExit) as ended:
        main(["bench", "fair", "--seconds", "1", "--json"])
    assert ended.value.code == code
    assert [row["while"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["nobody", "a flood"]


def test_what_a_model_costs_in_time_is_shown_beside_its_bare_client(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ratio is to the bare client of the same kind; what is not there is not measured, and that is said."""
    plans: list[classify.ClassifyWorkload] = []

    async def measure(plan: classify.ClassifyWorkload) -> list[classify.ClassifyResult]:
        plans.append(plan)
        return [
            classify.ClassifyResult("openai", routed_ms=(10.0, 12.0, 30.0), bare_ms=(4.0, 4.0, 5.0)),
            classify.ClassifyResult("claude-code", routed_ms=(900.0,), bare_ms=(500.0,), called_ms=(600.0,)),
            classify.ClassifyResult("codex", missing="not measured: no codex on PATH"),
        ]

    monkeypatch.setattr(classify, "measure", measure)
    with pytest.raises(SystemExit):
        main(["bench", "classify", "--messages", "3", "--claude", "/opt/claude", "--json"])
    rows = [tuple(row.values()) for row in json.loads(capsys.readouterr().out)["rows"]]
    assert [(kind, p50, ratio) for kind, _, p50, _, ratio, _ in rows] == [
        ("openai", 4.0, 1.0),
        ("openai", 12.0, 3.0),
        ("claude-code", 500.0, 1.0),
        ("claude-code", 600.0, 1.2),
        ("claude-code", 900.0, 1.8),
        ("codex", None, None),
    ]
    assert rows[1][3:] == (30.0, 3.0, 6.0)
    assert rows[-1][1] == "not measured: no codex on PATH"
    assert (plans[0].messages, plans[0].programs["claude-code"], plans[0].programs["codex"]) == (
        3,
        "/opt/claude",
        "codex",
    )


def test_growth_is_shown_per_table_and_as_the_ratio_of_times(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def measure(messages: int, aged: float, say: grow.Say) -> grow.GrowthResult:
        say(f"filling {aged}")
        return grow.GrowthResult(messages, (grow.Size("outbox", 500.0, 200.0),), {"explain": 2.0}, {"explain": 3.0})

    monkeypatch.setattr(grow, "measure", measure)
    with pytest.raises(SystemExit):
        main(["bench", "grow", "--messages", "2000", "--aged", "0.5", "--json"])
    shown = capsys.readouterr()
    outbox = {"rows": 500.0, "indexes": 200.0, "total": 700.0}
    assert json.loads(shown.out) == {
        "messages": 2000,
        "bytes_per_message": [{"table": "outbox", **outbox}, {"table": "all tables", **outbox}],
        "times": [{"look-up": "explain", "ms at 200": 2.0, "ms at 2,000": 3.0, "ratio": 1.5}],
    }
    assert shown.err == "filling 0.5\n"


@pytest.mark.parametrize(("missing", "extras"), [("anthropic", "bench,models"), ("openai", "bench")])
def test_what_is_missing_is_named_with_its_extra(
    missing: str, extras: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, classify.__name__)
    monkeypatch.delattr(bench, "classify")
    with pytest.raises(SystemExit):
        main(["bench", "classify"])
    said = " ".join(capsys.readouterr().err.split())
    assert f"the package {missing}: {install_command(extras)}" in said
