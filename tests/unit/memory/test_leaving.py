"""What a server of others may be given for a vector: nothing of health, money or secrets."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from switchboard.core.memory.leaving import may_embed
from switchboard.core.memory.predicates import PREDICATES
from switchboard.ports.embedder import EmbeddingModel

REMOTE = EmbeddingModel("m", "1", 4, 512, frozenset({"en"}))

STAYS = (
    "Which nuts is Noor allergic to?",
    "Ann has been diagnosed with something rare",
    "Wann war Noor zuletzt beim Hausarzt?",
    "Ben verträgt keine Milch",
    "Who is pregnant?",
    "The repair was 210 quid",
    "Die Miete kostet jetzt 900 Euro",
    "Ann earns more than Ben",
    "Wie hoch ist unser Kredit?",
    "The IBAN is DE89 3704 0044 0532 0130 00",
    "the wifi password is hunter2",
    "my key is sk-abcdef123456",
)
LEAVES = (
    "Who repaired the boiler in March?",
    "Frau Müller hat den Schlüssel für den Keller",
    "Ann likes tea and dislikes loud music",
    "Wann beginnt das Turnier am Samstag?",
    "Mila steuert das Boot, Holger ist unschuldig, und die Federung heißt suspension",
    "The bank holiday ride begins at 9",
    "The bicycle has the number AB-1234",
    "",
)


@pytest.mark.parametrize("text", STAYS)
def test_what_reads_like_health_money_or_a_secret_stays(text: str) -> None:
    assert not may_embed(REMOTE, text)
    assert may_embed(replace(REMOTE, local=True), text)


@pytest.mark.parametrize("text", LEAVES)
def test_what_is_usual_may_leave_unless_its_predicate_says_otherwise(text: str) -> None:
    assert may_embed(REMOTE, text)
    told = {name: may_embed(REMOTE, text, one) for name, one in PREDICATES.items()}
    assert not told["allergic_to"]
    assert not told["earns"]
    assert told == {name: one.sensitivity == "usual" for name, one in PREDICATES.items()}
