"""What a measurement of `bench propagation` means for the exit code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from switchboard.app.bench import propagation
from switchboard.app.bench.propagation import Plan, Result
from switchboard.cli.main import main

GOOD = Result(waits_ms=(1.0, 2.0, 900.0), edits=3, messages=10, lost=0, torn=0, versions=3)


@pytest.mark.parametrize(
    ("measured", "code"),
    [
        (GOOD, 0),
        (replace(GOOD, lost=1), 1),
        (replace(GOOD, torn=1), 1),
        (replace(GOOD, waits_ms=(1.0, 1500.0, 1500.0)), 1),
    ],
)
def test_a_promise_that_is_not_kept_is_a_failure(measured: Result, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def measure(plan: Plan) -> Result:
        return measured if plan.ring else GOOD

    monkeypatch.setattr(propagation, "measure", measure)
    with pytest.raises(SystemExit) as ended:
        main(["bench", "propagation", "--json"])
    assert ended.value.code == code
