"""A few of the tries of `scripts/dev/nested-approvals`."""

import pytest
from tests._postgres import database_of_our_own
from tests.approvals.nested_kills import ENGINES, try_all
from tests.durable._engines import Missing, places

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
TRIES = 3


@pytest.mark.parametrize("place", ["sqlite store", "postgres store"])
def test_questions_of_sub_agents_outlive_their_process_in_a_store(place, tmp_path):
    if place == "sqlite store":
        assert try_all(place, f"sqlite:///{tmp_path}/chats.db", TRIES, 1, tmp_path) == []
    else:
        with database_of_our_own("nested_tests") as url:
            assert try_all(place, url, TRIES, 1, tmp_path) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_questions_of_sub_agents_outlive_the_worker_of_a_durable_chat(engine, tmp_path):
    with places((engine,)) as found:
        if isinstance(found[engine], OSError | Missing):
            pytest.skip(str(found[engine]))
        assert try_all(engine, found[engine], TRIES, 1, tmp_path) == []
