"""Alerts and dashboard: `promtool` accepts and fires them, and they name the metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from switchboard.app.metrics import Metrics
from switchboard.cli.main import main
from tests.documents import HOME, codes, rows

PLACE = files("switchboard.cli.monitoring")
ALERTS = PLACE.joinpath("alerts.yml").read_text(encoding="utf-8")
DASHBOARD = PLACE.joinpath("dashboard.json").read_text(encoding="utf-8")
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool (of Debian's package prometheus) is not here")

WELL: Mapping[str, str] = {
    "servers_alive": "1x1600",
    "workers_alive": "1x1600",
    'books_difference{kind="targets"}': "0x1600",
    "books_age_seconds": "30x1600",
    "oldest_waiting_seconds": "2x1600",
    'lanes{state="paused"}': "0x1600",
    'lanes{state="running"}': "5x1600",
    "dead_letters_pending": "0x1600",
    'outcomes_today{outcome="routed"}': "97x1600",
    'outcomes_today{outcome="classified"}': "0x1600",
    'outcomes_today{outcome="dead"}': "3x1600",
    "oldest_reply_seconds": "1x1600",
    'replies_unsent{state="uncertain"}': "0x1600",
    'connector_healthy{channel="telegram",endpoint="bot:1"}': "1x1600",
    'connector_lag_seconds{channel="telegram",endpoint="bot:1"}': "0x1600",
    "quarantined_events": "3x1600",
    "models_paused": "0x1600",
    "models_in_cooldown": "1 0x1600",
    "model_refused_today": "0x1600",
    "oldest_approval_seconds": "3600x1600",
    "oldest_snapshot_seconds": "1x1600",
    'ingest_seconds_bucket{le="0.1"}': "0+100x1600",
    'ingest_seconds_bucket{le="2.5"}': "0+100x1600",
    'ingest_seconds_bucket{le="+Inf"}': "0+100x1600",
}
"""What a house that is well measures every minute."""
BAD: Mapping[str, Mapping[str, str]] = {
    "SwitchboardServersGone": {"servers_alive": "_x1600"},
    "SwitchboardWorkersGone": {"workers_alive": "1x9 0x1600"},
    "SwitchboardBooksDoNotBalance": {'books_difference{kind="targets"}': "-1x1600"},
    "SwitchboardBooksOld": {"books_age_seconds": "1e9x1600"},
    "SwitchboardMessagesWait": {"oldest_waiting_seconds": "100+60x1600"},
    "SwitchboardLanesPaused": {'lanes{state="paused"}': "1x1600"},
    "SwitchboardDeadLetters": {"dead_letters_pending": "1x1600"},
    "SwitchboardManyUndelivered": {'outcomes_today{outcome="dead"}': "30x1600"},
    "SwitchboardRepliesWait": {"oldest_reply_seconds": "0+60x1600"},
    "SwitchboardRepliesUnsent": {'replies_unsent{state="uncertain"}': "2x1600"},
    "SwitchboardAccountUnhealthy": {'connector_healthy{channel="telegram",endpoint="bot:1"}': "0x1600"},
    "SwitchboardAccountBehind": {'connector_lag_seconds{channel="telegram",endpoint="bot:1"}': "0+60x1600"},
    "SwitchboardQuarantineGrows": {"quarantined_events": "3+0.1x1600"},
    "SwitchboardModelKeyRefused": {"models_paused": "1x1600"},
    "SwitchboardModelsFail": {"models_in_cooldown": "1x1600"},
    "SwitchboardModelLimitReached": {"model_refused_today": "1x1600"},
    "SwitchboardApprovalsWait": {"oldest_approval_seconds": "90000+60x1600"},
    "SwitchboardOldSnapshot": {"oldest_snapshot_seconds": "0+60x1600"},
    "SwitchboardAcceptsSlowly": {'ingest_seconds_bucket{le="0.1"}': "0+90x1600"},
}
"""What fires each alert, and no other."""


def rules() -> list[dict[str, Any]]:
    """The alerts, as they stand in the file."""
    found: list[dict[str, Any]] = yaml.safe_load(ALERTS)["groups"][0]["rules"]
    return found


def promtool(*arguments: str | Path) -> None:
    """Run it; what it says is what has failed."""
    assert PROMTOOL is not None
    run = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@needs_promtool
def test_each_alert_fires_when_it_should_and_none_in_a_house_that_is_well(tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(ALERTS, encoding="utf-8")
    cases = {"": {}, **BAD}
    tests = [_case(name, {**WELL, **series}) for name, series in cases.items()]
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": ["alerts.yml"], "tests": tests}), encoding="utf-8")
    promtool("check", "rules", tmp_path / "alerts.yml")
    promtool("test", "rules", file)


def _case(alert: str, series: Mapping[str, str]) -> dict[str, object]:
    firing = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else []
    asked = {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": "2h", "exp_samples": firing}
    inputs = [{"series": f"switchboard_{name}", "values": values} for name, values in series.items()]
    return {"name": alert or "well", "interval": "1m", "input_series": inputs, "promql_expr_test": [asked]}


@pytest.mark.parametrize(("name", "text"), [("alerts", ALERTS), ("dashboard", DASHBOARD)])
def test_a_command_prints_them_as_they_are(capsys: pytest.CaptureFixture[str], name: str, text: str) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["monitoring", name])
    assert capsys.readouterr().out == text


def test_each_alert_is_tried_and_has_its_line_in_the_manual() -> None:
    told = {codes(row[0])[0]: row[1:] for row in rows(HOME / "docs/operations.md", "alert")}
    assert told == {one["alert"]: [one["labels"]["severity"], one["annotations"]["description"]] for one in rules()}
    assert set(told) == set(BAD)


def test_what_they_name_is_measured_and_the_dashboard_has_all_measured() -> None:
    panels = json.loads(DASHBOARD)["panels"]
    shown = _metrics(*(target["expr"] for panel in panels for target in panel["targets"]))
    alerted = _metrics(*(rule["expr"] for rule in rules()))
    suffixes = {"counter": "_total", "histogram": "_bucket"}
    measured = {family.name + suffixes.get(family.type, "") for family in Metrics()._registry.collect()}
    assert shown | alerted <= measured
    assert shown == measured


def _metrics(*expressions: str) -> set[str]:
    return {name for one in expressions for name in re.findall(r"\bswitchboard_\w+", one)}
