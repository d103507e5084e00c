"""hookline: an async agent loop in which every moment of a chat is a typed hook point.

These are the names that almost every program needs. Four more modules contain nothing but names:
`hookline.events` (the events of a stream), `hookline.points` (the contexts of the hook points),
`hookline.models` (for writing model adapters) and `hookline.errors`.
"""

from hookline._agent import Agent, define_hook
from hookline._base.messages import (
    AssistantMessage,
    File,
    History,
    Image,
    Message,
    Reasoning,
    Source,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    read_message,
)
from hookline._base.returns import (
    ApprovalRequest,
    Approve,
    Ask,
    Continue,
    Deny,
    MessageChanges,
    Response,
    Stop,
    ToolFailure,
    ToolResult,
)
from hookline._base.run import Run
from hookline._chat.config import Limits
from hookline._chat.stream import ChatStream
from hookline._conversations.conversation import Conversation
from hookline._conversations.history import Repair, check_history, repair_history
from hookline._conversations.memory import MemoryStore
from hookline._conversations.store import PendingStep, Store
from hookline._hooks.bus import HookBus, NullBus, global_bus
from hookline._hooks.declared import HookDef, HookSet
from hookline._hooks.plugins import Uninstall
from hookline._hooks.points import Interceptor, Observer, Wrapper
from hookline._hooks.registration import Disposer, HookInfo
from hookline._hooks.subscribe import Subscription
from hookline._hooks.wrappers import Proceed
from hookline._model.model import ChatRequest, Model, ModelRequest, ModelResponse, Settings
from hookline._record.runtime import LocalRuntime, Runtime
from hookline._tools.check import NotRun
from hookline._tools.scopes import Scope
from hookline._tools.tool import Tool, tool
from hookline._version import __version__

__all__ = [
    "Agent",
    "ApprovalRequest",
    "Approve",
    "Ask",
    "AssistantMessage",
    "ChatRequest",
    "ChatStream",
    "Continue",
    "Conversation",
    "Deny",
    "Disposer",
    "File",
    "History",
    "HookBus",
    "HookDef",
    "HookInfo",
    "HookSet",
    "Image",
    "Interceptor",
    "Limits",
    "LocalRuntime",
    "MemoryStore",
    "Message",
    "MessageChanges",
    "Model",
    "ModelRequest",
    "ModelResponse",
    "NotRun",
    "NullBus",
    "Observer",
    "PendingStep",
    "Proceed",
    "Reasoning",
    "Repair",
    "Response",
    "Run",
    "Runtime",
    "Scope",
    "Settings",
    "Source",
    "Stop",
    "Store",
    "Subscription",
    "Text",
    "Tool",
    "ToolCall",
    "ToolFailure",
    "ToolMessage",
    "ToolResult",
    "Uninstall",
    "Usage",
    "UserMessage",
    "Wrapper",
    "__version__",
    "check_history",
    "define_hook",
    "global_bus",
    "read_message",
    "repair_history",
    "tool",
]
