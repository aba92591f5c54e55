"""What is told of health, belief and the like, by its words, whatever a model calls it. Pure.

`extraction.py` and `store/memory/facts.py` ask it about every fact. In: what a fact says, and the predicate that was
proposed; out: the one that decides who may tell it, who is shown it, and what may leave the house. It errs on the side
of too much. Next: `predicates.py`.
"""

from __future__ import annotations

import re
from typing import Final

from switchboard.core.memory.predicates import Predicate, find_predicate

_WORDS: Final = {
    "allergic_to": r"allerg|anaphyla|epi-?pen",
    "does_not_tolerate": r"intoleran|unverträglich|verträgt|vertrage|celiac|coeliac|zöliakie",
    "takes_medicine": (
        r"medication|medicine|medikament|tablette|insulin|antidepress|antibioti|blood thinner|blutverdünn"
    ),
    "has_condition": (
        r"asthma|diabet|epilep|seizure|anfall|pacemaker|herzschrittmacher|pregnan|schwanger|ha?emophil|bluter\b|dement"
        r"|depress|suicid|suizid|selbstmord|cancer|krebs|tumou?r|hiv\b|aids\b|migrän|migraine|disabilit|behinder"
        r"|bipolar|schizo|autis(m|tic)|autist|adhs\b|adhd\b|parkinson|alzheimer|alcoholi[cs]|alkoholi|abortion|abtreibung"
        r"|schlaganfall|herzinfarkt|heart (attack|condition|disease)|diagnos|illness|disease|krank"
    ),
    "treated_by": r"therap|psychiat",
    "religion": r"catholic|protestant|muslim|jewish|buddhist|hindu\b|atheist|katholisch|evangelisch|jüdisch",
    "sexuality": r"gay\b|lesbian|lesbisch|schwul|bisexu|transgender",
    "politics": r"vot(es?|ed) for|wählt (die|den|afd|spd|cdu|fdp)\b",
    "trade_union": r"trade union|gewerkschaft",
}
_SPECIAL: Final = [(re.compile(rf"\b(?:{words})", re.IGNORECASE), name) for name, words in _WORDS.items()]


def guard_predicate(predicate: Predicate, text: str) -> Predicate:
    """The predicate, unless it is a usual one and the text has words of a special one; the first of these wins."""
    if predicate.sensitivity == "special":
        return predicate
    return next((find_predicate(name) for words, name in _SPECIAL if words.search(text)), predicate)
