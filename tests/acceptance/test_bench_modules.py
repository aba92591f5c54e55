"""The benchmark of modules is run, with few objects; its times are nobody's promise."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from switchboard.bench.dav_server import objects_of, person_name
from switchboard.bench.modules import MEASURED, SIZES, measure_modules
from switchboard.modules.calendar.events import read_object
from switchboard.modules.calendar.zones import UTC_ZONE
from switchboard.modules.contacts.cards import card_of
from switchboard.modules.mirror.sync import MOST_OBJECTS
from switchboard.transport.dav.kinds import CALDAV, CARDDAV


@pytest.mark.slow
async def test_modules_are_measured_beside_their_baselines() -> None:
    result = await measure_modules(sizes=(60, 130), calls=3)
    assert [(one.what.partition(":")[0], one.objects) for one in result.syncs] == [
        (module.manifest.name, size) for module in MEASURED for size in (60, 130)
    ]
    assert len(result.look_ups) == 2 * sum(len(module.calls) for module in MEASURED)
    for one in result.look_ups:
        assert len(one.calls_ms) == len(one.selects_ms) == 3
        assert one.p50_ms <= one.p99_ms
        assert one.ratio > 0
    assert all(one.ratio > 1 and one.per_thousand_s > 0 for one in result.syncs), (
        "a sync reads, and keeps what it reads"
    )


def test_what_is_measured_is_what_people_have() -> None:
    cards, events = objects_of(CARDDAV, 200), objects_of(CALDAV, 200)
    assert card_of(cards["7.vcf"].encode()).name == " ".join(person_name(7))
    read = [read_object(text.encode(), UTC_ZONE) for text in events.values()]
    masters = [series.master for one in read for series in one.series if series.master]
    assert (len(masters), sum(bool(one.recurs) for one in masters)) == (200, 4)
    assert len({person_name(number) for number in range(10_000)}) == 10_000
    assert max(SIZES) == MOST_OBJECTS, "as many as are kept"
    assert str(datetime.now(UTC).year) in "".join(events.values())
