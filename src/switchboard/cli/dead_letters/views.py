"""Renders dead letters for people: lists, single letters, and the results of operations.

Called by `commands.py`. In: the API's JSON; out: tables and sentences for `rich`, with strangers' text cleaned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from switchboard.cli.output import Json, clean, errors, one_line, out, state, table, when
from switchboard.cli.rules.views import count_with_noun, print_edit
from switchboard.domain.json_values import JsonMapping

_NAMES: Final = {
    "dead_letter_id": "id",
    "request_id": "message",
    "status": "status",
    "team_id": "team",
    "category": "category",
    "reason": "reason",
    "system_id": "butler",
    "handler": "notified",
}
_SHOWN: Final = 20
"""Letters of many that are named one by one."""


def dead_letter_table(dead_letters: Sequence[Json]) -> RenderableType:
    """A page of dead letters: what died where, why, and the beginning of what it says."""
    names = ("id", "since", "status", "team", "category", "from", "text")
    rows = (
        (
            x["dead_letter_id"],
            when(x["created_at"], short=True),
            state(x["status"]),
            x["team_id"],
            x["category"],
            one_line(x["sender"], 60),
            "(emptied)" if x["emptied_at"] else one_line(x["text"]),
        )
        for x in dead_letters
    )
    return table(*names, rows=rows, keep=("id", "since", "status"))


def print_dead_letter(dead_letter: Json) -> None:
    """One dead letter with its message and its handling."""
    rows: list[tuple[object, object]] = [(name, dead_letter.get(key)) for key, name in _NAMES.items()]
    rows += [("since", when(dead_letter.get("created_at")))]
    rows += _message_rows(dead_letter)
    rows += [("part", one_line(dead_letter["part"], 300))] if dead_letter.get("part") else []
    if dead_letter["status"] == "handled":
        rows += [("handled", f"{when(dead_letter['handled_at'])} by {dead_letter['handled_by_system_id']}")]
        rows += [("resolution", dead_letter["resolution"])]
    rows += [("rerouted to", one["system_id"]) for one in dead_letter.get("rerouted_to", [])]
    rows += [("notice", f"{n.get('system_id')}: {n.get('state')}") for n in dead_letter.get("notices", [])]
    out().print(table("", "", rows=rows, wrap=True))
    text = (dead_letter.get("payload") or {}).get("payload", {}).get("normalized_text", "")
    out().print(Text("\n" + clean(text)))


def _message_rows(dead_letter: Json) -> list[tuple[object, object]]:
    """Sender, origin and attachments; for an emptied dead letter, only the fact that it was emptied."""
    rows: list[tuple[object, object]] = [("channel", dead_letter["channel"])]
    if dead_letter["emptied_at"]:
        return [*rows, ("emptied", f"{when(dead_letter['emptied_at'])}: its message has been erased")]
    envelope = dead_letter["payload"]
    sender = envelope["sender"]
    named = f"{sender['display_name']} ({sender['identity']})" if sender.get("display_name") else sender["identity"]
    rows += [("endpoint", envelope["source"]["endpoint_identity"]), ("sender", named)]
    rows += [("thread", envelope["event"].get("external_thread_id") or "")]
    return rows + [("attachment", _attachment_line(one)) for one in envelope["payload"].get("attachments") or ()]


def _attachment_line(one: JsonMapping) -> str:
    """`bill.pdf, application/pdf, 12,345 bytes`."""
    size = f"{one['size_bytes']:,} bytes" if one.get("size_bytes") is not None else None
    return ", ".join(str(part) for part in (one.get("filename"), one.get("media_type"), size) if part)


def print_rerouted(answer: Json) -> None:
    """Where a dead letter went and, for a rule made from it, the same report as for any edit."""
    to = ", ".join(delivery["system_id"] for delivery in answer["deliveries"])
    dead_letter = answer["dead_letter"]
    was = "was already rerouted" if answer["already"] else "rerouted"
    out().print(
        f"{dead_letter['dead_letter_id']} {was} to {clean(to)} (decision {answer['decision_n']})", soft_wrap=True
    )
    if written := answer.get("rule"):
        print_edit(written, [{"before": None, "after": written["rule"]}] if written["fresh"] else [], dry_run=False)
        out().print(f"its id is {written['rule']['rule_id']}", style="dim")


def print_outcome(outcome: Json, done: str) -> None:
    """The number of processed letters, and the failed ones by name. `done` is the operation, such as `rerouted`."""
    failed = outcome["failed"]
    would = "would be " if outcome["dry_run"] else ""
    rest = f"; {len(failed):,} {'stays' if len(failed) == 1 else 'stay'} pending" if failed else ""
    out().print(f"{would}{done}: {outcome['done']:,} of {count_with_noun(outcome['matched'], 'dead letter')}{rest}")
    for dead_letter in outcome.get("would", ())[:_SHOWN]:
        out().print(f"  {dead_letter['dead_letter_id']} → {clean(', '.join(dead_letter['to']))}", soft_wrap=True)
    _print_more(len(outcome.get("would", ())))
    for failure in failed[:_SHOWN]:
        errors().print(f"{failure['dead_letter_id']}: {one_line(failure['error'], 300)}", soft_wrap=True)
    _print_more(len(failed))


def _print_more(number: int) -> None:
    if number > _SHOWN:
        errors().print(f"and {number - _SHOWN:,} more")
