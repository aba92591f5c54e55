"""A channel of a third party takes one record and an entry point: for identity, facts, history, automatic mail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from switchboard.app.channels import known_channels
from switchboard.app.settings import Settings
from switchboard.app.wiring import make_worker, open_runtime, open_switchboard
from switchboard.domain.errors import ConfigurationError, SwitchboardError
from switchboard.store.messages.inbox import Acceptance
from switchboard.store.work.ledger import decisions_of
from switchboard.testing.scripted_llm import Call, Reply, ScriptedLlm
from switchboard.transport.plug_ins import plug_ins
from tests.hands import at_work
from tests.lab import submission
from tests.waiting import eventually

PIGEON = """
from switchboard.ports.channel import Channel
from switchboard.ports.raw import raw_of, word


def ring(envelope):
    return word(raw_of(envelope).get("ring"))


CHANNEL = Channel(
    name="pigeon",
    providers=frozenset({"loft"}),
    event_id=ring,
    chat=lambda envelope: word(raw_of(envelope).get("roost")),
    replied_to=lambda envelope: word(raw_of(envelope).get("answers")),
    facts=lambda envelope: {"pigeon_roost": (word(raw_of(envelope).get("roost")) or "").lower() or None},
    keys={"pigeon_roost": "lower"},
    automatic=lambda envelope: "a decoy" if envelope.sender.identity == "decoy" else None,
    history="realtime",
)
"""
TEAM = {
    "team": {"name": "root"},
    "classify": True,
    "systems": [
        {"name": "System1/health", "engine": "echo", "description": "Doctors and pills"},
        {"name": "System1/post", "engine": "echo"},
        {"name": "System4/root", "engine": "echo"},
    ],
    "routing_rules": [
        {
            "name": "from the north",
            "channel": "pigeon",
            "filters": {"pigeon_roost": "north"},
            "targets": [{"system_id": "System1/post"}],
        }
    ],
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of packages in which one offers the channel."""
    place = tmp_path / "packages"
    (place / "pigeon_post-1.0.dist-info").mkdir(parents=True)
    (place / "pigeon_post-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: pigeon-post\nVersion: 1.0\n"
    )
    (place / "pigeon_post-1.0.dist-info" / "entry_points.txt").write_text(
        "[switchboard.channels]\npigeon = pigeon_post:CHANNEL\n"
    )
    (place / "pigeon_post.py").write_text(PIGEON)
    monkeypatch.syspath_prepend(str(place))
    plug_ins.cache_clear()
    yield place
    plug_ins.cache_clear()
    sys.modules.pop("pigeon_post", None)


def pigeon(text: str, ring: str, roost: str = "south", **more: Any) -> Any:
    return submission(text, channel="pigeon", provider="loft", sender="ann", raw={"ring": ring, "roost": roost, **more})


@pytest.mark.usefixtures("installed")
async def test_it_takes_one_record_and_an_entry_point(database_url: str, tmp_path: Path) -> None:
    async with ScriptedLlm([Reply(calls=(Call("route_to_butler", {"butler": "System1/health"}),))] * 2) as llm:
        model = {"name": "first", "kind": "openai", "model": "first", "base_url": f"{llm.url}/v1"}
        settings = Settings.model_validate(
            {
                "database_url": database_url,
                "data_dir": tmp_path,
                "teams": [TEAM],
                "worker": {"ttl": 60},
                "models": [model],
                "classify": {"models": ["first"]},
                "schedules": {"always": {"zone": "UTC", "windows": ["00:00-24:00"]}},
            }
        )
        async with (
            open_runtime(settings) as runtime,
            open_switchboard(runtime) as switchboard,
            at_work(make_worker(runtime)),
        ):
            # A rule names its fact; its own id of the event, not the connector's, says that it came twice.
            first = await switchboard.accept.accept(pigeon("coal is out", "R1", "North"))
            again = await switchboard.accept.accept(pigeon("coal is out", "R1", "North"))
            assert (again.request_id, again.duplicate) == (first.request_id, True)
            assert first.decision is not None
            assert [one.system_id for one in first.decision.chosen] == ["System1/post"]
            [decision] = await decisions_of(runtime.database, first.request_id)
            assert decision.facts is not None
            assert (decision.facts["pigeon_roost"], decision.facts["schedule"]) == ("north", "always")
            # No rule decides: a model does, and sees what was said before in this roost.
            for n, text in enumerate(("my head hurts", "it still does")):
                accepted = await switchboard.accept.accept(pigeon(text, f"S{n}"))

                async def over(request_id: object = accepted.request_id) -> bool:
                    rows = "select count(*) from delivery where request_id = $1 and state = 'answered'"
                    return bool(await runtime.database.value(rows, request_id))

                await eventually(over, within=30)
            assert "my head hurts" in llm.requests[1].prompt
            named = "select distinct name from message_inbox join conversation using (conversation) order by 1"
            assert [row["name"] for row in await runtime.database.rows(named)] == [
                "pigeon/bot%3Ahouse/North",
                "pigeon/bot%3Ahouse/south",
            ]


@pytest.mark.usefixtures("installed")
def test_it_stands_beside_ours_and_those_of_the_settings(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, channels={"smoke": ["hill"], "slack": ["slack", "bridge"]})
    channels = known_channels(settings)
    assert channels["pigeon"].automatic(pigeon("coo", "R2").envelope) is None
    assert channels["smoke"].providers == {"hill"}
    assert channels["slack"].providers == {"slack", "bridge"}
    assert channels["slack"].keys
    assert channels.keys_of("smoke").keys() < channels.keys_of("pigeon").keys() < channels.keys_of("*").keys()


def test_what_is_in_the_way_of_another_stops_the_start(installed: Path, tmp_path: Path) -> None:
    (installed / "pigeon_post.py").write_text(PIGEON.replace('"pigeon"', '"telegram"'))
    with pytest.raises(ConfigurationError, match="the channel 'telegram' of a plug-in"):
        known_channels(Settings(data_dir=tmp_path))
    sys.modules.pop("pigeon_post")
    (installed / "pigeon_post.py").write_text("import not_there")
    with pytest.raises(ConfigurationError, match=r"'pigeon' .* cannot be loaded: No module named 'not_there'"):
        known_channels(Settings(data_dir=tmp_path))


async def test_one_that_raises_costs_only_its_own_message(installed: Path, database_url: str, tmp_path: Path) -> None:
    (installed / "pigeon_post.py").write_text(PIGEON.replace("return word(", "return str(1 / 0) or word("))
    settings = Settings(database_url=database_url, data_dir=tmp_path, teams=[TEAM])
    async with open_runtime(settings) as runtime, open_switchboard(runtime) as switchboard:
        outcomes = await switchboard.accept.accept_all([pigeon("coo", "R3"), submission("hello")])
        assert isinstance(outcomes[0], SwitchboardError)
        assert "could not be stored" in str(outcomes[0])
        assert isinstance(outcomes[1], Acceptance)
