"""What would this policy have done last week? Plays recorded chats again, with other hooks.

    report = await replay(store, agent, hooks=[refund_limit])
    print(report.table())

Each chat is played twice: with the agent's hooks as they are, and with the change. A verdict is a
difference between the two. The model writes what it wrote, and tools return what they returned. No
model, tool, observer, telemetry or store is called. `fork` makes a conversation that
goes on live from a step of a record.

Experimental: this module may change in a minor version.
"""

from hookline.replay._fork import fork
from hookline.replay._records import CallRecord, Record, record_of_log, records_of
from hookline.replay._replay import replay
from hookline.replay._report import Report, Verdict
from hookline.replay._sources import records_in

__all__ = [
    "CallRecord",
    "Record",
    "Report",
    "Verdict",
    "fork",
    "record_of_log",
    "records_in",
    "records_of",
    "replay",
]
