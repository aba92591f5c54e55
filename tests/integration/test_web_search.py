"""Searches with a server that speaks SearXNG's JSON: what comes of them, and what becomes known by them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from switchboard.app.ops.doctor import check_database
from switchboard.app.settings import Settings
from switchboard.domain.json_values import JsonObject
from switchboard.domain.planning import Review
from switchboard.ports.engine import Answer, Decided, Parked
from switchboard.ports.search import FoundPage, SearchFailure
from switchboard.ports.tools import Tool
from switchboard.testing.engines import MemoryJournal, Record, a_turn
from switchboard.testing.scripted_llm import Call, Reply, ScriptedLlm
from switchboard.tools.search_spec import SearchPlace
from switchboard.tools.searxng import MOST_BODY, Searxng
from switchboard.tools.web_fetch import WebFetch, WebOptions
from switchboard.tools.web_search import WebSearch
from tests.obeying import Web, a_web
from tests.running import turns_by
from tests.servers import open_server
from tests.tools import outcome_of
from tests.trios import Given, a_trio, plan, review, tool, writes
from tests.turning import OWNER, NoApprovals, Noting, a_model_engine

KEY: Final = "sk-canary"


def result(url: str, title: str = "Title", content: str = "Some words.") -> JsonObject:
    """One result, with the fields that SearXNG gives it."""
    about: JsonObject = {"template": "default.html", "category": "general", "publishedDate": None, "thumbnail": ""}
    by: JsonObject = {"engine": "brave", "engines": ["brave"], "positions": [1], "score": 1.0, "priority": ""}
    return {"url": url, "title": title, "content": content, "parsed_url": [*urlsplit(url)], **about, **by}


def document(*results: object, silent: Sequence[Sequence[str]] = ()) -> str:
    """An answer of `/search?format=json`."""
    rest: JsonObject = {"answers": [], "corrections": [], "infoboxes": [], "suggestions": []}
    body = {"query": "x", "number_of_results": 0, "results": [*results], **rest, "unresponsive_engines": [*silent]}
    return json.dumps(body)


def raw(status: str, body: str = "", *headers: str) -> bytes:
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body.encode())}", *headers, "", body)
    return "\r\n".join(lines).encode()


def ok(*results: object, silent: Sequence[Sequence[str]] = ()) -> bytes:
    return raw("200 OK", document(*results, silent=silent))


# The provider ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (ok(), []),
        (ok(result("https://a.example/")), [FoundPage("Title", "https://a.example/", "Some words.")]),
        (
            ok(result("https://a.example/", " A\n\ntitle ", "x" * 9000), result("https://a.example/", "again")),
            [FoundPage("A title", "https://a.example/", "x" * 500)],
        ),
        (
            ok(
                {"url": 7}, None, [], result("ftp://a.example/"), result("http://a b/"), result("http://a/" + "x" * 999)
            ),
            [],
        ),
        (ok({"url": "https://a.example/"}), [FoundPage("", "https://a.example/", "")]),
        (ok(*(result(f"https://a.example/{n}") for n in range(30))), [3]),
        (ok(silent=[["brave", "timeout"], ["bing", "access denied"]]), "no search engine has answered: brave: timeout"),
        (raw("403 Forbidden"), "add json to search.formats"),
        (raw("401 Unauthorized"), "does not accept the key"),
        (raw("429 Too Many Requests"), "asked too often"),
        (raw("302 Found", "", "Location: https://elsewhere.example/"), "redirects, which is not followed"),
        (raw("500 Internal Server Error"), "status 500"),
        (raw("200 OK", "<html>"), "something else than results"),
        (raw("200 OK", "[]"), "something else than results"),
        (raw("200 OK", "[" * 100_000), "something else than results"),
        (raw("200 OK", document() + " " * MOST_BODY), "something else than results"),
        (raw("200 OK", document(), "Content-Encoding: gzip"), "compresses its answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", "broke off"),
        (b"", "broke off"),
    ],
)
async def test_what_comes_of_a_search(answer: bytes, found: list[FoundPage] | list[int] | str) -> None:
    async with a_web() as web:
        web.pages["/base/search"] = answer
        searxng = Searxng(SearchPlace(url=f"http://127.0.0.1:{web.port}/base/"))
        if isinstance(found, str):
            with pytest.raises(SearchFailure, match=found):
                await searxng.search("x", 3)
        else:
            pages = await searxng.search("x", 3)
            assert [*pages] == found or [len(pages)] == found


async def test_the_query_and_the_key_arrive_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_KEY", f" {KEY}\n")
    query = "a&format=html ü? \ud800"
    async with a_web() as web:
        web.pages["/search"] = ok()
        for header in ("authorization", "X-Api-Key"):
            place = SearchPlace(url=f"http://127.0.0.1:{web.port}", key_env="SEARCH_KEY", key_header=header)
            await Searxng(place).search(query, 1)
        bearer, plain = web.heads
    assert f"\r\nauthorization: Bearer {KEY}\r\n" in bearer
    assert f"\r\nX-Api-Key: {KEY}\r\n" in plain
    assert parse_qs(urlsplit(bearer.split(" ")[1]).query) == {"q": ["a&format=html ü? ?"], "format": ["json"]}


async def test_a_server_that_is_silent_or_away_and_a_key_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEARCH_KEY", raising=False)
    with pytest.raises(SearchFailure, match="cannot be reached"):
        await Searxng(SearchPlace(url="http://127.0.0.1:1")).search("x", 1)
    with pytest.raises(SearchFailure, match="SEARCH_KEY holds no secret"):
        await Searxng(SearchPlace(url="http://127.0.0.1:1", key_env="SEARCH_KEY")).search("x", 1)
    async with a_web() as web:
        web.pages["/search"] = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
        place = SearchPlace(url=f"http://127.0.0.1:{web.port}", timeout=0.05)
        with pytest.raises(SearchFailure, match=r"longer than 0\.05 s|broke off"):
            await Searxng(place).search("x", 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["url", "title", "content"]), inner),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.fixed_dictionaries({"results": JSON, "unresponsive_engines": JSON}))
async def test_no_answer_raises_anything_else(found: Mapping[str, object]) -> None:
    async with a_web() as web:
        web.pages["/search"] = raw("200 OK", json.dumps(found))
        outcome = await outcome_of(searching(web), Path("/nonexistent"), query="x", results=10)
    assert not outcome.ok or "follow no instructions" in outcome.text


# Turns ----------------------------------------------------------------------------------------------------------------


def searching(web: Web) -> WebSearch:
    return WebSearch(Searxng(SearchPlace(url=f"http://127.0.0.1:{web.port}")))


def finds(web: Web, count: int = 3) -> list[str]:
    """Let each search find so many pages, and say which; the server is at every name."""
    urls = [f"http://page{n}.example:{web.port}/" for n in range(count)]
    web.pages["/search"] = ok(*map(result, urls))
    return urls


def approve(record: Record) -> list[str]:
    """Approve what waits; the tools that were asked about in this."""
    waiting = {path: ask for path, ask in record.asks.items() if path not in record.ended}
    for path, ask in waiting.items():
        record.ended[path] = Decided({"decision": "approved", "by": "op", "text": "", "digest": ask.digest})
    return [ask.tool for ask in waiting.values()]


SEARCH: Final = Call("web_search", {"query": "weather", "results": 10})
QUOTED: Final = "What is this?\n> Look it up."


@pytest.mark.parametrize(
    ("text", "options", "before", "fetched", "asked"),
    [
        pytest.param("Look it up.", {}, [[SEARCH]], 0, [], id="a result"),
        pytest.param("Look it up.", {}, [[SEARCH]], 9, [], id="the tenth result"),
        pytest.param("Look it up.", {}, [[SEARCH]], 10, ["web_fetch"], id="a page that was not found"),
        pytest.param("Look it up.", {}, [[SEARCH, Call("web_search", {"query": "b"})]], 0, [], id="two at once"),
        pytest.param("Look it up.", {}, [[SEARCH], [SEARCH]], 0, ["web_search"], id="one after the other"),
        pytest.param("Look it up.", {"after_foreign": "all"}, [[SEARCH]], 0, [], id="all"),
        pytest.param(QUOTED, {}, [[SEARCH]], 0, ["web_search", "web_fetch"], id="foreign before"),
        pytest.param(QUOTED, {"after_foreign": "never"}, [[SEARCH]], 0, ["web_fetch"], id="never, foreign before"),
        pytest.param("Look it up.", {"private_hosts": "0"}, [[SEARCH]], 0, ["web_fetch"], id="a private host"),
        pytest.param("Look it up.", {"private_hosts": "0"}, [[SEARCH]], 1, [], id="another than a private host"),
    ],
)
async def test_what_a_search_makes_known_and_what_waits(
    text: str,
    options: Mapping[str, str],
    before: Sequence[Sequence[Call]],
    fetched: int,
    asked: list[str],
    tmp_path: Path,
) -> None:
    record, waited = Record(), list[str]()
    async with a_web() as web:
        urls = [*finds(web, 10), f"http://page10.example:{web.port}/"]
        private = {"private_hosts": [f"page0.example:{web.port}"]} if "private_hosts" in options else {}
        script = [Reply(calls=tuple(calls)) for calls in [*before, [Call("web_fetch", {"url": urls[fetched]})]]]
        tools: list[Tool] = [searching(web), WebFetch(WebOptions(resolver=web.resolve))]
        turn = a_turn({"owners": OWNER, **options, **private}, text)
        given: dict[str, Any] = {"approvals": NoApprovals(), "workspaces": tmp_path}
        async with ScriptedLlm([*script, Reply("Done.")]) as llm, a_model_engine(llm, tools, **given) as (engine, _):
            answer = None
            while answer is None:
                try:
                    answer = await engine.run(turn, MemoryJournal(record))
                except Parked:
                    waited += approve(record)
        assert isinstance(answer, Answer)
        assert (waited, web.names) == (asked, [f"page{fetched}.example"])
        assert answer.entries[-1].told is True


async def test_after_a_crash_the_results_are_known_from_the_records_alone(tmp_path: Path) -> None:
    record = Record()
    async with a_web() as web:
        [url, *_] = finds(web)
        fetch = Reply(calls=(Call("web_fetch", {"url": url}),))
        tools: list[Tool] = [searching(web), WebFetch(WebOptions(resolver=web.resolve))]
        turn = a_turn({"owners": OWNER}, "Look it up.")
        given: dict[str, Any] = {"approvals": NoApprovals(), "workspaces": tmp_path}
        script = [Reply(calls=(SEARCH,)), fetch, Reply("Done."), fetch, Reply("Done.")]
        async with ScriptedLlm(script) as llm:
            async with a_model_engine(llm, tools, **given) as (engine, _):
                await engine.run(turn, MemoryJournal(record))
            for path in [path for path in record.ended if path.startswith(("request:2", "tool:2", "request:3"))]:
                del record.ended[path]
            web.pages["/search"] = ok()  # it would find nothing now
            async with a_model_engine(llm, tools, **given) as (other, _):
                await other.run(turn, MemoryJournal(record))
    assert (record.asks, web.names) == ({}, ["page0.example"] * 2)
    assert len([head for head in web.heads if "/search?" in head]) == 1


async def test_a_command_line_knows_what_it_has_found_even_when_started_again(
    tmp_path: Path,
) -> None:
    record, turn = Record(), a_turn({"owners": OWNER, "models": ["cli"], "approve": ["pay"]}, "Look it up.")
    async with a_web() as web:
        url, other, *_ = finds(web)
        body = f"""
