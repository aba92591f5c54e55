"""Estimates of tokens without a tokenizer: no rank file, no network, and never too low.

Called wherever a prompt must be kept within a budget.

The text is cut into pieces (words, digits, runs of blanks, characters of one script), and each kind has its price.
The prices were fitted to the tokenizers o200k_base and cl100k_base on prose in twenty languages, data, code and random
characters: no recorded count is above the estimate (`tests/unit/classification/tokens.json`). Prose of Latin letters is
estimated at 1.3 to 3 times its o200k count, other scripts at up to 8 times, because cl100k, which stands for the older
and the smaller models, spends so much more on them. Only random letters can cost more than the estimate (ASCII a fifth
more, other scripts up to 2.5 times): if a limit must hold even against those, use `token_ceiling`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, MutableMapping
from functools import lru_cache
from typing import Final

from switchboard.domain.llm import Request

_PIECES: Final[tuple[tuple[str, str, float, float], ...]] = (
    # name, pattern, price of the piece, price of each character in it
    ("escape", r"\\u[0-9a-fA-F]{4}", 4.0, 0.0),
    ("random", r"[A-Za-z0-9+/=_-]{40,}", 0.0, 0.85),  # base64, hex, tokens: contains no words
    ("word", r"[A-Z]?[a-z]{1,7}(?![a-z])", 1.05, 0.0),
    ("long_word", r"[A-Z]?[a-z]+", 0.0, 0.25),
    ("capitals", r"[A-Z]+", 0.4, 0.5),
    ("digits", r"[0-9]{1,3}", 1.1, 0.0),
    ("joined_space", r" (?=[A-Za-z\u00c0-\u024f\u0370-\u05ff\u0620-\u06ff])", 0.0, 0.0),  # part of the word behind it
    ("spaces", r" +", 1.0, 0.125),
    ("tabs", r"\t+", 1.0, 0.125),
    ("lines", r"\n+", 1.0, 0.125),
    ("returns", r"(?:\r\n)+", 1.0, 0.25),
    ("underline", r"[_=*#.~-]{2,}", 1.0, 0.4),
    ("sign", r"[!-/:-@\[-`{-~]", 0.9, 0.0),
    ("control", r"[\x00-\x1f\x7f]", 1.2, 0.0),
    ("latin", r"[\u0080-\u024f]", 0.0, 1.45),
    ("cyrillic", r"[\u0400-\u04ff]+", 0.5, 0.55),
    ("greek_hebrew", r"[\u0370-\u03ff\u0590-\u05ff]+", 0.5, 1.05),
    ("arabic", r"[\u0600-\u06ff]+", 0.5, 0.9),
    ("thai", r"[\u0e00-\u0e7f]+", 0.0, 1.05),
    ("indic", r"[\u0900-\u0dff]+", 0.5, 1.35),
    ("han", r"[\u4e00-\u9fff]+", 0.0, 1.45),
    ("kana", r"[\u3000-\u30ff]+", 0.0, 1.1),
    ("hangul", r"[\uac00-\ud7a3]+", 0.0, 1.25),
    ("two_bytes", r"[\u0250-\u07ff]", 0.0, 2.0),
    ("three_bytes", r"[\u0800-\uffff]", 0.0, 3.0),
    ("four_bytes", r"[^\u0000-\uffff]", 0.0, 4.0),
)
_PIECE: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern, _, _ in _PIECES))
_PRICES: Final = ((0.0, 0.0), *((piece, each) for _, _, piece, each in _PIECES))
"""The prices, by the number of the group that matched."""

_UNUSUAL: Final = re.compile(
    # Pairs of letters that hardly occur within the words a tokenizer knows (2.5 % of the pairs there, half of the
    # pairs of random letters): a word that contains them falls into more pieces than its length suggests.
    "a(?=[oq])|b(?=[bcdfghjkmnpqtvwxyz])|c(?=[bdfgjmnpqvwxz])|d(?=[bcfghjkmnpqtvwxz])|f(?=[bcdghjkmnpqsvwxyz])"
    "|g(?=[bcdfjkmpqtvwxyz])|h(?=[bcdfghjkmpqsvwxz])|i(?=[iwy])|j(?=[b-df-ik-np-tv-z])|k(?=[bcdfghjmnpqvwxyz])"
    "|l(?=[bchjnpqrwxz])|m(?=[cdfghjklnqrtvwxyz])|n(?=[bmpqrwx])|o(?=[qxz])|p(?=[bcdfgjkmnqvwxyz])|q(?=[a-tv-z])"
    "|r(?=[jqx])|s(?=[bdfgjnqrvxz])|t(?=[bdfgjkmnpqvx])|u(?=[hjquwxyz])|v(?=[bcdfghj-npqstu-z])"
    "|w(?=[bcdfgjklmpqrtuvwxyz])|x(?=[bcdfghj-oqrsu-z])|y(?=[bcdfghjklqrtu-z])|z(?=[b-df-hj-np-tv-z])"
)
_UNUSUAL_PRICE: Final = 1.0
_TOOL_WORDS: Final = 100
"""The approximate number of tokens that a provider needs for the frame around a tool."""
_IMAGE: Final = 1_600
"""The maximum number of tokens that a provider counts for one image of usual size."""
_SHORT: Final = 8_000
"""Maximum characters of a text whose estimate is cached: all together at most two million."""
_KEPT_LARGE: Final = 256
"""The number of longer texts whose estimates are kept, without the texts."""
_STEP: Final = 400
"""Pieces that are counted in a millisecond or less."""
_SCANNED: Final = 16_384
"""Characters that are scanned in a millisecond or less."""
_SLACK: Final = 1.0
"""An addition, because the prices are less certain for a few characters than for many."""


def estimate_tokens(text: str) -> int:
    """At least as many tokens as a model's tokenizer makes of `text`; 0 for no text.

    Never less than an eighth of its characters, never more than `token_ceiling`. Near additive: two texts joined
    cost what they cost separately, give or take 64. About 3 million characters a second; the estimates of the latest
    texts, which recur from request to request, are kept.
    """
    if len(text) <= _SHORT:
        return _kept_estimate(text)
    kept = _LARGE.get(_key(text))
    return _estimate(text) if kept is None else kept


def estimate_steps(text: str) -> Generator[None, None, int]:
    """The same, in steps of about a millisecond, between which others may run; kept for `estimate_tokens`."""
    pieces, characters = [0] * len(_PRICES), [0] * len(_PRICES)
    for number, match in enumerate(_PIECE.finditer(text), 1):
        sort = match.lastindex or 0
        pieces[sort] += 1
        if _PRICES[sort][1]:  # most pieces are words, whose length costs nothing
            start, end = match.span()
            characters[sort] += end - start
        if not number % _STEP:
            yield
    price = sum(
        piece * many + each * long for (piece, each), many, long in zip(_PRICES, pieces, characters, strict=True)
    )
    unusual = 0
    for start in range(0, len(text), _SCANNED):
        unusual += len(_UNUSUAL.findall(text, start, start + _SCANNED + 1))  # it looks at one character more
        yield
    tokens = min(math.ceil(price + _UNUSUAL_PRICE * unusual + _SLACK), token_ceiling(text))
    if len(text) > _SHORT:
        _keep(_key(text), tokens)
    return tokens


def _estimate(text: str) -> int:
    steps = estimate_steps(text)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return int(ended.value)


_kept_estimate: Final = lru_cache(256)(_estimate)
_LARGE: Final[MutableMapping[tuple[int, int], int]] = {}


def is_estimated(text: str) -> bool:
    """Whether its estimate costs nothing any more, or hardly anything."""
    return len(text) <= _SHORT or _key(text) in _LARGE


def _key(text: str) -> tuple[int, int]:
    """Nobody outside this process can find two texts with the same."""
    return len(text), hash(text)


def _keep(key: tuple[int, int], tokens: int) -> None:
    while len(_LARGE) >= _KEPT_LARGE:
        del _LARGE[next(iter(_LARGE))]
    _LARGE[key] = tokens


def token_ceiling(text: str) -> int:
    """The maximum number of tokens of any byte-based tokenizer for `text`: its length in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def asked_tokens(request: Request, count: Callable[[str], int] = estimate_tokens) -> int:
    """The approximate number of tokens of a request, those of a text by `count`."""
    tools = (count(str(dict(tool.parameters))) + _TOOL_WORDS for tool in request.tools)
    images = sum(len(message.images) for message in request.messages)
    return count(request.text) + sum(tools) + images * _IMAGE


def fits(request: Request, tokens: float) -> bool:
    """Whether a request has at most this many tokens; for most requests, the length alone decides."""
    return asked_tokens(request, token_ceiling) <= tokens or asked_tokens(request) <= tokens
