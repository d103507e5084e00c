"""Serve an agent to web UIs: three protocols, an ASGI application, a chat page.

The encoders turn the events of a chat into bytes and need no web framework: `AiSdkEncoder` (the UI
message stream of the Vercel AI SDK), `AgUiEncoder` (AG-UI 1.0), `NativeEncoder` (hookline's own).
`app(agent)` serves all three; `chat_response` is for a route of your own in Starlette or FastAPI.
Both need `pip install "hookline[web]"`.
"""

from hookline.web._ag_ui import AgUiEncoder
from hookline.web._ag_ui_messages import from_ag_ui_messages, parse_ag_ui, to_ag_ui_messages
from hookline.web._ai_sdk import AiSdkEncoder
from hookline.web._ai_sdk_messages import from_ui_messages, to_ui_messages
from hookline.web._ai_sdk_request import parse_ai_sdk
from hookline.web._app import app, chat_response, encode, resume_response
from hookline.web._detached import resume_detached
from hookline.web._incoming import Incoming, Refused
from hookline.web._index import conversation_key, read_conversation_key
from hookline.web._live import Caps
from hookline.web._native import HookFired, NativeEncoder
from hookline.web._native_messages import parse_native, to_native_messages
from hookline.web._page import Page
from hookline.web._points import OnClientAttached, OnClientDetached, OnFeedback
from hookline.web._runs import Runs
from hookline.web._site import Site
from hookline.web._statuses import error_response, status_of

__all__ = [
    "AgUiEncoder",
    "AiSdkEncoder",
    "Caps",
    "HookFired",
    "Incoming",
    "NativeEncoder",
    "OnClientAttached",
    "OnClientDetached",
    "OnFeedback",
    "Page",
    "Refused",
    "Runs",
    "Site",
    "app",
    "chat_response",
    "conversation_key",
    "encode",
    "error_response",
    "from_ag_ui_messages",
    "from_ui_messages",
    "parse_ag_ui",
    "parse_ai_sdk",
    "parse_native",
    "read_conversation_key",
    "resume_detached",
    "resume_response",
    "status_of",
    "to_ag_ui_messages",
    "to_native_messages",
    "to_ui_messages",
]
