"""URLs and paths in the arguments of a plan: only those that people wrote, letter for letter. Pure.

Models mangle them, and pages plant them. `form.py` gives a model no other choice, and `check.py` accepts no others.
Next: `check.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Final, Literal

from switchboard.core.planning.menu import Menu

Place = Literal["url", "path"]

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAMES: Final[Mapping[Place, re.Pattern[str]]] = {
    "url": re.compile(r"(?:.*_)?(?:url|uri|link|href)s?"),
    "path": re.compile(r"(?:.*_)?(?:path|file|filename|dir|directory|folder|cwd)s?|directories"),
}
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]{0,30}://[^\s<>\"'`]+", re.IGNORECASE)
"""The length of a scheme is limited; otherwise, each letter of a long word would start another search."""
_LIKE: Final = re.compile(
    r"(?:[a-z][a-z0-9+.-]{0,30}:[\t\r\n]*[/\\]|(?<![\w:/\\.])[/\\][\t\r\n]*[/\\]|\bwww\.)[\t\r\n]*[^\s<>\"'`]+"
    r"|(?<![\w@./\\:-])(?:(?:[\w-]{1,63}\.)+[a-z]{2,24}|(?:\d{1,3}\.){3}\d{1,3})(?::\d{1,5})?[/?#][^\s<>\"'`]*",
    re.IGNORECASE,
)
"""What some tool may take for a URL: with one slash or with backslashes, with line ends that a parser drops, without
a scheme, or as a host and a path.
"""
_HOST: Final = re.compile(r"https?://([a-z0-9.-]+(?::[0-9]{1,5})?)(?:[/?#]|\Z)", re.IGNORECASE)
_AFTER: Final = ".,;:!?)]}"
_PATH: Final = re.compile(
    r"(?<![\w./:-])(?:[\w-][\w.-]*/)*[\w-][\w-]*(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,9}(?![\w/])|(?<![\w./:-])(?:[\w-][\w.-]*/)+[\w.-]*\w"
)


@lru_cache(maxsize=500)
def place_of(name: str) -> Place | None:
    """What an argument of this name holds: a URL, a path in the workspace, or neither."""
    plain = _HUMP.sub("_", name).lower().replace("-", "_")
    return next((place for place, names in _NAMES.items() if names.fullmatch(plain)), None)


def paths_in(text: str) -> tuple[str, ...]:
    """Possible paths of files or directories of the workspace in a text, each once: `notes/todo.md`, `plan.txt`.

    Some are not paths; that does no harm, because no such file exists.
    """
    return tuple(dict.fromkeys(_PATH.findall(_URL.sub(" ", text))))


def choices(place: Place, menu: Menu) -> tuple[str, ...]:
    """The URLs, or the paths, that may be used."""
    return menu.all_urls if place == "url" else menu.all_paths


def place_faults(arguments: Mapping[str, object], menu: Menu) -> Iterator[str]:
    """What is wrong with the URLs and paths in the arguments of a call. Raises RecursionError for thousands of levels.

    An argument with the name of a URL or a path must be one of those allowed; so must any URL anywhere else.
    """
    for name, value in arguments.items():
        yield from _faults(name, place_of(name), value, menu)


def _faults(name: str, place: Place | None, value: object, menu: Menu) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _faults(f"a name in {name}", None, str(key), menu)
            yield from _faults(f"{name}.{key}", place_of(str(key)) or place, inner, menu)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _faults(name, place, inner, menu)
    elif isinstance(value, str) and value and not _is_known(place, value, menu):
        given = ", ".join(choices(place or "url", menu)) or "there are none"
        yield f"{name} must be one of the {place or 'url'}s that the person wrote ({given}), not {value[:100]!r}"


def unknown_url(arguments: Mapping[str, object], known: Collection[str], hosts: Collection[str] = ()) -> str | None:
    """A URL in the arguments of a call that is neither one of these nor at one of these hosts; None if none is."""
    found = (url for place, value in _leaves(None, arguments) if value for url in _like_urls(place, value))
    return next((url for url in found if not (_readings(url) & {*known} or _host_of(url) in hosts)), None)


def _host_of(url: str) -> str | None:
    """The host on which all URL parsers agree, with its port if given."""
    found = _HOST.match(url)
    return None if found is None else found[1].lower()


def _like_urls(place: Place | None, value: str) -> Iterator[str]:
    if place == "url":
        yield value
    elif place == "path":
        yield from _URL.findall(value)
    else:
        yield from _LIKE.findall(value)


def _readings(url: str) -> set[str]:
    """The possible meanings of a text that looks like a URL."""
    plain = url.rstrip(_AFTER)
    return {f"{scheme}{one}" for one in (url, plain) for scheme in ("", "https://", "http://", "https:", "http:")}


def _leaves(place: Place | None, value: object) -> Iterator[tuple[Place | None, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield None, str(key)
            yield from _leaves(place_of(str(key)) or place, inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(place, inner)
    elif isinstance(value, str):
        yield place, value


def _is_known(place: Place | None, value: str, menu: Menu) -> bool:
    if place is not None:
        return value in choices(place, menu)
    known = menu.all_urls
    return all(url in known or url.rstrip(_AFTER) in known for url in _URL.findall(value))
