"""`switchboard monitoring`: alerts for Prometheus and a dashboard for Grafana, as files. Called by `cli/main.py`.

They name metrics of `app/metrics.py`, and nothing else; a test holds one against the other.
"""

from __future__ import annotations

import sys
from importlib.resources import files

import typer

from switchboard.cli.output import print_json, wants_json

app = typer.Typer(help="Files for Prometheus and Grafana: print alerts or a dashboard.", no_args_is_help=True)


@app.command("alerts")
def print_alerts() -> None:
    """Print alerts for Prometheus: a file for `rule_files`."""
    _print_file("alerts.yml")


@app.command("dashboard")
def print_dashboard() -> None:
    """Print a dashboard that Grafana imports."""
    _print_file("dashboard.json")


def _print_file(name: str) -> None:
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    if wants_json():
        print_json({"file": name, "text": text})
    else:
        sys.stdout.write(text)
