"""Which texts may be given to a model of vectors: health, money and secrets stay on one's own machines. Pure.

Whoever has vectors made asks `may_embed` for each text; `llm/remote_embedder.py` itself sends nothing that reads like
one of these. In: a model, a text and its predicate; out: yes or no. Next: `ports/embedder.py`.
"""

from __future__ import annotations

import re
from typing import Final

from switchboard.core.memory.predicates import OTHER, Predicate, may_leave
from switchboard.core.text.secret_words import has_secret
from switchboard.ports.embedder import EmbeddingModel

_HEALTH: Final = (
    r"\b(?:anaphyla|epi-?pen|pacemaker|pregnan|medicat|medicine|medical|co?eliac|dementia|depress|anxiety|cancer|fever"
    r"|disease|illness|symptom|hospital|surger|clinic|doctor|dentist|nurses?\b|prescription|biops|inhal[ae]|hearing aid"
    r"|blood (?:type|group|pressure|sugar|thinner|test)|vaccin|disabilit|pills?\b|hiv\b|op\b|reha\b"
    r"|vertr[aä]g(?:t|e|en|st)\b)"
    r"|allerg|asthma|diabet|insulin|epilep|seizure|intoleran|ha?emophil|suicid|suizid|tumou?r|diagnos|therap|psychiatr"
    r"|psycholog|operation|\d ?mg\b|tablet(?:s|te|ten)\b|krank|gesundheit|schwanger|medikament|unvertr[aä]g|z[oö]liakie"
    r"|bluter\b|blut(?:gruppe|druck|zucker|verd|test)|demenz|krebs\b|anf[aä]lle?\b|schrittmacher|impf|behinder|arzt\b"
    r"|[aä]rzt(?:e|in)|klinik|fieber|h[oö]rger[aä]t|rezept\b|pflegegrad"
)
_MONEY: Final = (
    r"\b(?:salar(?:y|ies)|wages?\b|income|earn(?:s|ed|ing)?\b|bank(?! holiday)|account number|debts?\b|loans?\b"
    r"|mortgage|owe[sd]?\b|tax(?:es)?\b|insur|pension|rents?\b|verdien|schuld(?:e|en|est|et)?\b|miete\b)"
    r"|credit|kredit|gehalt\b|lohn\b|einkommen|konto\b|schulden\b|darlehen|hypothek|steuern?\b|finanzamt|rente\b|versicher"
    r"|steuer(?:nummer|berat|bescheid|erkl)|[€£$] ?\d|\d ?(?:[€£$]|(?:euros?|eur|pounds?|quid|dollars?)\b)"
)
_PRIVATE: Final = re.compile(rf"{_HEALTH}|{_MONEY}", re.IGNORECASE)
"""English and German words of health and money. A net below the table of predicates: it holds questions, which have no
predicate, and what a model has called `other`. It is neither complete nor exact: a word too many costs one vector."""


def may_embed(model: EmbeddingModel, text: str, predicate: Predicate = OTHER) -> bool:
    """Whether this model may be given a text. A question has no predicate."""
    return model.local or (may_leave(predicate) and not is_private(text))


def is_private(text: str) -> bool:
    """Whether a text reads as if it were about health or money, or held a secret."""
    return _PRIVATE.search(text) is not None or has_secret(text)
