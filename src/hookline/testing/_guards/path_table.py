"""The paths of a probe: chats in which the call would run at the end if no guard stopped it.

On most paths, no answer of a person lets the call run: it was asked for in another form, too late,
or twice. On the paths that set `is_approved`, a person or a hook allows the call, so only a guard
that refuses it must hold there.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from hookline.testing._guards import basic_paths, durable_paths, sub_agent_calls, waiting_paths
from hookline.testing._guards.call_path import Walk

PATHS: Final[dict[str, Walk]] = {
    "chat": basic_paths.direct,
    "chat_stream": basic_paths.streamed,
    "only_hooks=[]": basic_paths.only_hooks,
    "nobody can answer": basic_paths.nobody_answers,
    "not offered to the model": basic_paths.not_offered,
    "beside a call that stops the chat": basic_paths.beside_a_stop,
    "changed by a later hook": basic_paths.changed_by_a_hook,
    "changed by a wrapper": basic_paths.changed_by_a_wrapper,
    "run again by a wrapper": basic_paths.run_again_changed,
    "changed after the approval": basic_paths.changed_after_the_approval,
    "run twice after one approval": basic_paths.run_twice,
    "tool replaced before the approval": basic_paths.tool_replaced,
    "request changed by the approver": basic_paths.request_changed,
    "approved too late": basic_paths.approved_too_late,
    "resumed too late": waiting_paths.answered_too_late,
    "resumed twice": waiting_paths.answered_twice,
    "resumed without the hooks of the chat": waiting_paths.without_the_hooks,
    "resumed with a changed request": waiting_paths.stored_request_changed,
    "resumed after a client's tool was removed": waiting_paths.client_tool_removed,
    "a new chat instead of an answer": waiting_paths.new_chat,
    "in a sub-agent": sub_agent_calls.in_a_sub_agent,
    "in a sub-agent of the agent": partial(sub_agent_calls.below, 1),
    "three sub-agents below the agent": partial(sub_agent_calls.below, 3),
    "after a handoff": sub_agent_calls.after_a_handoff,
    "after a handoff to the agent": sub_agent_calls.handed_over_to,
    "durable chat": durable_paths.durable,
    "changed by an approver": basic_paths.changed_by_an_approver,
    "changed by an answer of resume": waiting_paths.changed_by_an_answer,
    "answered by a later hook": basic_paths.answered_by_a_hook,
    "withdrawn while an approver thinks": waiting_paths.withdrawn_while_an_approver_thinks,
    "withdrawn between two runs": waiting_paths.withdrawn_between_two_runs,
    "withdrawn while the call waits": waiting_paths.withdrawn_while_it_waits,
    "withdrawn while the call waits in a store": waiting_paths.withdrawn_in_a_store,
    "withdrawn while a sub-agent waits": sub_agent_calls.withdrawn_while_a_sub_agent_waits,
    "withdrawn while a durable chat waits": durable_paths.withdrawn_while_a_durable_chat_waits,
    "withdrawn before a durable chat is replayed": durable_paths.withdrawn_before_a_replay,
}
