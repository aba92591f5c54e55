"""Renders models and their choices for people.

Called by `commands.py`, `messages.py` and `explain.py`. In: data from the API or `app/models/model_tests.py`;
out: tables and sentences for `rich`, with text of strangers and models cleaned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from switchboard.cli.output import Json, clean, details, one_line, out, table, when

_NO_MODELS: Final = "no models are configured, so no message is classified; see docs/models.md"

_SAID: Final[Mapping[bool | None, str]] = {True: "yes", False: "no", None: ""}


def dollars(cost_usd: float | None) -> str:
    """As `$0.0031`; empty if the cost is unknown."""
    return "" if cost_usd is None else f"${cost_usd:,.4f}"


def _model_row(one: Json, *, ordered: bool) -> Sequence[object]:
    place = "" if one["order"] is None else one["order"]
    return (
        *((place,) if ordered else ()),
        *(one["name"], one["kind"], one["model"], _state_text(one)),
        *(one["attempts"], one["failed"], f"{one['tokens_in'] + one['tokens_out']:,}", dollars(one["cost_usd"])),
        one_line(one["why"] or "", 120),
    )


def print_models(found: Json) -> None:
    """The models in order, and the day's spending."""
    classify = any(one["order"] for one in found["models"])
    order = ("order",) if classify else ()
    names = (*order, "name", "kind", "model", "state", "attempts", "failed", "tokens", "cost", "says")
    rows = (_model_row(one, ordered=classify) for one in found["models"])
    out().print(table(*names, rows=rows, keep=("name", "state")) if found["models"] else _NO_MODELS)
    cost = dollars(found["cost_usd"]) if found["cost_usd"] or not found["tokens"] else "cost unknown: no prices"
    out().print(f"today ({found['day']}, UTC): {found['tokens']:,} tokens, {cost}")
    if classify:
        print_caps(found)
        _print_limits_of_classification(found)
    else:
        shown = [cap for cap in found["caps"] if cap["name"] != "newcomer_tokens_per_day"]
        print_caps({**found, "caps": shown})


def print_caps(found: Json) -> None:
    """What is left of the daily limits, and how often they prevented asking a model."""
    for cap in found["caps"]:
        out().print(_cap_text(cap))
    if found["refused"]:
        out().print(f"{found['refused']:,} calls prevented today by a daily limit", style="yellow")
    if found["senders_refused"]:
        out().print(f"{found['senders_refused']:,} calls prevented today by limits per sender", style="yellow")


def _print_limits_of_classification(found: Json) -> None:
    out().print(f"the classification of a message may take {found['tokens_per_message']:,} tokens", style="dim")
    if limits := _sender_limits(found):
        out().print(f"one sender: {limits}", style="dim")


def _sender_limits(found: Json) -> str:
    limits = {
        "sessions a minute": found["sender_per_minute"],
        "tokens a day": found["sender_tokens_per_day"],
    }
    return ", ".join(f"{most:,} {what}" for what, most in limits.items() if most)


def model_details(one: Json) -> RenderableType:
    """One model, a line per value."""
    rows: list[tuple[str, object]] = [(name, one[name]) for name in ("name", "kind", "model", "order")]
    rows += [("butlers", ", ".join(one["butlers"])), ("state", _state_text(one)), ("why", one["why"])]
    rows += [("attempts today", one["attempts"])]
    rows += [("failed", one["failed"])]
    rows += [(key.replace("_", " "), f"{one[key]:,}") for key in one if key.startswith("tokens_")]
    return details([*rows, ("cost", dollars(one["cost_usd"]))])


def _state_text(one: Json) -> Text:
    if one["state"] == "cooldown":
        return Text(f"cooldown until {when(one['until'], short=True)}", style="yellow")
    if one["state"] == "paused":
        return Text("paused: its key is refused", style="red")
    return Text("ready", style="green") if one["order"] or one["butlers"] else Text("not used", style="dim")


