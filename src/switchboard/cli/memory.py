"""`switchboard memory`: what butlers have learned, and the summaries of long conversations. Called by `main.py`."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

import typer
from rich.console import RenderableType

from switchboard.cli import names, people
from switchboard.cli.client import ask
from switchboard.cli.ids import ask_about
from switchboard.cli.models.views import dollars
from switchboard.cli.output import Cursor, Json, details, one_line, one_of, show, show_page, table, when

app = typer.Typer(help="What butlers have learned: list, search, add, correct, share, forget.", no_args_is_help=True)

FactId = Annotated[str, typer.Argument(help="The fact's id, or its first or last characters.", metavar="ID")]
SummaryId = Annotated[str, typer.Argument(help="The summary's id, or its first or last characters.", metavar="ID")]
RunId = Annotated[str, typer.Argument(help="The run's id, or its first or last characters.", metavar="ID")]
Butler = Annotated[str | None, typer.Option("--butler", help="Only of this butler, such as notes or System1/notes.")]
Reason = Annotated[str | None, typer.Option(help="The reason; it is recorded.", metavar="TEXT")]
Limit = Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")]


@app.command("list")
def list_memory(
    *,
    butler: Butler = None,
    author: Annotated[str | None, typer.Option(help="Only what this person said, as the list names people.")] = None,
    summaries: Annotated[
        bool, typer.Option("--summaries", help="Instead of facts the summaries of long conversations.")
    ] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> None:
    """List facts, or summaries, the newest first. Reading them is recorded in the audit log."""
    if summaries and author is not None:
        raise typer.BadParameter("a summary has no author; leave out one of the two", param_hint="--author")
    what = "summaries" if summaries else "facts"
    system_id = names.butler(butler) if butler else None
    asked = {"limit": limit, "system_id": system_id, "author": author}
    given = {name: value for name, value in asked.items() if name != "author" or not summaries}
    page = ask(lambda client: client.get(f"/v1/memory/{what}", {**given, "cursor": cursor}))
    if not page[what]:
        _check_butler(system_id)
    again = {"butler": butler, "author": author, "summaries": summaries or None, "limit": limit}
    show_page(page, _summaries(page) if summaries else _facts(page), "memory list", **again)


def _check_butler(system_id: str | None) -> None:
    """Refuse a butler that there is not: nothing is found of it either."""
    if system_id:
        one_of(ask(lambda client: client.whole("/v1/agents", "agents"))["agents"], "system_id", system_id, "agent")


def _facts(page: Json) -> RenderableType:
    rows = (
        (
            f["fact_id"],
            when(f["created_at"], short=True),
            f["system_id"],
            f["author"],
            "private" if f["space"].startswith("private:") else f["space"],
            f["subject"],
            f["predicate"],
            one_line(f["text"]) if f["undone_at"] is None else f"(undone) {one_line(f['text'])}",
        )
        for f in page["facts"]
    )
    heads = ("id", "since", "butler", "author", "space", "about", "kind", "text")
    return table(*heads, rows=rows, keep=heads[:5])


def _summaries(page: Json) -> RenderableType:
    rows = (
        (
            s["summary_id"],
            when(s["created_at"], short=True),
            s["system_id"],
            s["conversation"],
            "restored" if s["restored_at"] else str(s["restorable"]),
            one_line(s["text"]),
        )
        for s in page["summaries"]
    )
    heads = ("id", "since", "butler", "conversation", "restorable", "text")
    return table(*heads, rows=rows, keep=heads[:5])


@app.command("search")
def search_memory(
    words: Annotated[str, typer.Argument(help="Facts that have any of these words.", metavar="WORDS")],
    *,
    butler: Butler = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> None:
    """Find facts by their words, the newest first. Reading them is recorded in the audit log."""
    system_id = names.butler(butler) if butler else None
    asked = {"words": words, "limit": limit, "system_id": system_id}
    page = ask(lambda client: client.get("/v1/memory/search", {**asked, "cursor": cursor}))
    if not page["facts"]:
        _check_butler(system_id)
    show_page(page, _facts(page), f"memory search {quote(words)}", butler=butler, limit=limit)


@app.command("entities")
def list_entities(
    words: Annotated[str, typer.Argument(help="A name, or how it begins; all without one.", metavar="NAME")] = "",
    *,
    butler: Annotated[str, typer.Option("--butler", help="The butler, such as notes or System1/notes.")],
) -> None:
    """Show the people and things that a butler's facts are about, with other names that its owner gave them."""
    given = {"system_id": names.butler(butler), "words": words}
    found = ask(lambda client: client.get("/v1/memory/entities", given))
    if not found["entities"]:
        _check_butler(given["system_id"])
    rows = ((one["name"], ", ".join(one["also"]), str(one["facts"]), one["why"]) for one in found["entities"])
    show(found, table("name", "also", "facts", "why", rows=rows, keep=("name",)))


@app.command("add")
def add_fact(
    text: Annotated[str, typer.Argument(help="What they say, such as “I live in Leeds”.", metavar="TEXT")],
    *,
    butler: Annotated[str, typer.Option("--butler", help="The butler, such as notes or System1/notes.")],
    author: Annotated[
        str, typer.Option("--as", help="Whose fact it is: a person's id, or as `memory list` names authors.")
    ],
    subject: Annotated[str, typer.Option("--about", help="Whom or what it is about; self: its author.")] = "self",
    predicate: Annotated[str, typer.Option(help="What it says of that, such as lives_at.")] = "other",
    shared: Annotated[bool, typer.Option("--shared", help="Everyone who talks to the butler may hear it.")] = False,
) -> None:
    """Add a fact, as if its author had said it alone with the butler."""
    body = {"system_id": names.butler(butler), "author": author, "text": text}
    given = {**body, "subject": subject, "predicate": predicate, "shared": shared}
    answer = ask(lambda client: client.post("/v1/memory/facts", given))
    show(answer, f"{answer['fact']['fact_id']}: kept")


