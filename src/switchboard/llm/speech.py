"""What a model says to people: its text without thinking, channels, and the tokens that end a turn. Pure.

`api.py` feeds it piece by piece, `answers.py` all at once, with the same result. Some servers leave in the text what
their template should have taken out. Thinking and channels are removed at the head only; everything else is recognised
only outside of code, because people ask about such tokens. Next: `text_calls.py`, calls that a model writes as text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, Literal

from msgspec import Struct

from switchboard.llm.text_calls import MARKS, begins_like_call

_CLOSINGS: Final = {
    **{f"<{name}>": f"</{name}>" for name in ("think", "thinking", "thought", "reasoning")},
    "[think]": "[/think]",
}
_OPENING: Final = re.compile("|".join(map(re.escape, _CLOSINGS)), re.IGNORECASE | re.ASCII)
_CHANNELS: Final = ("<|channel|>", "<|start|>")
_HEADS: Final = (*_CLOSINGS, *_CHANNELS)
_LONGEST_CLOSING: Final = max(map(len, _CLOSINGS.values()))
_LONGEST_HEAD: Final = max(map(len, _HEADS))
_FINAL: Final = re.compile(r"<\|channel\|>final\b[^<]{0,40}(?:<\|constrain\|>[^<]{0,40})?<\|message\|>")
_ADDRESSED: Final = re.compile(r"<\|(?:start|channel)\|>[^<]{0,80}\bto=")
_CHANNEL_HEAD: Final = 250
"""Characters that contain the whole head of a channel."""
_MOST_BLANK: Final = 1000
"""Blanks before thinking; what comes after more of them is no head."""
_ORPHAN: Final = "</think>"
_STRUCK: Final = "<s>"
_ENDS: Final = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end|>",
    "<|END_OF_TURN_TOKEN|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "</s>",
)
_CHANNEL_ENDS: Final = ("<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>")
_BEFORE_FENCE: Final = " \t>*+-.)0123456789"
"""What may precede a fence in its line: indentation, and the marks of quotations and lists."""
_LEAST_FENCE: Final = 3

_MOST_RUN: Final = 1000
"""Backticks in succession that are read as one run."""
_OPENING_SIZE: Final = 400
"""Characters by which a text is known that may be a call."""

Span = Literal["", "span", "opening", "fence"]
"""Code that is open: within a line, perhaps within a line or the first line of a fence, and behind that line."""


class SpeechRules(Struct, frozen=True):
    """`local`: of a local server, where tokens that end a turn may be left in the text. `thinks`: of a model whose
    template may have written the beginning of its thinking. `tools`: the names of the offered tools."""

    local: bool = False
    thinks: bool = False
    tools: tuple[str, ...] = ()


PLAIN: Final = SpeechRules()


class SpokenPart(Struct, frozen=True):
    """More of what is said. `anew`: what was said before was no speech."""

    text: str
    anew: bool = False


class Speech(Struct, frozen=True):
    """A whole answer. `thought`: it contained thinking; `called`: it contained a call in a channel of its own.

    `calls_at`: where in the text the first mark of a call outside of code is; -1: nowhere.
    """

    text: str
    thought: bool = False
    called: bool = False
    calls_at: int = -1


def speech_of(text: str, rules: SpeechRules = PLAIN) -> Speech:
    """What a whole text says."""
    listener = Listener(rules)
    first, last = listener.feed(text), listener.end()
    said = last.text if last.anew else first.text + last.text
    return Speech(said, listener.thought, listener.called, listener.calls_at)


class Listener:
    """Hears an answer in pieces. What may not be speech, or may be a call, is held back until that is known."""

    def __init__(self, rules: SpeechRules = PLAIN) -> None:
        self._rules = rules
        self._head = _Head()
        self._body: _Body | None = None

    def feed(self, text: str) -> SpokenPart:
        """The new part of what is certainly speech by now."""
        rest = self._head.feed(text)
        return self._feed_body(rest) if rest else SpokenPart("")

    def end(self) -> SpokenPart:
        """All that was held back, without thinking that never ended."""
        first = self._feed_body(self._head.end())
        last = SpokenPart("") if self._body is None else self._body.end()
        return last if last.anew else SpokenPart(first.text + last.text, anew=first.anew)

    def _feed_body(self, text: str) -> SpokenPart:
        if self._body is None:
            self._body = _Body(self._rules, self._head)
        return self._body.feed(text)

    @property
    def thought(self) -> bool:
        """Whether thinking was found, even if it could not be told apart."""
        return self._head.thought or (self._body is not None and self._body.thought)

    @property
    def called(self) -> bool:
        """Whether there was a call in a channel, and nothing for the person."""
        return self._head.called

    @property
    def calls_at(self) -> int:
        """As in `Speech`."""
        return -1 if self._body is None else self._body.calls_at


class _Head:
    """Thinking or channels at the beginning of the text."""

    def __init__(self) -> None:
        self._state: Literal["open", "thinking", "channels", "over"] = "open"
        self._held = ""
        self._closing = _OPENING
        self._removed = False
        self.thought = False
        self.called = False
        self.in_channels = False

    def feed(self, text: str) -> str:
        """What is behind the head."""
        if self._is_over():
            return text
        self._held += text
        while self._advance_state():
            pass
        if not self._is_over():
            return ""
        rest, self._held = self._held, ""
        return rest

    def _is_over(self) -> bool:
        return self._state == "over"

    def end(self) -> str:
        """What is left if the head never ended."""
        rest = self._held if self._state == "open" else ""
        self._held = ""
        return rest.lstrip() if self._removed else rest

    def _advance_state(self) -> bool:
        """Whether the state has changed, so that what is held is to be looked at again."""
        match self._state:
            case "open":
                return self._read_open_state()
            case "thinking":
                return self._read_thinking()
            case "channels":
                return self._read_channels()
            case "over":
                return False

    def _read_open_state(self) -> bool:
        body = self._held.lstrip()
        if (found := None if self.thought else _OPENING.match(body)) is not None:
            self._state, self._held = "thinking", body[found.end() :]
            self._closing = re.compile(re.escape(_CLOSINGS[found.group().lower()]), re.IGNORECASE | re.ASCII)
        elif body.startswith(_CHANNELS) and not self._removed:
            self._state, self._held, self.thought = "channels", body, True
        elif self._may_begin(body):
            return False
        else:
            self._state, self._held = "over", body if self._removed else self._held
        return True

    def _may_begin(self, body: str) -> bool:
        if len(self._held) - len(body) > _MOST_BLANK or len(body) >= _LONGEST_HEAD:
            return False
        return not body or (not self.thought and any(head.startswith(body.lower()) for head in _HEADS))

    def _read_thinking(self) -> bool:
        found = self._closing.search(self._held)
        end = max(len(self._held) - _LONGEST_CLOSING, 0) if found is None else found.start()
        self.thought = self.thought or bool(self._held[:end].strip())
        self._held = self._held[end:] if found is None else self._held[found.end() :]
        if found is None:
            return False
        self._state, self._removed = "open", True  # one that was empty may be followed by another
        return True

    def _read_channels(self) -> bool:
        self.called = self.called or _ADDRESSED.search(self._held) is not None
        found = _FINAL.search(self._held)
        if found is None:
            self._held = self._held[-_CHANNEL_HEAD:]
            return False
        self._state, self._held = "over", self._held[found.end() :]
        self.called, self.in_channels = False, True
        return True


@cache
def _words_of(*, local: bool, in_channels: bool) -> tuple[frozenset[str], tuple[str, ...], re.Pattern[str]]:
    """The words that end a turn; all words that may mean something, in lower case; and what finds them, and code."""
    ends = frozenset((*(_ENDS if local else ()), *(_CHANNEL_ENDS if in_channels else ())))
    words = (*ends, *((_STRUCK,) if local else ()), _ORPHAN, *MARKS)
    found = rf"\n|`{{1,{_MOST_RUN}}}|~{{1,{_MOST_RUN}}}|{'|'.join(map(re.escape, words))}"
    return ends, tuple(word.lower() for word in words), re.compile(found, re.IGNORECASE | re.ASCII)


class _Body:
    """The text behind the head."""

    def __init__(self, rules: SpeechRules, head: _Head) -> None:
        self._ends, self._words, self._token = _words_of(local=rules.local, in_channels=head.in_channels)
        self._longest = max(map(len, self._words))
        self._names = rules.tools
        self._thinks = rules.thinks and not head.thought
        self.thought = False
        self._restart()

    def _restart(self) -> None:
        """Begin with nothing said."""
        self._held = ""
        """Perhaps the beginning of a token."""
        self._out: list[str] = []
        """What may be told, as far as nothing below speaks against it."""
        self._code: Span = ""
        self._run = ""
        """What opened the code."""
        self._closing = False
        """Whether a fence ends with this line, if nothing follows in it."""
        self._at_start = True
        """Whether nothing but indentation and marks came in this line."""
        self._doubt: tuple[str, int] | None = None
        """A token in code that may not be code, and its place in `_out`."""
        self._call_at: int | None = None
        """The place in `_out` of the first mark of a call."""
        self._void: str | None = None
        """What followed the end of thinking until now, if all before it was thinking."""
        self._over = self._struck = self._strips = self._anew = False
        self.calls_at = -1
        self._length = 0
        self._opening = ""
        self._holds: bool | None = None

    def feed(self, text: str) -> SpokenPart:
        """More of what is said."""
        self._read(self._held + text, last=False)
        return self._take_parts(self._certain_parts())

    def end(self) -> SpokenPart:
        """The rest."""
        self._read(self._held, last=True)
        if self._doubt is not None:
            self._settle(is_code=False)
            self._read("", last=True)
        return self._take_parts(len(self._out))

    def _certain_parts(self) -> int:
        """How much of `_out` may be told before the end."""
        if self._holds is None:
            self._holds = begins_like_call(self._opening, self._names)
            if self._holds is None and len(self._opening) >= _OPENING_SIZE:
                self._holds = False
        if self._holds in (True, None):
            return 0
        places = (self._call_at, None if self._doubt is None else self._doubt[1])
        return min((place for place in places if place is not None), default=len(self._out))

    def _take_parts(self, parts: int) -> SpokenPart:
        text = "".join(self._out[:parts])
        if parts:
            self._out = self._out[parts:]
            self._call_at = None if self._call_at is None else self._call_at - parts
            self._doubt = None if self._doubt is None else (self._doubt[0], self._doubt[1] - parts)
        anew, self._anew = self._anew, False
        return SpokenPart(text, anew=anew)

    # Reading ----------------------------------------------------------------------------------------------------------

    def _read(self, text: str, *, last: bool) -> None:
        """Read as much of a text as is certain."""
        text = self._without_thinking(text)
        at, certain = 0, len(text) if last else self._certain(text)
        while not self._over and (found := self._token.search(text, at, certain)) is not None:
            self._plain(text[at : found.start()])
            self._take(found.group())
            at = found.end()
            if self._void is not None:
                text, at = self._without_thinking(text[at:]), 0
                certain = len(text) if last else self._certain(text)
        if not self._over:
            self._plain(text[at:certain])
        self._held = "" if self._over else text[certain:]

    def _without_thinking(self, text: str) -> str:
        """The text to read next. If all before it was thinking, begin again with what followed."""
        if self._void is None:
            return text
        text = self._void + text
        self._thinks = False
        self._restart()
        self._anew = self._strips = True
        return text

    def _certain(self, text: str) -> int:
        """Where a token may have begun whose end has not come yet."""
        run = max(len(text) - len(text.rstrip("`")), len(text) - len(text.rstrip("~")))
        begun = len(text) - run % _MOST_RUN
        start = max(text.rfind("<", -self._longest), text.rfind("[", -self._longest))
        if start >= 0 and any(word.startswith(text[start:].lower()) for word in self._words):
            return min(begun, start)
        return begun

    def _plain(self, text: str) -> None:
        if not text:
            return
        if text.strip():
            self._closing = False
            if self._doubt is not None and self._code == "fence":
                self._settle(is_code=True)
        if self._at_start and text.strip(_BEFORE_FENCE):
            self._at_start = False
        self._say(text)

    def _say(self, text: str) -> None:
        if self._strips:
            text = text.lstrip()
            self._strips = not text
        if not text:
            return
        if self._holds is None and len(self._opening) < _OPENING_SIZE:
            self._opening += text[:_OPENING_SIZE]
        self._out.append(text)
        self._length += len(text)

    def _take(self, found: str) -> None:
        if found == "\n":
            self._end_line()
        elif found[0] in "`~":
            self._mark_code(found)
        else:
            self._take_word(found)

    # Code -------------------------------------------------------------------------------------------------------------

    def _end_line(self) -> None:
        if self._doubt is not None and self._code in ("span", "opening"):
            self._settle(is_code=self._code == "opening")
        if self._over or self._void is not None:
            self._void = None if self._void is None else f"{self._void}\n"
            return
        if self._closing or self._code == "span":
            self._code = ""
        elif self._code == "opening":
            self._code = "fence"
        self._closing, self._at_start = False, True
        self._say("\n")

    def _mark_code(self, run: str) -> None:
        """A run of backticks or tildes: it opens code, closes it, or is part of it."""
        fences = self._at_start and len(run) >= _LEAST_FENCE
        if not self._code:
            opened: Span = "span" if run[0] == "`" else ""
            self._code, self._run = "opening" if fences else opened, run
        elif self._code == "fence":
            self._closing = fences and run.startswith(self._run)
        elif run == self._run:
            self._code = ""
        if self._doubt is not None and self._code in ("", "fence"):
            self._settle(is_code=True)
        self._at_start = False
        self._say(run)

    # Words of templates -----------------------------------------------------------------------------------------------

    def _take_word(self, word: str) -> None:
        if self._closing:
            self._code, self._closing = "", False
        if self._is_plain(word):
            self._plain(word)
        elif not self._code:
            self._act(word, "")
        elif self._doubt is None and word not in MARKS and not (self._code == "fence" and word not in self._ends):
            self._at_start = False
            self._doubt = word, len(self._out)
            self._say(word)
        elif self._doubt is None:
            self._plain(word)
        else:
            self._say(word)

    def _is_plain(self, word: str) -> bool:
        """Whether a word means nothing here."""
        if word.lower() == _ORPHAN:
            self.thought = self.thought or not self._code
            return not self._thinks
        if word == _STRUCK:
            self._struck = True
        return (word not in self._ends and word not in MARKS) or (word == "</s>" and self._struck)

    def _act(self, word: str, behind: str) -> None:
        """Do what a word outside of code means. `behind`: what has been read behind it."""
        if word in self._ends:
            self._over = True
        elif word in MARKS:
            if self._call_at is None:
                self._call_at, self.calls_at = len(self._out), self._length
            self._plain(word)
        else:
            self.thought = True
            self._void = behind

    def _settle(self, *, is_code: bool) -> None:
        """Decide about the word in doubt."""
        doubt, self._doubt = self._doubt, None
        if doubt is None or is_code:
            return
        word, place = doubt
        behind = "".join(self._out[place + 1 :])
        del self._out[place:]
        self._act(word, behind)
