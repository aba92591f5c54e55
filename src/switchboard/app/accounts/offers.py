"""What can be connected: the channels of installed packages, with what each asks for. Next: `questions.py`."""

from __future__ import annotations

from contextlib import suppress

from msgspec import Struct

from switchboard.app.accounts.questions import AccountQuestion, further_questions, questions_of
from switchboard.app.runtime import Runtime
from switchboard.connectors.kernel.accounts import connectable, manifest_of
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.strangers import Policy, owner_by_code_mistake
from switchboard.domain.errors import ConfigurationError, NotFound
from switchboard.domain.routing import MODEL_ENGINES, SystemId
from switchboard.ports.connector import Manifest, Secret, SignInPreset
from switchboard.transport.oauth.clients import has_tenants
from switchboard.transport.oauth.providers import PROVIDERS


class ConsentOffer(Struct, frozen=True):
    """A provider at which one consents. `client_files`, `one_week` as in `OAuthProvider`.

    `tenants`: a client may be limited to one organisation.
    """

    provider: str
    client_files: bool
    tenants: bool
    one_week: bool


class ChannelOffer(Struct, frozen=True):
    """A channel, or a mailbox at a provider at which one signs in by OAuth 2, as `switchboard channels add` names it.

    `consent` is there for the latter. `further`: settings that can be left alone. `strangers`: who may write unless one
    says otherwise. `makes_owners`: a code can make its sender an owner. `derives`: answers may follow from others, so
    that none is certainly missing.
    """

    name: str
    title: str
    steps: tuple[str, ...]
    to_paste: str
    questions: tuple[AccountQuestion, ...]
    further: tuple[AccountQuestion, ...]
    secrets: tuple[Secret, ...]
    strangers: Policy
    makes_owners: bool
    derives: bool
    consent: ConsentOffer | None = None

    @property
    def effort(self) -> tuple[int, int, str]:
        """For an order that begins with the easiest."""
        answers = sum(one.required for one in self.questions) + sum(not one.optional for one in self.secrets)
        return answers, sum(map(len, self.steps)), self.title.lower()


def list_offers() -> list[ChannelOffer]:
    """The easiest first, then providers; without packages that cannot be loaded."""
    found: list[ChannelOffer] = []
    for name in connectable():
        with suppress(ConfigurationError):
            found += _offers_of(manifest_of(name))
    return sorted(found, key=lambda one: (one.consent is not None, one.effort))


def find_offer(name: str) -> ChannelOffer:
    """The channel or provider of this name. Raises NotFound."""
    if found := next((one for one in list_offers() if one.name == name), None):
        return found
    raise NotFound(f"there is no channel {name[:64]!r} to connect")


def butlers_with_tools(runtime: Runtime) -> list[SystemId]:
    """The active butlers whose engine uses tools for owners."""
    members = runtime.rule_book.rules.members.values()
    return sorted(one.system_id for one in members if one.number == 1 and one.active and one.engine in MODEL_ENGINES)


def _offers_of(manifest: Manifest) -> list[ChannelOffer]:
    own = ChannelOffer(
        name=manifest.name,
        title=manifest.platform,
        steps=manifest.steps,
        to_paste=manifest.to_paste,
        questions=tuple(questions_of(manifest)),
        further=tuple(further_questions(manifest)),
        secrets=manifest.secrets,
        strangers=manifest.strangers,
        makes_owners=owner_by_code_mistake(CHANNELS[manifest.channel]) is None,
        derives=manifest.usual is not None,
    )
    return [own, *(_offer_of_preset(own, name, preset) for name, preset in manifest.presets.items())]


def _offer_of_preset(own: ChannelOffer, name: str, preset: SignInPreset) -> ChannelOffer:
    provider = PROVIDERS[preset.provider]
    return ChannelOffer(
        name=name,
        title=preset.title,
        steps=preset.steps,
        to_paste="",
        questions=(),
        further=(),
        secrets=(),
        strangers=own.strangers,
        makes_owners=own.makes_owners,
        derives=own.derives,
        consent=ConsentOffer(
            provider.title, provider.client_files, tenants=has_tenants(provider), one_week=provider.one_week
        ),
    )