found = call("web_search", query="weather")
call("web_fetch", url={url!r})
told = call("pay", text="it")
if not told.startswith("pending"):
    call("web_fetch", url={other!r})
end("Done.")
"""
        tools: list[Tool] = [searching(web), WebFetch(WebOptions(resolver=web.resolve)), Noting("pay", "effectful")]
        async with turns_by(tmp_path, body, tools, approvals=NoApprovals()) as engine:
            with pytest.raises(Parked):
                await engine.run(turn, MemoryJournal(record))
            assert approve(record) == ["pay"]
            answer = await engine.run(replace(turn, attempt=2), MemoryJournal(record))
        assert isinstance(answer, Answer)
        assert web.names == ["page0.example", "page1.example"]
        assert len([head for head in web.heads if "/search?" in head]) == 1


# Plans ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["review", "specialist"])
@pytest.mark.parametrize(("text", "known"), [("Look it up.", True), (QUOTED, False)])
async def test_a_plan_searches_and_then_reads_what_was_found(text: str, known: bool, by: str, tmp_path: Path) -> None:
    record, waited, turn = Record(), list[str](), a_turn({"owners": OWNER}, text)
    async with a_web() as web:
        [url, *_] = finds(web)
        tools: list[Tool] = [searching(web), WebFetch(WebOptions(resolver=web.resolve))]
        read = tool("s9", "web_fetch", url=url)
        loop = writes("s2", "s1", action="specialist_with_tools")
        second = review("s2", "s1") if by == "review" else loop
        planner = Given(
            plan(tool("s1", "web_search", query="weather"), second, writes("s3", "s1"), max_rounds=3),
            [Review("extend", steps=(read,)) if known else Review("complete")] * 3,
        )
        script = [Reply(calls=(Call("web_fetch", {"url": url}),))] if by == "specialist" else []
        given: dict[str, Any] = {"approvals": NoApprovals(), "workspaces": tmp_path}
        async with (
            ScriptedLlm([*script, *[Reply("Written.")] * 4]) as llm,
            a_trio(llm, planner, tools, **given) as (engine, _),
        ):
            answer = None
            while answer is None:
                try:
                    answer = await engine.run(turn, MemoryJournal(record))
                except Parked:
                    waited += approve(record)
        assert isinstance(answer, Answer)
        menus = [one.menu.all_urls for one in planner.asked[1:]]
        assert all((url in urls) is known for urls in menus), "what a review may name"
        asked = [] if known else ["web_search", *(["web_fetch"] if by == "specialist" else [])]
        assert waited == asked
        assert ("page0.example" in web.names) is (known or by == "specialist")


# Settings -------------------------------------------------------------------------------------------------------------


async def test_the_settings_name_the_server_and_doctor_searches_once(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path / "data"), a_web() as web:
        finds(web)
        url = f"http://127.0.0.1:{web.port}"

        async def told(**search: object) -> list[tuple[str, str]]:
            given: dict[str, Any] = {"search": search} if search else {}
            found = Settings(database_url=database_url, data_dir=tmp_path / "data", **given)
            return [(one.status, one.detail) for one in await check_database(found) if one.name == "search"]

        assert await told() == []
        assert await told(provider="searxng", url=url) == [("ok", f"{url} answers")]
        web.pages["/search"] = raw("403 Forbidden")
        [(status, detail)] = await told(provider="searxng", url=url)
        assert (status, "add json to search.formats" in detail) == ("warning", True)
        for wrong in ({"url": url}, {"provider": "searxng"}, {"provider": "searxng", "url": "http://u:p@h/"}):
            with pytest.raises(ValidationError, match="search"):
                await told(**wrong)
