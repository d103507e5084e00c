"""The names in stored JSON do not change: rows and logs of earlier versions are read as before."""

import json

import msgspec

from hookline.runtimes import Effects
from hookline.storage import PendingStep

STEP = {
    "chat_id": "c1",
    "iteration": 1,
    "requests": [],
    "client_calls": [],
    "offered": ["pay"],
    "stop": None,
    "continuations": 0,
    "system": None,
    "tools": None,
    "foreign": [],
    "settings": None,
    "state": {"n": 1},
    "held": True,
    "guards": ["limits"],
    "claimed": "c2",
    "answered": ["c1.call_1"],
    "begun": ["c1.call_1"],
}
EFFECTS = {
    "state": {"n": 1},
    "gone": ["old"],
    "meta": None,
    "meta_gone": ["title"],
    "aborted": True,
    "reason": "stop",
    "seq": 7,
    "usage": None,
    "shown": True,
    "hidden": ["call_1"],
    "sent_tools": ["pay"],
}


def test_a_waiting_step_of_an_earlier_version_is_read():
    step = msgspec.convert(STEP, PendingStep)
    assert json.loads(msgspec.json.encode(step)).items() >= STEP.items()
    assert (step.offered_tools, step.locked, step.claimed_by) == (("pay",), True, "c2")
    assert (step.answer_ids, step.begun_ids) == (("c1.call_1",), ("c1.call_1",))


def test_the_effects_in_a_log_of_an_earlier_version_are_read():
    effects = msgspec.convert(EFFECTS, Effects)
    assert json.loads(msgspec.json.encode(effects)).items() >= EFFECTS.items()
    assert (effects.state_removed, effects.meta_removed) == (("old",), ("title",))
    assert (effects.text_visible, effects.hidden_calls) == (True, ("call_1",))
