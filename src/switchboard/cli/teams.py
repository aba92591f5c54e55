"""`switchboard teams`: the teams, their members and their rules. Called by `main.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from switchboard.cli.client import ask, part
from switchboard.cli.output import Json, clean, more, one_line, out, show
from switchboard.cli.rules.views import rule_text

app = typer.Typer(help="The tree of teams with members and rules.", no_args_is_help=True)


@app.command("list")
def list_teams() -> None:
    """Show the tree of teams with members and rules: of each team the first rules that are evaluated."""
    show(ask(lambda client: client.whole("/v1/teams", "teams")), _print)


@app.command("show")
def show_team(team: Annotated[str, typer.Argument(help="The team, such as root.")]) -> None:
    """Show one team."""
    show(ask(lambda client: client.get(f"/v1/teams/{part(team)}")), _print)


def _print(found: Json) -> None:
    listed: Sequence[Json] = found.get("teams", [found])
    names = {one["team_id"] for one in listed}
    for top in (one for one in listed if one["parent_id"] not in names):
        out().print(_branch(top, listed, Tree("", guide_style="dim")))


def _branch(team: Json, teams: Sequence[Json], tree: Tree) -> Tree:
    tree.label = Text(clean(team["team_id"]), style="bold").append(f"  {one_line(team['purpose'])}", style="dim")
    for member in team["members"]:
        tree.add(_member(member))
    for rule in team["rules"]:
        tree.add(_rule(rule))
    if (hidden := int(team["rule_count"]) - len(team["rules"])) > 0:
        again = more("rules list", team=team["team_id"])
        tree.add(Text(f"… and {hidden:,} {again}", style="dim"))
    for child in (one for one in teams if one["parent_id"] == team["team_id"]):
        _branch(child, teams, tree.add(""))
    return tree


def _member(member: Json) -> Text:
    style = "cyan" if member["active"] else "dim strike"
    label = Text(clean(member["system_id"]), style=style).append(f" ({clean(member['engine'])})", style="dim")
    return label.append(f"  {one_line(member['description'])}", style="default")


def _rule(rule: Json) -> Text:
    return Text("rule ", style="dim").append_text(rule_text(rule))
