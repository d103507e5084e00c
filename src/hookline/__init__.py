"""hookline: an async agent loop in which every moment of a chat is a typed hook point.

The face: the names that almost every program needs. The rest of it stands in four files beside
it, which like this one hold nothing but names: `hookline.events` (what a stream gives),
`hookline.points` (the contexts of the hook points), `hookline.models` (for writers of model
adapters) and `hookline.errors`.
"""

from hookline._agent import Agent, define_hook
from hookline._bus import HookBus, NullBus
from hookline._config import Limits
from hookline._conversation import Conversation
from hookline._history import Repair, check_history, repair_history
from hookline._memory import MemoryStore
from hookline._messages import (
    AssistantMessage,
    File,
    History,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    read_message,
)
from hookline._model import ChatRequest, Model, ModelRequest, ModelResponse, Settings
from hookline._outcomes import (
    ApprovalRequest,
    Approve,
    Ask,
    Continue,
    Deny,
    MessageChanges,
    Response,
    Stop,
    ToolError,
    ToolResult,
)
from hookline._plugins import Uninstall
from hookline._points import Interceptor, Observer, Wrapper
from hookline._proceed import Proceed
from hookline._registration import Disposer, HookDef, HookInfo
from hookline._run import Run
from hookline._runtime import LocalRuntime, Runtime
from hookline._scopes import Scope
from hookline._store import PendingStep, Store
from hookline._stream import ChatStream
from hookline._subscribe import Subscription
from hookline._tools import Tool, tool
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
    "Stop",
    "Store",
    "Subscription",
    "Text",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolMessage",
    "ToolResult",
    "Uninstall",
    "Usage",
    "UserMessage",
    "Wrapper",
    "__version__",
    "check_history",
    "define_hook",
    "read_message",
    "repair_history",
    "tool",
]
