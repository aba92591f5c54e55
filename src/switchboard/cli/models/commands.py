"""`switchboard models`: the models, whether they answer, what they cost, and what they chose.

Called by `cli/main.py`. All but `test` asks the server; `test` asks the models themselves, see
`app/models/model_tests.py`. Next: `views.py`, which shows the results.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import typer
from msgspec.structs import asdict

from switchboard.cli import names
from switchboard.cli.client import ask, ask_about_team, server_url
from switchboard.cli.models.views import log_table, model_details, print_models, print_tried, usage_table
from switchboard.cli.output import FAILED, OK, Cursor, Json, exit_unless_ok, one_of, show, show_page
from switchboard.cli.reading import render_document
from switchboard.cli.rules.options import moment

app = typer.Typer(
    help="Models that classify where no rule matches: list and test them, costs, choices.", no_args_is_help=True
)

By = Literal["day", "model", "butler", "team", "message", "asker"]
Team = Annotated[str | None, typer.Option(help="Only this team.")]


@app.command("list")
def list_models() -> None:
    """List the models of the server's settings, what they did today, and what is left of the limits."""
    found = ask(lambda client: client.get("/v1/models"))
    show(found, print_models)


@app.command("show")
def show_model(name: Annotated[str, typer.Argument(help="A model of the server's settings.", metavar="NAME")]) -> None:
    """Show one model with what it did today."""
    found = one_of(ask(lambda client: client.get("/v1/models"))["models"], "name", name, "model")
    show(found, model_details(found))


@app.command("test")
def try_models(
    name: Annotated[str | None, typer.Argument(help="Only this model of the settings.", metavar="NAME")] = None,
) -> None:
    """Test each model with the settings and environment of this terminal. Exit code 1: one failed.

    A model that butlers use must call a tool; one that classifies, plans or is
    not used must choose a butler. It is then asked for a plan, which shows
    whether its server accepts a JSON Schema, and whether it reasons before it
    answers. This costs one or two thousand tokens per model, a few thousand
    per command line; command lines need a running server.
    """
    tried = asyncio.run(_try_models(name))
    show({"models": tried}, lambda _: print_tried(tried))
    exit_unless_ok(OK if all(one["ok"] for one in tried) else FAILED)


async def _try_models(name: str | None) -> Sequence[Json]:
    from switchboard.app.channels import known_channels  # noqa: PLC0415 - only `test` needs it
    from switchboard.app.models import model_tests as tests
    from switchboard.app.rules.seed import read_seed  # noqa: PLC0415 - the same; it imports the database
    from switchboard.app.settings import load_settings  # noqa: PLC0415 - the same

    settings = load_settings()
    models = tests.choose_models(settings, name)
    seed = read_seed(settings.teams_dir, known_channels(settings), written=settings.teams)
    mcp_url = settings.classify.mcp_url or f"{server_url(settings.whereabouts)}/mcp"
    async with tests.open_place(settings, mcp_url) as place:
        butlers = await tests.butlers_at(settings, place, seed.teams if seed else ())
        return [
            asdict(await tests.try_use(settings, model, place, in_turns=bool(butlers[model.name]))) for model in models
        ]


@app.command("usage")
def usage(
    *,
    by: Annotated[By, typer.Option(help="What to group by.")] = "day",
    since: Annotated[str | None, typer.Option("--from", help="From this time on; by default the last 30 days.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="Until this time.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number of rows.")] = 100,
    cursor: Cursor = None,
) -> None:
    """Tokens and cost: by day, model, butler, team, message or asker (turn, plan, compaction and so on)."""
    params = {"by": by, "from": moment(since, "--from"), "to": moment(until, "--to"), "limit": limit}
    found = ask(lambda client: client.get("/v1/models/usage", {**params, "cursor": cursor}))
    show_page(found, usage_table(found), "models usage", **params)


@app.command("log")
def log(  # noqa: PLR0913 - the options of a command
    *,
    team: Team = None,
    butler: Annotated[str | None, typer.Option(help="Only where the model named this one.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed ones.")] = False,
    corrected: Annotated[bool, typer.Option("--corrected", help="Only corrected ones.")] = False,
    as_cases: Annotated[
        bool, typer.Option("--as-cases", help="With --corrected: as cases for `rules test`, in YAML.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")] = 50,
    cursor: Cursor = None,
) -> None:
    """What models chose: every attempt, the newest message first."""
    if as_cases and (not corrected or butler or failed):
        raise typer.BadParameter("cases are made from corrections: add --corrected", param_hint="--as-cases")
    if as_cases:
        _print_cases({"team_id": team, "limit": limit, "cursor": cursor})
        return
    asked = {"butler": butler and names.butler(butler), "limit": limit}
    asked |= {"failed": failed or None, "corrected": corrected or None}
    params = {**asked, "team_id": team, "cursor": cursor}
    page = ask(lambda client: ask_about_team(client, "/v1/classifications", params, "classifications"))
    shown = log_table(page["classifications"])
    show_page(page, shown, "models log", team=team, **asked)


def _print_cases(params: Mapping[str, object]) -> None:
    """In the format of a file for `rules test`."""
    found = ask(lambda client: ask_about_team(client, "/v1/classifications/cases", params, "cases"))
    show({"cases": found["cases"]}, lambda cases: sys.stdout.write(render_document(cases, as_yaml=True)))
