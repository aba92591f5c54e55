"""The page behind proxies that speak https: exactly the recipes of docs/https.md, with a certificate made by it."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from shutil import which
from typing import Final

import httpx2
import pytest

from switchboard.app.messages import stream
from tests.caddy import caddy
from tests.documents import HOME, blocks
from tests.lab import envelope_json
from tests.nginx import Nginx, nginx
from tests.servers import NO_TLS, Opened, open_server
from tests.web_house import link_of

NAME: Final = "switchboard.example.org"
RECIPES: Final = {one.name: one.text for one in blocks(HOME / "docs/https.md") if one.name}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made by the commands of the document."""
    if which("openssl") is None:
        pytest.skip("openssl is not installed (Debian: openssl)")
    place = tmp_path_factory.mktemp("certificate")
    subprocess.run(["/bin/sh", "-e", "-c", RECIPES["https/certificate.sh"]], cwd=place, check=True, capture_output=True)
    return place


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """With the settings of the document."""
    more = tomllib.loads(RECIPES["https/switchboard.toml"])
    async with open_server(database_url, tmp_path / "data", more=more) as opened:
        yield opened


@pytest.fixture(params=["nginx", "caddy"])
def proxy(request: pytest.FixtureRequest, server: Opened, certificate: Path) -> Iterator[Nginx]:
    """One that stands before the server."""
    address = server.url.removeprefix("http://")
    opened: AbstractContextManager[Nginx]
    if request.param == "nginx":
        opened = nginx(RECIPES["https/nginx.conf"].replace("127.0.0.1:8470", address), certificate)
    else:
        opened = caddy(RECIPES["https/Caddyfile"].replace("127.0.0.1:8470", address), NAME, certificate)
    with opened as running:
        yield running


class Phone:
    """Asks the proxy under the name in its certificate, as a browser does."""

    def __init__(self, proxy: Nginx) -> None:
        self.origin = f"https://{NAME}:{proxy.port}"
        self._http = httpx2.AsyncClient(base_url=f"https://127.0.0.1:{proxy.port}", verify=proxy.tls, timeout=30)
        self._http.headers["host"] = f"{NAME}:{proxy.port}"
        self.how = {"sni_hostname": NAME}

    async def __aenter__(self) -> Phone:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.__aexit__()

    async def get(self, path: str) -> httpx2.Response:
        return await self._http.get(path, extensions=self.how)

    async def post(self, path: str, **fields: str) -> httpx2.Response:
        return await self._http.post(path, data=fields, headers={"origin": self.origin}, extensions=self.how)

    async def first_line(self, path: str, token: str) -> str:
        """Of an answer that has not ended."""
        asked = {"authorization": f"Bearer {token}"}
        async with self._http.stream("GET", path, headers=asked, extensions=self.how) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            return await anext(answer.aiter_lines())


async def test_the_recipes_make_the_page_work_from_a_phone(
    server: Opened, proxy: Nginx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_PING_EVERY_S", 0.1)
    link = (await link_of(server)).removeprefix(server.url)
    async with Phone(proxy) as phone:
        assert (await phone.get(link)).status_code == 200
        entered = await phone.post(link)
        assert entered.status_code == 303, entered.text
        words = {one.strip().lower() for one in entered.headers["set-cookie"].split(";")}
        assert {"secure", "httponly", "samesite=strict", "path=/ui"} <= words
        shown = (await phone.get("/ui/")).text
        assert "/ui/doctor" in shown
        form = shown.partition('action="/ui/theme"')[2].partition('name="form_token" value="')[2].partition('"')[0]
        assert (await phone.post("/ui/theme", form_token=form, theme="dark")).status_code == 303
        written = (await server.submit(envelope_json("Nobody answers this yet"))).json()["request_id"]
        line = await phone.first_line(f"/v1/messages/{written}/stream?wait_s=60", server.token)
        assert line == ":", "a ping: nothing is kept back until the answer ends"


async def test_without_a_proxy_that_is_trusted_nothing_is_shown_under_that_name(server: Opened) -> None:
    async with httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, headers={"host": NAME}) as http:
        assert "This page needs https here" in (await http.get("/ui/")).text
    stranger = httpx2.AsyncHTTPTransport(local_address="127.0.0.9")
    said = {"host": NAME, "x-forwarded-proto": "https", "x-forwarded-for": "192.0.2.7"}
    async with httpx2.AsyncClient(base_url=server.url, transport=stranger, headers=said) as http:
        assert "This page needs https here" in (await http.get("/ui/")).text
