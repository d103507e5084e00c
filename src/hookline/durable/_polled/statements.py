"""The longer statements on the tables: add a job, list jobs, record, finish."""

from __future__ import annotations

from typing import Final

from hookline.durable._polled.database import Bulk

ADD: Final = Bulk(
    "INSERT INTO hookline_job "
    "(queue, id, input, agent, conversation, key, priority, trace, created) "
    "SELECT i_queue, i_id, i_input, i_agent, i_conversation, i_key, i_priority, i_trace, TIME() "
    "FROM item WHERE TRUE ON CONFLICT DO NOTHING RETURNING id",
    (
        ("i_queue", "text"),
        ("i_id", "text"),
        ("i_input", "text"),
        ("i_agent", "text"),
        ("i_conversation", "text"),
        ("i_key", "text"),
        ("i_priority", "int"),
        ("i_trace", "text"),
    ),
    (1,),
)
_STATE: Final = (
    "CASE WHEN outcome IS NOT NULL THEN state "
    "WHEN owner IS NOT NULL AND (suspect IS NULL OR EXISTS (SELECT 1 FROM hookline_job_life l "
    "WHERE l.queue = j.queue AND l.id = j.id AND l.owner = j.owner AND l.counts)) THEN 'running' "
    "WHEN EXISTS (SELECT 1 FROM hookline_job_question q WHERE q.queue = j.queue AND q.id = j.id "
    "AND q.answer IS NULL) THEN 'waiting' ELSE 'queued' END"
)
LIST: Final = f"""
    SELECT id, state, agent, key, conversation, version, created, ended, deaths FROM (
        SELECT id, {_STATE} AS state, agent, key, conversation, version, created, ended, deaths
        FROM hookline_job j WHERE queue = $1
        AND (CAST($2 AS text) IS NULL OR id = $2) AND (CAST($3 AS text) IS NULL OR agent = $3)
        AND (CAST($4 AS text) IS NULL OR key = $4)
        AND (CAST($5 AS text) IS NULL OR substr(conversation, 1, length($5)) = $5)
        AND (CAST($6 AS double precision) IS NULL OR created < $6)
    ) chat WHERE CAST($7 AS text) IS NULL OR state = $7 ORDER BY created, id LIMIT $8
"""
# No owner is locked: the place `n` in the record can be taken only once, so that of two lives that
# write at the same moment one fails, and is over.
APPEND: Final = Bulk(
    "INSERT INTO hookline_job_log (queue, id, n, at, data) "
    "SELECT queue, id, i_n, TIME(), i_data FROM item JOIN hookline_job "
    "ON queue = i_queue AND id = i_id AND owner = i_owner "
    "WHERE outcome IS NULL ON CONFLICT DO NOTHING RETURNING id, n",
    (
        ("i_queue", "text"),
        ("i_id", "text"),
        ("i_owner", "text"),
        ("i_n", "int"),
        ("i_data", "bytea"),
    ),
    (1, 3),
)
FINISH: Final = Bulk(
    "UPDATE hookline_job SET owner = NULL, lease = NULL, outcome = i_outcome, state = i_state, "
    "ended = TIME() FROM item WHERE queue = i_queue AND id = i_id AND owner = i_owner RETURNING id",
    (
        ("i_queue", "text"),
        ("i_id", "text"),
        ("i_owner", "text"),
        ("i_outcome", "text"),
        ("i_state", "text"),
    ),
    (1,),
)


def forgiven(place: str) -> str:
    """Return the assignments that forget the deaths of a job if the parameter is true."""
    flag = f"CAST({place} AS boolean)"
    values = {"deaths": "0", "stalls": "0", "suspect": "NULL"}
    assignments = [f"{k} = CASE WHEN {flag} THEN {v} ELSE {k} END" for k, v in values.items()]
    return ", ".join(assignments)
