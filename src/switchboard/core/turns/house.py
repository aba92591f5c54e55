"""Commands that Switchboard itself answers besides `/stop` and decisions, and what looks like a slip of one. Pure.

`journey/accept.py` asks `house_command` about each message while it is stored, and lets rules that name the command
come first; `journey/stopping.py` answers. Next: `command.py`, which says where in a message a command may stand.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct

from switchboard.core.people.strangers import code_in
from switchboard.core.turns.asking import is_answer
from switchboard.core.turns.command import command_text, has_command
from switchboard.core.turns.memory_command import HOW, MemoryWish, has_verb, read_wish
from switchboard.core.turns.stop import COMMAND
from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel
from switchboard.ports.chat import is_own

HouseName = Literal["start", "help", "new", "link", "memory", "slip"]

NEW: Final = (
    "A new conversation begins here. What was said before is kept, but is not read any more; what was remembered stays."
)
START: Final = "Hello! Write what you want in your own words. /help says which commands there are."
HELP: Final = """Write what you want in your own words. There are also commands:
/new - begin a new conversation: what was said before is not read any more
/stop - end what is running for you here
/link - have another account of yours count as you
/memory - see what is remembered of you, correct it or have it forgotten
/help - show this
When something needs your decision, you are told the command for it."""
_ALONE: Final[dict[str, HouseName]] = {"/start": "start", "/help": "help", "/new": "new"}
_ANSWERS: Final = {"start": START, "help": HELP, "new": NEW}
_LINK: Final = "/link"
"""Only Switchboard's if it stands alone or before a code: `/list` is no slip of it, and no other words are for it."""
_MEMORY: Final = "/memory"
_HALF_CODE: Final = "That is no whole code. Send /link and the code as you were given it, and nothing else."
_HOW: Final = {
    "/approve": "To approve something, send /approve and the id that the request names, and nothing else.",
    "/refuse": "To refuse something, send /refuse and the id that the request names; a reason may follow.",
    "/answer": "To answer a question, send /answer, the id that the question names, and your answer.",
}
_WORD: Final = re.compile(r"(/[A-Za-z]{2,12})(?:@(\S{1,80}))?(?:\s+(.*))?", re.DOTALL)
_PAYLOAD: Final = re.compile(r"[\w-]{1,64}", re.ASCII)
"""What a link to a bot may give to `/start`."""
_CODE_LIKE: Final = re.compile(r"[A-Za-z0-9]{1,20}(?:[ -]+[A-Za-z0-9]{1,20})?[ .!?]*")
_MOST_EXTRA: Final = 40
"""Maximum characters behind a command that takes none for it to be a slip: what is longer means something else."""
_SURE: Final = 4
"""Letters of a command that is recognised with a slip: among shorter ones nearly every word is one."""


class HouseCommand(Struct, frozen=True):
    """Which command a text is. `account`: the name behind its `@`. `answer`: what its sender is told.

    `code`: what stands behind `/link`, to which there is no answer without looking the sender up; so it is with what is
    wanted with `/memory`.
    """

    name: HouseName
    account: str | None
    answer: str
    code: str | None = None
    memory: MemoryWish | None = None

    @property
    def switches_learning(self) -> bool | None:
        """Whether its conversation is learned from from now on; None: that stays as it is."""
        return None if self.memory is None else {"on": True, "off": False}.get(self.memory.verb)


def house_command(envelope: Envelope, channel: Channel) -> HouseCommand | None:
    """The command that a message is, if a person wrote it, and certainly its sender.

    A slip only in a chat, and not in a reply, which may answer a question.

    Groups add the name of the account (`/stop@house_bot`): with another's name, the command is not for us.
    """
    if not has_command(envelope, channel.command_mark):
        return None
    found = command_of(command_text(envelope, channel.command_mark))
    if found is None or (found.account is not None and not is_own(envelope, found.account)):
        return None
    if found.name == "slip" and ("command" not in channel.keys or channel.replied_to(envelope) is not None):
        return None
    return found if is_answer(envelope, channel) else None


def command_of(text: str) -> HouseCommand | None:
    """The command that a text is, or a slip of one."""
    said = text.strip()
    bare = said.rstrip(".!?")  # people end a sentence; what they mean is a slip, not the command itself
    found = _WORD.fullmatch(bare)
    if found is None:
        return None
    word, account, extra = found[1].lower(), found[2], (found[3] or "").strip()
    if word == _LINK:
        return _link_command(account, extra)
    if word == _MEMORY:
        return _memory_command(account, extra)
    name = _ALONE.get(word)
    if name is not None and bare == said and (not extra or (name == "start" and _PAYLOAD.fullmatch(extra))):
        return HouseCommand(name, account, _ANSWERS[name])
    answer = _slip(word, extra)
    return HouseCommand("slip", account, answer) if answer else None


def _link_command(account: str | None, extra: str) -> HouseCommand | None:
    """With a code or without; what may be most of one goes to no butler either."""
    code = code_in(extra)
    if code is not None or not extra:
        return HouseCommand("link", account, "", code)
    return HouseCommand("slip", account, _HALF_CODE) if _CODE_LIKE.fullmatch(extra) else None


def _memory_command(account: str | None, extra: str) -> HouseCommand | None:
    wish = read_wish(extra)
    if wish is not None:
        return HouseCommand("memory", account, "", memory=wish)
    if len(extra) > _MOST_EXTRA:
        return None
    # whoever wants something forgotten must not be told by a model that it is, on whatever channel
    return HouseCommand("memory" if has_verb(extra) else "slip", account, HOW)


def _slip(word: str, extra: str) -> str:
    """What somebody is told who has nearly written a command; empty: it is something else."""
    if word in _HOW:
        return _HOW[word]
    if word in _ALONE or word == COMMAND:
        return f"Did you mean {word}? Send it alone, with nothing behind it." if len(extra) <= _MOST_EXTRA else ""
    if extra:
        return ""
    meant = next((one for one in (*_ALONE, COMMAND, *_HOW, _MEMORY) if len(one) > _SURE and _is_near(word, one)), None)
    return "" if meant is None else f"Did you mean {meant}? If not, write it without the slash."


def _is_near(word: str, meant: str) -> bool:
    """Whether one letter is wrong, missing or too many, or two neighbours have changed places."""
    start = next((n for n, (a, b) in enumerate(zip(word, meant, strict=False)) if a != b), min(len(word), len(meant)))
    ours, theirs = word[start:], meant[start:]
    swapped = ours[:2] == theirs[1::-1] and len(theirs) > 1 and ours[2:] == theirs[2:]
    return swapped or ours[1:] == theirs[1:] or ours[1:] == theirs or ours == theirs[1:]
