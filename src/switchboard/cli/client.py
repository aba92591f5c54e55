"""The one HTTP client of the command line.

Called by every command that asks the server. In: method, path, body; out: the decoded JSON, or an error of our tree:
`NoServer`, `Unauthenticated`, `Forbidden`, `NotFound`, `InvalidInput`, `TooLarge`, `Conflict`, `Overloaded`,
`Unavailable`. The URL is SWITCHBOARD_URL, else host and port of the settings; the token is SWITCHBOARD_TOKEN, else what
stands in `<data_dir>/operator.token`. That file's token stays on this machine, and a settings file does not choose who
gets it: any directory may contain one.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import httpx2

from switchboard import __version__
from switchboard.app.ownership import read_ours, require_ours
from switchboard.app.settings_file import FILE_NAME
from switchboard.app.whereabouts import ADDRESS_FILE, HOST, OPERATOR_FILE, PORT, Whereabouts, find_whereabouts, url_of
from switchboard.cli.output import Json, NoServer
from switchboard.domain.errors import (
    ConfigurationError,
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    Overloaded,
    SwitchboardError,
    TooLarge,
    Unauthenticated,
    Unavailable,
)

_PAGE: Final = 500
_KINDS: Final[Mapping[int, type[SwitchboardError]]] = {
    400: InvalidInput,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: InvalidInput,
    503: Unavailable,
}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """Where the server is, and the token for it; `hint` says where a missing token was looked for."""

    url: str
    token: str | None = field(repr=False)
    hint: str


def find_server(where: Whereabouts) -> ServerPlace:
    """The place as environment and settings name it.

    Raises ConfigurationError where the operator's token must not be sent, or is not ours.
    """
    url = server_url(where)
    file = where.data_dir / OPERATOR_FILE
    token = os.environ.get("SWITCHBOARD_TOKEN")
    hint = f"set SWITCHBOARD_TOKEN, or SWITCHBOARD_DATA_DIR as for the server; {file} was looked at"
    if not token:
        try:
            token = _operator_token(where, url)
        except OSError as error:
            hint += f" ({error.strerror})"
    if token and not re.fullmatch("[!-~]+", token):
        raise ConfigurationError("the token must be as it was made, such as sb_o_…: ASCII without blanks")
    return ServerPlace(url, token or None, hint)


def server_url(where: Whereabouts) -> str:
    """Where the server is: as the environment says, else where that of the data directory has noted that it listens.

    Raises ConfigurationError for what is not a URL, and where only a settings file says that it is another machine.
    """
    given = os.environ.get("SWITCHBOARD_URL") or _find_running_server(where) or url_of(where.host, where.port)
    if not _is_url(given):
        right = "one such as http://127.0.0.1:8470" if "://" in given else f"http://{given}"
        raise ConfigurationError(f"SWITCHBOARD_URL {given!r} is not a URL; write {right}")
    url = given.rstrip("/")
    if url != _url_of_environment(where) and not is_here(url):
        raise ConfigurationError(
            f"{FILE_NAME} in the working directory says that the server is at {url}; commands connect to another "
            f"address than this machine's loopback only if the environment names it: set SWITCHBOARD_URL={url}"
        )
    return url


def _find_running_server(where: Whereabouts) -> str | None:
    """Where the server of this data directory listens if it is not where the settings say, as after `up --port`."""
    if any(os.environ.get(f"SWITCHBOARD_{name}") for name in ("HOST", "PORT")) or not is_here(url_of(where.host, 0)):
        return None
    try:
        noted = _started_last(where.data_dir)
    except ConfigurationError:  # others may write to it
        return None
    if noted is None or noted == url_of(where.host, where.port) or not (_is_url(noted) and is_here(noted)):
        return None
    return noted if _is_listened_to_by_us(urlsplit(noted).port or 80) else None


def _is_listened_to_by_us(port: int) -> bool:
    """Whether only processes of this user, or of root, listen there: a killed server leaves its port to anybody.

    Source: proc(5), /proc/net/tcp. Only Linux has it, so elsewhere the answer is no.
    """
    users: set[int] = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            rows = [line.split() for line in Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]]
            users |= {int(row[7]) for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port}
    return bool(users) and users <= {0, os.geteuid()}


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 0) >= 0
    except ValueError:  # such as a port that there cannot be
        return False


def _operator_token(where: Whereabouts, url: str) -> str:
    """The token in the data directory, if it may be sent to this address. Raises OSError, ConfigurationError."""
    file = where.data_dir / OPERATOR_FILE
    require_ours(where.data_dir)
    token = read_ours(file).strip()
    require_here(url, file)
    if url != _url_of_environment(where) and url != _started_last(where.data_dir):
        raise ConfigurationError(
            f"the operator's token in {file} is not sent to {url}: that address comes from {FILE_NAME} in the working "
            "directory, and no server of this data directory has started there; if it is right, set "
            f"SWITCHBOARD_URL={url}"
        )
    return token


def require_here(url: str, file: Path) -> None:
    """Raises ConfigurationError unless the operator's token in `file` stays on this machine if it is sent to `url`."""
    if not is_here(url):
        raise ConfigurationError(
            f"the operator's token in {file} is not sent to {url}, which is not this machine's loopback address; "
            "set SWITCHBOARD_TOKEN to the token for that server"
        )