def _cap_text(cap: Json) -> Text:
    def shown(value: float) -> str:
        return dollars(value) if cap["name"] == "cost_usd_per_day" else f"{value:,}"

    held = f" ({shown(cap['held'])} reserved by running sessions)" if cap["held"] else ""
    text = f"{cap['name'].replace('_usd', '')}: {shown(cap['left'])} left of {shown(cap['cap'])}{held}"
    whose = " for senders who are new today" if cap["name"] == "newcomer_tokens_per_day" else ""
    reached = f", reached: no model is used{whose} until tomorrow" if cap["reached"] else ""
    return Text(text + reached, style="bold red" if cap["reached"] else "")


def print_tried(tried: Sequence[Json]) -> None:
    """The result for each model, followed by the remedies for failures."""
    names = ("name", "kind", "result", "schemas", "thinks", "calls", "ms", "tokens", "cost", "says")
    rows = (
        (
            *(one["name"], one["kind"]),
            Text("ok", style="green") if one["ok"] else Text(clean(one["outcome"]), style="bold red"),
            *(_SAID[one[name]] for name in ("schemas", "thinks")),
            one["calls"] or "",
            one["duration_ms"] or "",
            *(f"{one['tokens_in']}+{one['tokens_out']}", dollars(one["cost_usd"] or None)),
            one_line(one["detail"], 300),
        )
        for one in tried
    )
    out().print(table(*names, rows=rows, keep=("name", "result"), wrap=True) if tried else _NO_MODELS)
    for one in tried:
        if one["remedy"]:
            remedy = Text(f"{clean(one['name'])}: ", style="bold").append(f"→ {clean(one['remedy'])}", style="yellow")
            out().print(remedy, soft_wrap=True)


def usage_table(found: Json) -> RenderableType:
    """The rows and their total."""
    names = (found["by"], "messages", "attempts", "failed", "tokens in", "tokens out", "cost")
    rows = [(one["key"] or "(none)", *_spending_cells(one)) for one in found["rows"]]
    return table(*names, rows=[*rows, ("all", *_spending_cells(found["total"]))] if rows else [], keep=names[:1])


def _spending_cells(one: Json) -> Iterable[object]:
    counts = (f"{one[name]:,}" for name in ("messages", "attempts", "failed", "tokens_in", "tokens_out"))
    return (*counts, dollars(one["cost_usd"]))


def log_table(rows: Sequence[Json]) -> RenderableType:
    """A page of the log."""
    names = ("message", "at", "team", "model", "chose", "tokens", "cost", "ms", "text")
    shown = (
        (
            *(one["request_id"], when(one["at"], short=True), one["team_id"], one["model"] or ""),
            *(outcome(one), one["tokens_in"] + one["tokens_out"], dollars(one["cost_usd"]), one["duration_ms"]),
            one_line(one["text"] or "", 120),
        )
        for one in rows
    )
    return table(*names, rows=shown, keep=("message", "at", "chose"))


def outcome(one: Json) -> Text:
    """A model's choice, or why there is none; and the correct choice."""
    chose = ", ".join(str(route["butler"]) for route in one["result"].get("routed", ()))
    text = Text(one_line(chose or "nobody", 60), style="cyan" if chose else "yellow")
    if one["error"]:
        text.append(f"  {one_line(one['error'], 60)}", style="red")
    if one["corrected_to"]:
        text.append(f"  corrected to {one_line(one['corrected_to'], 60)}", style="bold yellow")
    return text


def attempt_line(one: Json) -> Text:
    """One attempt in a line: `own (812+24 tokens, $0.0031, 640 ms)  chose System1/health`."""
    cost = f", {dollars(one['cost_usd'])}" if one["cost_usd"] is not None else ""
    spent = f" ({one['tokens_in']}+{one['tokens_out']} tokens{cost}, {one['duration_ms']} ms)  "
    return (
        Text(clean(one["model"] or "no model"), style="bold").append(spent, style="not bold dim").append(outcome(one))
    )