@app.command("undo")
def undo(fact_id: FactId, *, reason: Reason = None) -> None:
    """Undo a fact, as if it had never been said; what it replaced holds again. Operators still see it."""
    answer = ask_about(
        "fact", fact_id, lambda client, one: client.post(f"/v1/memory/facts/{one}/undo", _body_with(reason))
    )
    show(answer, f"{answer['fact_id']}: undone")


@app.command("runs")
def list_runs(*, butler: Butler = None, limit: Limit = 100, cursor: Cursor = None) -> None:
    """List the runs in which a model looked for facts, the newest first."""
    system_id = names.butler(butler) if butler else None
    given = {"limit": limit, "system_id": system_id}
    page = ask(lambda client: client.get("/v1/memory/runs", {**given, "cursor": cursor}))
    if not page["runs"]:
        _check_butler(system_id)
    rows = (
        (
            one["run"],
            when(one["started_at"], short=True),
            one["system_id"],
            one["conversation"],
            "undone" if one["undone_at"] else one["outcome"] or "",
            str(one["facts"]),
            f"{one['tokens']:,}",
            dollars(one["cost_usd"]),
            one_line(one["reason"]),
        )
        for one in page["runs"]
    )
    heads = ("id", "begun", "butler", "conversation", "outcome", "facts", "tokens", "cost", "reason")
    show_page(page, table(*heads, rows=rows, keep=heads[:3]), "memory runs", butler=butler, limit=limit)


@app.command("undo-run")
def undo_run(run: RunId, *, reason: Reason = None) -> None:
    """Undo everything that a run has found, as if it had never been said."""
    answer = ask_about("run", run, lambda client, one: client.post(f"/v1/memory/runs/{one}/undo", _body_with(reason)))
    show(answer, f"{answer['run']}: {answer['facts']} fact{'s' * (answer['facts'] != 1)} undone")


@app.command("show")
def show_fact(fact_id: FactId) -> None:
    """Show one fact with the messages that it was taken from, and what became of it."""
    found = ask_about("fact", fact_id, lambda client, one: client.get(f"/v1/memory/facts/{one}"))
    fact = found["fact"]
    rows: list[tuple[str, object]] = [(name, fact[name]) for name in ("fact_id", "system_id", "space", "author")]
    rows += [("about", fact["subject"]), ("text", fact["text"]), ("since", when(fact["created_at"]))]
    rows += [*_kind_rows(fact), *_standing_rows(found["standing"])]
    rows += [("said", _source_line(one)) for one in found["sources"]]
    show(found, details(rows))


def _kind_rows(fact: Json) -> list[tuple[str, object]]:
    """What kind of statement it is, as far as that is known."""
    kind = f"not {fact['predicate']}" if fact["denied"] else fact["predicate"]
    rows: list[tuple[str, object]] = [
        ("kind", kind),
        ("said by", fact["said_by"]),
        ("first said", when(fact["said_at"])),
    ]
    ends = (("from", "valid_from"), ("until", "valid_to"), ("undone", "undone_at"))
    return [*rows, *((name, when(fact[key])) for name, key in ends if fact[key] is not None)]


def _standing_rows(standing: Json) -> list[tuple[str, object]]:
    rows = [("replaced by", standing["superseded_by"]), ("says again", standing["confirms"])]
    rows += [(name, ", ".join(standing[name])) for name in ("replaces", "contradicts")]
    return [(name, one) for name, one in rows if one]


def _source_line(source: Json) -> str:
    if source["text"] is None:
        return "(erased)"
    return f"{when(source['created_at'])}  {one_line(source['text'])}"


@app.command("share")
def share(fact_id: FactId, *, reason: Reason = None) -> None:
    """Make a fact visible to everyone who talks to the butler."""
    answer = ask_about(
        "fact", fact_id, lambda client, one: client.post(f"/v1/memory/facts/{one}/share", _body_with(reason))
    )
    show(answer, f"{answer['fact_id']}: shared")


@app.command("forget")
def forget(fact_id: FactId, *, reason: Reason = None) -> None:
    """Forget a fact, others that contain it, and the summaries that may repeat it. It cannot be restored."""
    answer = ask_about(
        "fact", fact_id, lambda client, one: client.post(f"/v1/memory/facts/{one}/forget", _body_with(reason))
    )
    others = answer["forgotten"] - 1
    also = f", and {others} more that said the same" if others else ""
    show(answer, f"{answer['fact_id']}: forgotten{also}")


@app.command("restore")
def restore(summary_id: SummaryId, *, reason: Reason = None) -> None:
    """Restore the messages that a summary, and those after it, have replaced; possible for 30 days."""
    answer = ask_about(
        "summary",
        summary_id,
        lambda client, one: client.post(f"/v1/memory/summaries/{one}/restore", _body_with(reason)),
    )
    restored = answer["restored"]
    show(answer, f"{answer['summary_id']}: {restored} message{'s' * (restored != 1)} restored")


def _body_with(reason: str | None) -> Json:
    return {} if reason is None else {"reason": reason}


app.command("erase")(people.erase)