def _url_of_environment(where: Whereabouts) -> str:
    """Where the server is as far as the environment says, without any settings file."""
    host = os.environ.get("SWITCHBOARD_HOST") or HOST
    port = where.port if os.environ.get("SWITCHBOARD_PORT") else PORT
    return (os.environ.get("SWITCHBOARD_URL") or url_of(host, port)).rstrip("/")


def _started_last(data_dir: Path) -> str | None:
    try:
        return read_ours(data_dir / ADDRESS_FILE).strip()
    except (OSError, ValueError):
        return None


def is_here(url: str) -> bool:
    """Whether a URL points to a loopback address; malformed URLs are left for the HTTP client to refuse."""
    try:
        name = urlsplit(url).hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def part(text: object) -> str:
    """One segment of a path, quoted."""
    return quote(str(text), safe="")


class Client:
    """Asks the server. Waits `timeout` seconds for an answer, long polls their wait in addition."""

    def __init__(self, http: httpx2.AsyncClient, place: ServerPlace) -> None:
        self._http = http
        self.place = place

    async def get(self, path: str, params: Mapping[str, object] | None = None, *, timeout: float = 30.0) -> Json:
        """GET; parameters that are None are left out."""
        given = {name: str(value) for name, value in (params or {}).items() if value is not None}
        return _decode_json(await self.ask("GET", path, params=given, timeout=timeout), self.place)

    async def whole(self, path: str, rows: str, **filters: str) -> Json:
        """A list whose pages hold `rows`, with the rows of all of them."""
        page = await self.get(path, {**filters, "limit": _PAGE})
        found = dict(page)
        while page["next_cursor"] is not None:
            page = await self.get(path, {**filters, "limit": _PAGE, "cursor": page["next_cursor"]})
            found[rows] += page[rows]
        return {**found, "next_cursor": None}

    async def post(
        self,
        path: str,
        body: Mapping[str, object] | bytes,
        *,
        media_type: str = "application/json",
        params: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> Json:
        """POST of a JSON body; bytes are of the `media_type`."""
        sent = {"content": body, "headers": {"content-type": media_type}} if isinstance(body, bytes) else {"json": body}
        return _decode_json(await self.ask("POST", path, params=params, timeout=timeout, **sent), self.place)

    async def put(self, path: str, body: Mapping[str, object], *, timeout: float = 60.0) -> Json:
        """PUT of a JSON body."""
        return _decode_json(await self.ask("PUT", path, json=body, timeout=timeout), self.place)

    async def patch(self, path: str, body: Mapping[str, object], *, timeout: float = 60.0) -> Json:
        """PATCH with a JSON body."""
        return _decode_json(await self.ask("PATCH", path, json=body, timeout=timeout), self.place)

    async def delete(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        """DELETE; {} where the answer has no body."""
        response = await self.ask("DELETE", path, params=params)
        return _decode_json(response, self.place) if response.content else {}

    async def lines(self, path: str, body: Mapping[str, object], *, timeout: float = 120.0) -> AsyncIterator[Json]:
        """POST whose answer comes as JSON line by line; `timeout` seconds may pass between two lines."""
        async for line in self._lines("POST", path, json=body, timeout=timeout):
            if line.strip():
                yield _line(line, self.place)

    async def events(
        self, path: str, params: Mapping[str, object], *, after: str = ""
    ) -> AsyncIterator[tuple[str, str, Json]]:
        """GET of Server-Sent Events: id, kind and data of each. `after` is the id of the last one that came before."""
        headers, got = {"last-event-id": after} if after else {}, dict[str, str]()
        async for line in self._lines("GET", path, params=params, headers=headers, timeout=60.0):
            name, _, value = line.partition(": ")
            if line:
                got[name] = value
            elif "data" in got:
                yield got.get("id", ""), got.get("event", "message"), _line(got["data"], self.place)
                got = {}

    def download(self, path: str) -> AsyncIterator[bytes]:
        """GET of bytes, as they come."""
        return self._chunks("GET", path, timeout=60.0)

    async def _lines(self, method: str, path: str, **more: Any) -> AsyncIterator[str]:
        """The lines of an answer. Those of httpx would also end at what is a line separator in a text."""
        rest = b""
        async for chunk in self._chunks(method, path, **more):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace")
        if rest:
            yield rest.decode(errors="replace")

    async def _chunks(self, method: str, path: str, **more: Any) -> AsyncIterator[bytes]:
        try:
            async with self._http.stream(method, path, **more) as response:
                if not response.is_success:
                    await response.aread()
                    raise _refusal(response, self.place)
                async for chunk in response.aiter_bytes():
                    yield chunk
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise self._connection_error(error) from error

    async def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """Any request; the response is a good one."""
        try:
            response = await self._http.request(method, path, **more)
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise self._connection_error(error) from error
        if not response.is_success:
            raise _refusal(response, self.place)
        return response

    def _connection_error(self, error: Exception) -> SwitchboardError:
        """What it means that there is no answer."""
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return no_server(self.place)
        if isinstance(error, httpx2.InvalidURL):
            return ConfigurationError(f"{self.place.url!r} is not the URL of a switchboard: {error}")
        why = str(error) or type(error).__name__
        return Unavailable(f"the connection to {self.place.url} failed: {why}", code="connection")


def no_server(place: ServerPlace) -> NoServer:
    """The error when no server answers there."""
    scheme = "; it speaks http, not https" if place.url.startswith("https") else ""
    return NoServer(
        f"no switchboard is running at {place.url}{scheme}; start it with `switchboard up`, "
        "or set SWITCHBOARD_URL to its address"
    )


async def ask_about_team(client: Client, path: str, params: Mapping[str, object], rows: str) -> Json:
    """A page of a list. An empty one of a team that does not exist is no answer: raises NotFound."""
    page = await client.get(path, params)
    if not page[rows] and params.get("team_id") is not None:
        await client.get(f"/v1/teams/{part(params['team_id'])}")
    return page


def _decode_json(response: httpx2.Response, place: ServerPlace) -> Json:
    try:
        value = response.json()
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Unavailable(f"what answers at {place.url} is not a switchboard (it did not send JSON)", code="not_ours")
    return value


def _line(line: str, place: ServerPlace) -> Json:
    """One line of a stream. A line `{"error": …}` says that it failed after it had begun."""
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Unavailable(f"{place.url} sent a line that is not a JSON object", code="not_ours")
    if isinstance(error := value.get("error"), dict):
        raise SwitchboardError(str(error.get("message", "it failed")), code=str(error.get("code", "internal_error")))
    return value


def _refusal(response: httpx2.Response, place: ServerPlace) -> SwitchboardError:
    """The error in the response, as one of our tree."""
    error = _error_of(response)
    message = str(error.get("message") or f"{place.url} answered {response.status_code} {response.reason_phrase}")
    if response.status_code == 401 and place.token is None:
        message = f"a token is required: {place.hint}"
    if response.status_code == 429:
        return Overloaded(message, retry_after=_seconds(response.headers.get("retry-after", "1")))
    kind = _KINDS.get(response.status_code, SwitchboardError)
    field = error.get("field")
    made = kind(message, code=str(error["code"]) if "code" in error else None, field=str(field) if field else None)
    details = error.get("details")
    made.details = details if isinstance(details, dict) else None
    return made


def _error_of(response: httpx2.Response) -> Json:
    try:
        error = response.json().get("error", {})
    except (ValueError, AttributeError):
        return {}
    return error if isinstance(error, dict) else {}


def _seconds(text: str) -> float:
    try:
        return min(max(float(text), 0.05), 60.0)
    except ValueError:
        return 1.0


@asynccontextmanager
async def open_client(where: Whereabouts | None = None) -> AsyncIterator[Client]:
    """A client for the server that environment and settings name."""
    place = find_server(where or find_whereabouts())
    async with http_client(place) as http:
        yield Client(http, place)


def http_client(place: ServerPlace) -> httpx2.AsyncClient:
    """The connections to a server. Raises ConfigurationError for what is not a URL."""
    headers = {"user-agent": f"switchboard-cli/{__version__}"}
    if place.token:
        headers["authorization"] = f"Bearer {place.token}"
    try:
        # A proxy of the environment must not see what stays on this machine.
        direct = is_here(place.url)
        return httpx2.AsyncClient(base_url=place.url, headers=headers, trust_env=not direct, verify=_trust(place.url))
    except (httpx2.InvalidURL, ValueError) as error:
        raise ConfigurationError(f"SWITCHBOARD_URL {place.url!r} is not a URL: {error}") from error


def _trust(url: str) -> ssl.SSLContext | bool:
    """Without https no certificates are needed, and reading the system's takes longer than most requests."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http://") else True


def ask(work: Callable[[Client], Awaitable[_T]]) -> _T:
    """Run `work` with a client to its end: the edge where a command becomes asynchronous."""

    async def run() -> _T:
        async with open_client() as client:
            return await work(client)

    return asyncio.run(run())
