"""`switchboard modules`: installed modules, and calls of butlers' tools.

Called by `main.py`. `test` and `login` open a module in this process, with the settings of this terminal; all others
ask the server. Next: `app/module_trials.py`, `server/http/modules.py`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated, Final

import typer
from msgspec import structs

from switchboard.cli.client import Client, ask, part
from switchboard.cli.login_terminal import LoginTerminal, read_answers
from switchboard.cli.names import butler as named_butler
from switchboard.cli.output import (
    FAILED,
    OK,
    Json,
    clean,
    details,
    exit_unless_ok,
    one_of,
    show,
    table,
    wants_json,
    when,
)

app = typer.Typer(help="Modules: list or test them, log in accounts; call tools of butlers.", no_args_is_help=True)

_PATIENCE_S: Final = 60.0

Butler = Annotated[str, typer.Argument(help="The butler, such as clerk.", metavar="BUTLER")]
Tool = Annotated[str, typer.Argument(help="The name of the tool, as models know it.", metavar="TOOL")]
Module = Annotated[str, typer.Argument(help="The module's name.", metavar="MODULE")]


@app.command("list")
def list_modules() -> None:
    """List installed modules: who has them, what is wrong with them, and when they last did what they do."""
    found = ask(lambda client: client.get("/v1/modules"))
    names = ("module", "state", "butlers", "tools", "last sync", "sends", "problem")
    rows = (
        (
            one["module"],
            one["state"],
            ", ".join(one["butlers"]),
            len(one["tools"]),
            _last_sync(one),
            "; ".join(f"{it['account']}: {it['sends']}" for it in one["accounts"] if it["sends"]),
            _describe_problem(one),
        )
        for one in found["modules"]
    )
    show(found, table(*names, rows=rows, keep=("module", "state", "tools")))


@app.command("show")
def show_module(module: Module) -> None:
    """Show one module: its tools, who has them, and what it does from time to time."""
    found = one_of(ask(lambda client: client.get("/v1/modules"))["modules"], "module", module, "module")
    rows: list[tuple[str, object]] = [("module", found["module"]), ("state", found["state"])]
    rows += [("butlers", ", ".join(found["butlers"])), ("tools", ", ".join(found["tools"]))]
    rows += [("account", _describe_account(one)) for one in found["accounts"]]
    rows += [("problem", _describe_problem(found))] + [("does", _describe_chore(one)) for one in found["chores"]]
    show(found, details(rows))


@app.command("test")
def try_module(module: Module) -> None:
    """Open a module here as a worker would, and close it. Exit code 1: it cannot be opened."""
    tried = asyncio.run(_try_module(module))
    show(tried, _describe_trial(tried))
    exit_unless_ok(OK if tried["state"] == "open" else FAILED)


@app.command("sync")
def sync(module: Module) -> None:
    """Have workers do now what a module does from time to time."""
    done = ask(lambda client: client.post(f"/v1/modules/{part(module)}/sync", {}))
    show(done, f"{clean(module)}: {done['chores']} due now; see `switchboard modules list`")


@app.command("release")
def release(module: Module) -> None:
    """Release a module from quarantine, so that workers open it again."""
    done = ask(lambda client: client.post(f"/v1/modules/{part(module)}/release", {}))
    show(done, f"{clean(module)}: released; workers open it again")


@app.command("login")
def log_in(
    kind: Annotated[
        str,
        typer.Argument(help="What to log in: caldav, carddav, imap, google, microsoft; or a module.", metavar="KIND"),
    ],
    *,
    given: Annotated[
        list[str] | None,
        typer.Option("--set", help="An answer as NAME=VALUE, such as user=ann, which is not asked then; repeatable."),
    ] = None,
    again: Annotated[
        str | None, typer.Option(help="The token file of a sign-in that is to be replaced; no account is added.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Consent to writing, too, where that is another consent.")
    ] = False,
    password_file: Annotated[str | None, typer.Option(help="A file with the password, `-` for stdin.")] = None,
    password_env: Annotated[str | None, typer.Option(help="The variable with the password, not copied.")] = None,
) -> None:
    """Log in an account: check it at its server, then add it to the settings. Asks for what it needs."""
    asking = not wants_json() and sys.stdin.isatty() and sys.stderr.isatty()
    answers = {
        **read_answers(given or ()),
        **({"again": again} if again else {}),
        **({"write": "yes"} if write else {}),
    }
    terminal = LoginTerminal(answers, password_file, password_env, asking=asking)
    module = asyncio.run(_log_in(kind, terminal))
    show({"module": module, "said": terminal.said}, f"{clean(kind)}: logged in")


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


async def _try_module(module: str) -> Json:
    from switchboard.app.module_trials import try_module as open_and_close  # noqa: PLC0415 - only `test` needs it
    from switchboard.app.settings import load_settings  # noqa: PLC0415 - the same

    tried = await open_and_close(load_settings(), module)
    seconds = round(tried.seconds, 3)
    return {**structs.asdict(tried.opened), "tools": list(tried.tools), "seconds": seconds}


async def _log_in(kind: str, terminal: LoginTerminal) -> str:
    from switchboard.app.module_trials import log_in as run_wizard  # noqa: PLC0415 - only `login` needs it
    from switchboard.app.settings import load_settings  # noqa: PLC0415 - the same

    return await run_wizard(load_settings(), kind, terminal)


def _describe_trial(tried: Json) -> str:
    if tried["state"] != "open":
        return f"{clean(tried['name'])}: {tried['state']}: {clean(tried['why'])}"
    lines = [
        f"{clean(tried['name'])}: open after {tried['seconds']:.1f} s; tools: {', '.join(tried['tools']) or 'none'}"
    ]
    lines += [f"without {clean(tool)}: {clean(why)}" for tool, why in tried["left_out"].items()]
    return "\n".join(lines)


def _last_sync(module: Json) -> str:
    done = [one["last_at"] for one in module["chores"] if one["last_at"]]
    return when(max(done), short=True) if done else ""


def _describe_problem(module: Json) -> str:
    failed = [f"{_name_chore(one)}: {one['error']}" for one in module["chores"] if one["error"]]
    opening = [f"on {one['host']}: {one['why']}" for one in module["failures"]]
    return clean("; ".join(filter(None, (module["why"], *opening, *failed))))


def _describe_account(account: Json) -> str:
    sends = f"; sent by {account['sends']}" if account["sends"] else ""
    return f"{account['account']} of {account['owner']}{sends}"


def _describe_chore(chore: Json) -> str:
    last = f"last {when(chore['last_at'])}, " if chore["last_at"] else ""
    return f"{_name_chore(chore)}, every {chore['every_s']:g} s: {last}next {when(chore['next_at'])}"


def _name_chore(chore: Json) -> str:
    return f"{chore['name']} of {chore['account']}" if chore["account"] else str(chore["name"])


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
