"""`switchboard sops`: loads and unloads the rules of standing operating procedures.

Called by `cli/main.py`. In: SOP files (anything with a `name` and `routing_requirements`); out: the changes. Next: the
server's `RuleService`.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from switchboard.cli.client import Client, ask, part
from switchboard.cli.output import Json, details, one_of, show, table
from switchboard.cli.reading import read_object
from switchboard.cli.rules.options import DryRun, File, Reason, reason_for
from switchboard.cli.rules.views import rule_table, show_edit
from switchboard.domain.errors import InvalidInput

app = typer.Typer(help="Rules of standard operating procedures: load and unload them.", no_args_is_help=True)

_MOST: Final = 500


@app.command("list")
def list_sops() -> None:
    """List the procedures that have rules here."""
    found = ask(lambda client: client.whole("/v1/sops", "sops"))
    rows = (
        (str(s["source"]).removeprefix("sop:"), s["rules"], s["active"], ", ".join(s["teams"])) for s in found["sops"]
    )
    show(found, table("sop", "rules", "in force", "teams", rows=rows, keep=("sop",)))


@app.command("show")
def show_sop(name: Annotated[str, typer.Argument(help="The SOP's name.")]) -> None:
    """Show one procedure with its rules."""
    source = f"sop:{name}"

    async def look(client: Client) -> Json:
        sops = (await client.whole("/v1/sops", "sops"))["sops"]
        found = one_of([{**one, "name": str(one["source"]).removeprefix("sop:")} for one in sops], "name", name, "SOP")
        rules = (await client.get("/v1/rules", {"source": source, "limit": _MOST}))["rules"]
        return {"sop": found, "rules": rules}

    found = ask(look)
    sop = found["sop"]
    in_force = f"{sop['active']} of {sop['rules']} rules"
    about = details([("sop", sop["name"]), ("in force", in_force), ("teams", ", ".join(sop["teams"]))])
    show(found, about, rule_table(found["rules"], sort=True))


@app.command("load")
def load(file: File, *, reason: Reason = None, dry_run: DryRun = False) -> None:
    """Register the rules that the SOP in FILE needs.

    Load it again at any time: only what differs is changed.
    """
    document = read_object(file)
    name = document.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"{file}: an SOP has a name: `name: …`", field="name")
    body = {"document": document, "reason": reason_for(reason, dry_run=dry_run), "dry_run": dry_run}
    answer = ask(lambda client: client.put(f"/v1/sops/{part(name.strip())}", body))
    show_edit(answer, dry_run=dry_run)


@app.command("unload")
def unload(
    name: Annotated[str, typer.Argument(help="The SOP's name.")],
    *,
    reason: Reason = None,
    dry_run: DryRun = False,
) -> None:
    """Disable all rules of an SOP.

    They stay on record; loading it again enables them.
    """
    given = {"reason": reason_for(reason, dry_run=dry_run), "dry_run": str(dry_run).lower()}
    answer = ask(lambda client: client.delete(f"/v1/sops/{part(name)}", given))
    show_edit(answer, dry_run=dry_run)
