"""The benchmark of routing by a model is run, with few messages; its times are nobody's promise."""

from __future__ import annotations

import pytest

from switchboard.bench.classify import CLIS, ClassifyWorkload, measure
from switchboard.llm.port import CliKind
from switchboard.llm.spec import API_KINDS
from tests.programs import real_program
from tests.width import WIDE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def real(kind: CliKind) -> str | None:
    """One, and only in `make random`, as each question takes it seconds of the processor: others are missing here."""
    return real_program(kind) if kind == "codex" and WIDE else None


async def test_every_way_is_measured_or_said_to_be_missing() -> None:
    programs: dict[CliKind, str] = {kind: real(kind) or f"no-{kind}" for kind in CLIS}
    results = {result.kind: result for result in await measure(ClassifyWorkload(messages=2, runs=1, programs=programs))}
    assert list(results) == [*API_KINDS, *CLIS]
    for kind in API_KINDS:
        assert (len(results[kind].routed_ms), len(results[kind].bare_ms)) == (2, 2)
        assert min(results[kind].routed_ms + results[kind].bare_ms) > 0
    for cli in CLIS:
        one = results[cli]
        if real(cli) is None:
            assert one.missing == f"not measured: no no-{cli} on PATH"
            assert one.routed_ms == ()
        else:
            assert (len(one.routed_ms), len(one.bare_ms), len(one.called_ms), one.missing) == (1, 1, 1, "")
