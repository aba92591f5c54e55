"""`make kit`: every planted defect against every law, and connectors that are killed twenty times at every point.

Each defect fails the laws that it breaks and no other. The tables show, for each channel and point, how many kills
there were, and how many messages or parts were lost, doubled, repeated with a mark, or are uncertain.
"""

from __future__ import annotations
