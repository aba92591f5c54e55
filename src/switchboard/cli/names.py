"""Resolves short names of butlers: `accountant` for `System1/accountant`, if nothing else has that name.

Called by the commands that take a butler or a target. In: words; out: ids. The server is asked only about words without
a slash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from switchboard.cli.client import Client, ask
from switchboard.core.text.words import near, or_list
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import MODEL_ENGINES


def butler(word: str) -> str:
    """The system_id of a butler. An unknown name is returned unchanged, for the server to report."""
    return word if "/" in word else ask(_butlers).get(word, word)


def targets(words: Sequence[str]) -> list[dict[str, str]]:
    """A word with a slash is a system, `System1/NAME`; otherwise a team or, if no team has that name, a butler."""
    if all("/" in word for word in words):
        return [{"system_id": word} for word in words]

    async def look(client: Client) -> list[dict[str, str]]:
        return [await _target(client, word) for word in words]

    return ask(look)


async def _target(client: Client, word: str) -> dict[str, str]:
    if "/" in word:
        return {"system_id": word}
    teams = [str(team["team_id"]) for team in (await client.whole("/v1/teams", "teams"))["teams"]]
    if word in teams:
        return {"team_id": word}
    butlers = await _butlers(client)
    if word in butlers:
        return {"system_id": butlers[word]}
    meant = [butlers.get(name, name) for name in near(word, [*teams, *butlers])]
    hint = f"; did you mean {or_list(meant)}?" if meant else ""
    raise InvalidInput(f"there is neither a team nor a butler {word!r}{hint}", code="unknown_target")


async def _butlers(client: Client) -> Mapping[str, str]:
    """The butlers by short name."""
    agents = [str(agent["system_id"]) for agent in (await client.whole("/v1/agents", "agents"))["agents"]]
    return {one.removeprefix("System1/"): one for one in agents if one.startswith("System1/")}


async def butlers_with_tools(client: Client) -> Mapping[str, str]:
    """The active butlers whose engine uses tools for owners, by short name."""
    agents = (await client.whole("/v1/agents", "agents"))["agents"]
    there = [str(one["system_id"]) for one in agents if one["active"] and one["engine"] in MODEL_ENGINES]
    return {one.removeprefix("System1/"): one for one in there if one.startswith("System1/")}
