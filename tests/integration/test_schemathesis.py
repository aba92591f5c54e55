"""The OpenAPI against the running server: no 5xx, and every answer is what the document says."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from tests.postgres import Postgres
from tests.servers import serve_in_process
from tests.width import wide

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def api(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BaseSchema]:
    """A server in a process of its own: schemathesis asks synchronously, and minds a worker that throws dice."""
    with asyncio.Runner() as runner:
        database = runner.run(postgres.create())
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve_in_process, args=(theirs, postgres.url(database), tmp_path_factory.mktemp("data"))
    )
    server.start()
    try:
        assert ours.poll(60)
        url, token = ours.recv()
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        schema.config.update(headers={"Authorization": f"Bearer {token}"})
        yield schema
    finally:
        ours.send("end")
        server.join()
        with asyncio.Runner() as runner:
            runner.run(postgres.drop(database))


_SETTINGS = settings(
    max_examples=wide(100, 8),
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
)


def test_every_answer_is_as_documented(api: BaseSchema) -> None:
    """Not by `@schema.parametrize`: with a schema from a fixture it does not work under pytest 9."""
    tried = []
    with requests.Session() as session:
        for found in api.get_all_operations():
            assert isinstance(found, Ok), found
            operation = found.ok()
            tried.append(operation.label)
            _try(operation, session)
    assert len(tried) >= 25


def _try(operation: APIOperation[Any, Any, Any, Any], session: requests.Session) -> None:
    @_SETTINGS
    @given(case=operation.as_strategy())
    def answers_well(case: Case[Any]) -> None:
        case.query.pop("wait_s", None)  # what waiting does is tested elsewhere; here it would only take long
        if isinstance(case.body, dict):
            case.body.pop("wait_s", None)
        # Not everything that is right can be said in a schema: which channels there are, what a cursor holds.
        # It takes our token for an invented one where an operation has other headers; test_access shows who is refused.
        case.call_and_validate(session=session, excluded_checks=[positive_data_acceptance, ignored_auth])

    answers_well()
