"""The real local model in a whole installation: few messages, and only what must always work.

Skipped where `make local-model` has not been run. `make local-model-report` shows how often each task succeeds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.local_model.house import House, Places, running_house
from tests.local_model.pages import serve_pages
from tests.local_model.places import missing
from tests.local_model.server import local_model
from tests.local_model.tasks import TASKS, Asked, messages
from tests.processes import EXECUTABLE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.skipif(bool(missing()), reason=missing() or "-")]


@pytest.fixture(scope="session")
def house() -> Iterator[House]:
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="local-model-", dir="/var/tmp")))
        model = stack.enter_context(local_model(data / "llama-server.log"))
        pages = stack.enter_context(serve_pages())
        yield stack.enter_context(running_house(data, Places(Path(EXECUTABLE).parent, model, pages)))


def first(task: str) -> Asked:
    """The first message to tune with."""
    return messages()[task]["tune"][0]


@pytest.mark.parametrize("task", ["classify", "plan-report"])
def test_it_is_done_as_the_model_decided(house: House, task: str) -> None:
    judged = TASKS[task](house, first(task))
    assert judged.ok, judged.why
    assert not judged.raw, judged.answer


def test_a_plain_question_gets_a_plain_answer(house: House) -> None:
    judged = TASKS["plan-answer"](house, first("plan-answer"))
    assert judged.answer
    assert not judged.raw, judged.answer
