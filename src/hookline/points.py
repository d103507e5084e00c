"""The contexts of the hook points: `add_hook` takes a context class in place of a point's name.

`matches` compares a tool's name with patterns, as the `tools=` option of a hook does. `as_tuple`
and `check_number` check arguments of your own that take a list or a number.

Generated from the table in `_hooks/points.py` by scripts/dev/generate.py. Do not edit.
"""

from hookline._base.lists import as_tuple
from hookline._base.numbers import check_number
from hookline._base.patterns import matches
from hookline._base.returns import Compaction, Guide, Hold
from hookline._hooks.points import (
    TABLE,
    AroundChat,
    AroundRequest,
    AroundToolCall,
    Context,
    OnApproval,
    OnChatAbort,
    OnChatDone,
    OnChatEnd,
    OnChatError,
    OnChatStart,
    OnDelta,
    OnHook,
    OnMessage,
    OnMessageUpdate,
    OnResponse,
    OnScopeRegister,
    OnScopeUnregister,
    OnStatus,
    OnStep,
    OnToolCallError,
    OnToolCallResult,
    PointSpec,
    PreChat,
    PreCompact,
    PreMessage,
    PreMessageUpdate,
    PreRequest,
    PreSteer,
    PreStop,
    PreToolCall,
)

__all__ = [
    "TABLE",
    "AroundChat",
    "AroundRequest",
    "AroundToolCall",
    "Compaction",
    "Context",
    "Guide",
    "Hold",
    "OnApproval",
    "OnChatAbort",
    "OnChatDone",
    "OnChatEnd",
    "OnChatError",
    "OnChatStart",
    "OnDelta",
    "OnHook",
    "OnMessage",
    "OnMessageUpdate",
    "OnResponse",
    "OnScopeRegister",
    "OnScopeUnregister",
    "OnStatus",
    "OnStep",
    "OnToolCallError",
    "OnToolCallResult",
    "PointSpec",
    "PreChat",
    "PreCompact",
    "PreMessage",
    "PreMessageUpdate",
    "PreRequest",
    "PreSteer",
    "PreStop",
    "PreToolCall",
    "as_tuple",
    "check_number",
    "matches",
]
