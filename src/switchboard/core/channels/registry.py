"""The table of channels: ours, to which `app/` adds those of plug-ins and of the settings.

Code that depends on the channel of a message looks it up here, first of all `journey/accept.py`, which refuses channels
that do not exist. Next: `ports/channel.py`, the definition of a channel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Final

from msgspec.structs import replace

from switchboard.core.calls import CALL, CALL_CHANNEL
from switchboard.core.channels import (
    discord,
    email,
    interfaces,
    irc,
    matrix,
    plain,
    signal,
    slack,
    sms,
    telegram,
    webhook,
    whatsapp,
    xmpp,
)
from switchboard.core.notices import NOTICE
from switchboard.core.schedules import Schedule, schedules_at
from switchboard.core.text.words import near, or_list
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import ConfigurationError, InvalidInput
from switchboard.ports.channel import COMMON_IMPLIES, COMMON_KEYS, PERSON_KEYS, Channel, Form, Implies, Values

OURS_ALONE: Final = {NOTICE: "notices to operators", CALL: "calls of tools"}
"""Channels whose messages only Switchboard makes."""


def _several(keys: Iterable[Mapping[str, Values]]) -> frozenset[str]:
    kinds = (one for own in keys for one in own.items())
    return frozenset(key for key, kind in kinds if isinstance(kind, Form) and kind.several)


class Channels(dict[str, Channel]):
    """Channels by name. `channels[name]` is total: an unknown channel has only its name."""

    def __init__(self, channels: Iterable[Channel], schedules: Sequence[Schedule] = ()) -> None:
        super().__init__((channel.name, channel) for channel in channels)
        self._schedules = tuple(schedules)
        own = {key: keys for one in self.values() for key, keys in one.implies.items()}
        self.implies: Implies = {**COMMON_IMPLIES, **own}
        """What the keys of all channels pin down besides themselves."""
        self.several = _several((COMMON_KEYS, PERSON_KEYS, *(one.keys for one in self.values()))) | {"schedule"}
        """The keys of facts that may have several values."""
        common = COMMON_KEYS | {"schedule": _schedule_among(self._schedules)}
        own_keys = {name: common | channel.keys for name, channel in self.items()}
        self._keys = {name: keys | PERSON_KEYS if self[name].vouched else keys for name, keys in own_keys.items()}
        self._every_key = (
            common | PERSON_KEYS | {key: values for known in self._keys.values() for key, values in known.items()}
        )

    def __missing__(self, name: str) -> Channel:
        return CALL_CHANNEL if name == CALL else Channel(name=name)

    def schedule_at(self, moment: datetime) -> str | None:
        """The fact `schedule` of a message that arrived then: the names of the schedules that include it."""
        return schedules_at(self._schedules, moment) if self._schedules else None

    def of(self, envelope: Envelope) -> Channel:
        """The channel of this envelope, after checking that the provider is one of the channel's.

        Raises InvalidInput with the code `unknown_channel` (field `source.channel`), `invalid_source_provider` (field
        `source.provider`) or `foreign_sender` (field `sender.identity`); the message names the valid values.
        """
        name, provider = envelope.source.channel, envelope.source.provider
        channel = self.known(name, "source.channel")
        if provider not in channel.providers:
            message = f"channel {name!r} is provided by {or_list(channel.providers)}, not by {provider!r}"
            raise InvalidInput(message, code="invalid_source_provider", field="source.provider")
        if channel.alone and envelope.sender.identity != envelope.source.endpoint_identity:
            message = f"the sender of a message of {name!r} must have the name of its endpoint"
            raise InvalidInput(message, code="foreign_sender", field="sender.identity")
        return channel

    def known(self, name: str, field: str) -> Channel:
        """The channel of this name. Raises InvalidInput with the code `unknown_channel` for this field."""
        channel = self.get(name)
        if channel is None:
            meant = near(name, self)
            hint = f"did you mean {or_list(meant)}?" if meant else f"known here: {', '.join(sorted(self))}"
            raise InvalidInput(f"there is no channel {name!r}; {hint}", code="unknown_channel", field=field)
        return channel

    def keys_of(self, name: str) -> Mapping[str, Values]:
        """The keys that a filter of this channel may name. For `*` every key: a fact that is missing never matches.

        The same for an unknown channel, which is one mistake and should not be reported again for every key.
        """
        return self._keys.get(name, self._every_key)

    def adding(self, plug_ins: Iterable[Channel], providers: Mapping[str, Iterable[str]]) -> Channels:
        """These channels plus those of plug-ins and of the settings, which are names with their `providers`.

        Raises ConfigurationError for a plug-in that takes a name or the key of a fact from another channel, and for the
        name of a channel whose messages only Switchboard makes.
        """
        table = Channels(self.values(), self._schedules)
        for one in plug_ins:
            if one.name in (*OURS_ALONE, *table) or any(
                table._every_key.get(key, kind) != kind for key, kind in one.keys.items()
            ):
                raise ConfigurationError(f"the channel {one.name!r} of a plug-in has the name or a fact of another")
            table = Channels((*table.values(), one), self._schedules)
        if ours := next((name for name in OURS_ALONE if name in providers), None):
            raise ConfigurationError(
                f"channels: {ours!r} is the channel of {OURS_ALONE[ours]}; nobody else writes there"
            )
        named = (replace(table[name], providers=frozenset(given)) for name, given in providers.items())
        return Channels((*table.values(), *named), self._schedules)


def _schedule_among(schedules: Sequence[Schedule]) -> Form:
    names = [one.name for one in schedules]
    what = or_list(names) if names else "there is none; add one under [schedules]"
    pattern = re.compile("|".join(map(re.escape, names)) or "(?!)")
    return Form(pattern, f"the name of a schedule: {what}", several=True)


CHANNELS: Final = Channels(
    chain.from_iterable(
        part.CHANNELS
        for part in (
            telegram,
            email,
            slack,
            discord,
            webhook,
            whatsapp,
            matrix,
            xmpp,
            irc,
            signal,
            sms,
            interfaces,
            plain,
        )
    )
)
"""Our own channels."""
