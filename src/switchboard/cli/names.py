"""Butlers by their names alone: `accountant` for `System1/accountant`, where nothing else is called so.

Called by the commands that take a butler or a target. Words enter, ids leave; the server is asked only about a word
without a slash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from switchboard.cli.client import Client, ask
from switchboard.core.words import near, or_list
from switchboard.domain.errors import InvalidInput


def butler(word: str) -> str:
    """The system_id of a butler. A name that no butler has is left as it is: the server says what is meant."""
    return word if "/" in word else ask(_butlers).get(word, word)


def targets(words: Sequence[str]) -> list[dict[str, str]]:
    """What has a slash is a system, `System1/NAME`; else it is a team, or, where no team is called so, a butler."""
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
    """The butlers by their names."""
    agents = [str(agent["system_id"]) for agent in (await client.whole("/v1/agents", "agents"))["agents"]]
    return {one.removeprefix("System1/"): one for one in agents if one.startswith("System1/")}
