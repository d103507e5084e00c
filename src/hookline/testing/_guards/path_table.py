"""The paths of a probe: chats in which the call would run at the end if no guard stopped it.

On most paths, no answer of a person lets the call run: it was asked for in another form, too late,
or twice. On the paths that set `is_approved`, a person or a hook allows the call, so only a guard
that refuses it must hold there.
"""

from __future__ import annotations

from typing import Final

from hookline.testing._guards.basic_paths import (
    answered_by_a_hook,
    approved_too_late,
    beside_a_stop,
    changed_after_the_approval,
    changed_by_a_hook,
    changed_by_a_wrapper,
    changed_by_an_approver,
    direct,
    nobody_answers,
    not_offered,
    only_hooks,
    request_changed,
    run_again_changed,
    run_twice,
    streamed,
    tool_replaced,
)
from hookline.testing._guards.call_path import Walk
from hookline.testing._guards.durable_paths import (
    durable,
    withdrawn_before_a_replay,
    withdrawn_while_a_durable_chat_waits,
)
from hookline.testing._guards.sub_agent_calls import (
    after_a_handoff,
    below,
    handed_over_to,
    in_a_sub_agent,
    withdrawn_while_a_sub_agent_waits,
)
from hookline.testing._guards.waiting_paths import (
    answered_too_late,
    answered_twice,
    changed_by_an_answer,
    client_tool_removed,
    new_chat,
    stored_request_changed,
    withdrawn_between_two_runs,
    withdrawn_in_a_store,
    withdrawn_while_an_approver_thinks,
    withdrawn_while_it_waits,
    without_the_hooks,
)

PATHS: Final[dict[str, Walk]] = {
    "chat": direct,
    "chat_stream": streamed,
    "only_hooks=[]": only_hooks,
    "nobody can answer": nobody_answers,
    "not offered to the model": not_offered,
    "beside a call that stops the chat": beside_a_stop,
    "changed by a later hook": changed_by_a_hook,
    "changed by a wrapper": changed_by_a_wrapper,
    "run again by a wrapper": run_again_changed,
    "changed after the approval": changed_after_the_approval,
    "run twice after one approval": run_twice,
    "tool replaced before the approval": tool_replaced,
    "request changed by the approver": request_changed,
    "approved too late": approved_too_late,
    "resumed too late": answered_too_late,
    "resumed twice": answered_twice,
    "resumed without the hooks of the chat": without_the_hooks,
    "resumed with a changed request": stored_request_changed,
    "resumed after a client's tool was removed": client_tool_removed,
    "a new chat instead of an answer": new_chat,
    "in a sub-agent": in_a_sub_agent,
    "in a sub-agent of the agent": below(1),
    "three sub-agents below the agent": below(3),
    "after a handoff": after_a_handoff,
    "after a handoff to the agent": handed_over_to,
    "durable chat": durable,
    "changed by an approver": changed_by_an_approver,
    "changed by an answer of resume": changed_by_an_answer,
    "answered by a later hook": answered_by_a_hook,
    "withdrawn while an approver thinks": withdrawn_while_an_approver_thinks,
    "withdrawn between two runs": withdrawn_between_two_runs,
    "withdrawn while the call waits": withdrawn_while_it_waits,
    "withdrawn while the call waits in a store": withdrawn_in_a_store,
    "withdrawn while a sub-agent waits": withdrawn_while_a_sub_agent_waits,
    "withdrawn while a durable chat waits": withdrawn_while_a_durable_chat_waits,
    "withdrawn before a durable chat is replayed": withdrawn_before_a_replay,
}
