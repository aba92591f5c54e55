"""Tests a model before it is written into any settings: whether it answers, calls a tool, and what it is like.

`cli/init` and the page Welcome call it. In: an offer; out: a `Tried`, and how many requests its server runs at once.
Next: `app/models/model_tests.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs
from msgspec.structs import asdict

from switchboard.app.settings import Settings
from switchboard.app.setup.discovery import Offer
from switchboard.llm.spec import ModelTraits

if TYPE_CHECKING:
    from switchboard.app.models.model_tests import Tried


_BRIEF_S: Final = 15


class BriefTrial(Struct, frozen=True):
    """What came of a short test. `context`: how many tokens the model can read, if it answered."""

    tried: Tried
    context: int | None


async def try_offer(offer: Offer) -> Tried:
    """Ask the model something. A failure is an outcome, not an exception."""
    from switchboard.app.models import model_tests as tests

    settings = _settings_of(offer)
    return await tests.try_setup(settings, settings.models[0], tests.NOWHERE)


async def try_briefly(offer: Offer) -> BriefTrial:
    """Ask one thing and see how it answers; a person waits for it, so it gets 15 seconds altogether.

    A model that is slower may work all the same: `try_offer` has patience.
    """
    from switchboard.app.models import model_tests as tests

    settings = _settings_of(structs.replace(offer, profile=None), timeout=_BRIEF_S)
    [model], [as_kept] = settings.models, _settings_of(offer).models
    try:
        async with asyncio.timeout(_BRIEF_S):
            tried = await tests.try_setup(settings, model, tests.NOWHERE)
            return BriefTrial(tried, await tests.context_of(as_kept) if tried.ok else None)
    except TimeoutError:
        told = f"it did not answer within {_BRIEF_S} seconds"
        slow = "it may still be loading: test it again"
        return BriefTrial(tests.Tried(offer.name, offer.kind, offer.model, False, "timeout", told, slow), None)


async def measure_parallel(offer: Offer, timeout: float | None) -> tuple[int, bool]:
    """How many requests its server runs at once; and whether it says so itself."""
    from switchboard.app.models import model_tests as tests

    settings = _settings_of(offer, timeout=timeout)
    return await tests.parallel_requests(settings, settings.models[0], tests.NOWHERE)


def traits_of(tried: Tried) -> ModelTraits:
    """What is written of a test."""
    return ModelTraits(
        schemas=tried.schemas,
        thinks=tried.thinks,
        calls="schema" if tried.calls == "schema" else None,
        timeout=tried.timeout,
        tokens_per_second=tried.tokens_per_second,
    )


def describe_habits(tried: Tried) -> Iterator[str]:
    """The unusual properties of a model."""
    if tried.schemas is False:
        yield "its server takes no JSON Schema: butlers that plan ask it without"
    if tried.thinks:
        yield "it thinks before it answers: its answers take longer, and plans give it more tokens"
    if tried.tokens_per_second is not None:
        waits = f", so it is waited for up to {tried.timeout} s" if tried.timeout is not None else ""
        yield f"it reads about {tried.tokens_per_second:.0f} tokens a second{waits}"


def _settings_of(offer: Offer, **more: object) -> Settings:
    """Settings with this model alone."""
    values = {key: value for key, value in {**asdict(offer), **more}.items() if key != "source" and value is not None}
    return Settings.model_validate({"models": [{**values, "max_tokens": 4096}]})
