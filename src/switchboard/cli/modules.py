"""`switchboard modules`: calls of butlers' tools. Called by `main.py`. Next: `server/http/modules.py`."""

from __future__ import annotations

import json
from typing import Annotated, Final

import typer

from switchboard.cli.client import Client, ask
from switchboard.cli.names import butler as named_butler
from switchboard.cli.output import FAILED, OK, Json, clean, exit_unless_ok, show

app = typer.Typer(help="Tools of butlers: call one.", no_args_is_help=True)

_PATIENCE_S: Final = 60.0

Butler = Annotated[str, typer.Argument(help="The butler, such as clerk.", metavar="BUTLER")]
Tool = Annotated[str, typer.Argument(help="The name of the tool, as models know it.", metavar="TOOL")]


@app.command("call")
def call(
    butler: Butler,
    tool: Tool,
    arguments: Annotated[str, typer.Argument(help="Its arguments, as a JSON object.", metavar="ARGUMENTS")] = "{}",
    *,
    person: Annotated[
        str | None, typer.Option("--as", help="The person for whom it is called; by default nobody.", metavar="PERSON")
    ] = None,
    key: Annotated[str | None, typer.Option(help="With the same key, the same call is made once.")] = None,
) -> None:
    """Call a tool of a butler, as a model of the butler would, and print what it answers."""
    given = {"tool": tool, "arguments": _read_arguments(arguments), "person": person, "idempotency_key": key}
    body = {name: value for name, value in given.items() if value is not None} | {"system_id": named_butler(butler)}

    async def work(client: Client) -> Json:
        return await client.post("/v1/modules/calls", body, timeout=_PATIENCE_S)

    made = ask(work)
    show(made, _describe_call(made))
    exit_unless_ok(FAILED if made["state"] == "failed" else OK)


def _read_arguments(text: str) -> Json:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"it is no JSON: {error}", param_hint="ARGUMENTS") from None
    if not isinstance(found, dict):
        raise typer.BadParameter('it is no JSON object, such as {"path": "notes.txt"}', param_hint="ARGUMENTS")
    return found


def _describe_call(made: Json) -> str:
    if made["state"] != "pending":
        return clean(made["text"])
    approval = made["approval_id"]
    waits = f"people must approve it: switchboard approvals show {approval}" if approval else "it has not ended"
    return f"pending: {waits}\nwhat becomes of it: switchboard messages show {made['call_id']}"
