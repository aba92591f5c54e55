"""`make words`: how many mails of the corpus are read as the laws say, by client and by language, in percent.

    python -m tests.words [--faults NUMBER] [--client WORDS]

A legend below the tables says what the columns count.
"""

from __future__ import annotations

import argparse
import sys

from tests.words.measure import described, legend, measured, measured_first, tables
from tests.words.orders import in_own_words, orders


def main() -> int:
    """The exit code: 1 if a word of an order counts as the sender's."""
    options = argparse.ArgumentParser()
    options.add_argument("--faults", type=int, default=0, help="print so many mails that are not read by the laws")
    options.add_argument("--client", default="", help="only of clients whose name contains this")
    given = options.parse_args()
    print(f"{tables()}\n\n{legend()}")
    obeyed = [one.form for one in orders() if in_own_words(one)]
    print(f"\norders of others that count as the sender's words: {len(obeyed)} of {len(orders())}")
    print("".join(f"  {form}\n" for form in obeyed), end="")
    faults = [one for one in measured() if one.differs and given.client.lower() in one.case.client.lower()]
    for found in faults[: given.faults]:
        print(f"\n{described(found)}")
    for first in [one for one in measured_first() if one.lost][: given.faults]:
        print(f"\n{first.first.what}, {first.first.language}: lost {first.lost!r}")
    return 1 if obeyed else 0


if __name__ == "__main__":
    sys.exit(main())
