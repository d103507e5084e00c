"""Testing agents: a scripted model, a recorder of hooks, strict checks, and order without sleeps.

    model = ScriptedModel([call("weather", city="Paris")], "It is sunny.")
    with model, record(Agent(model, tools=[weather])) as recorder: ...

Everything here is public, and uses only the public API of hookline. The checks raise AssertionError
or HistoryError.
"""

from hookline import check_history
from hookline.testing._descriptions import event_line, message_line
from hookline.testing._events import collect, text_of_events
from hookline.testing._expect import Expectation, expect
from hookline.testing._guards.call_path import CallPath, LeftOutError, Passage, Walk
from hookline.testing._guards.probe import (
    Expected,
    Probe,
    assert_asked,
    assert_denied,
    assert_redacted,
    probe,
)
from hookline.testing._hook_recorder import Recorder, record
from hookline.testing._model_server import Failure, ModelServer
from hookline.testing._prefix import assert_prefix_kept
from hookline.testing._request_checks import validate_request
from hookline.testing._script import ScriptedModel, ScriptError
from hookline.testing._spans import Spans, TracedEvent, TracedSpan, spans
from hookline.testing._time import Sequencer, TestRuntime
from hookline.testing._turn import Answer, Part, ScriptTurn, Turn, call, raw_call

__all__ = [
    "Answer",
    "CallPath",
    "Expectation",
    "Expected",
    "Failure",
    "LeftOutError",
    "ModelServer",
    "Part",
    "Passage",
    "Probe",
    "Recorder",
    "ScriptError",
    "ScriptTurn",
    "ScriptedModel",
    "Sequencer",
    "Spans",
    "TestRuntime",
    "TracedEvent",
    "TracedSpan",
    "Turn",
    "Walk",
    "assert_asked",
    "assert_denied",
    "assert_prefix_kept",
    "assert_redacted",
    "call",
    "check_history",
    "collect",
    "event_line",
    "expect",
    "message_line",
    "probe",
    "raw_call",
    "record",
    "spans",
    "text_of_events",
    "validate_request",
]
