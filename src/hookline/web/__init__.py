"""Serve an agent to web UIs: three protocols, an ASGI application, a chat page.

The encoders turn the events of a chat into bytes and need no web framework: `AiSdkEncoder` (the UI
message stream of the Vercel AI SDK), `AgUiEncoder` (AG-UI 1.0), `NativeEncoder` (hookline's own).
`app(agent)` serves all three; `chat_response` is for a route of your own in Starlette or FastAPI.
Both need `pip install "hookline[web]"`.
"""

from hookline.web._app import app, chat_response, encode, resume_response
from hookline.web._http.request_reply import Refused
from hookline.web._page.files import Page
from hookline.web._protocols.ag_ui.encoder import AgUiEncoder
from hookline.web._protocols.ag_ui.messages import (
    from_ag_ui_messages,
    parse_ag_ui,
    to_ag_ui_messages,
)
from hookline.web._protocols.ai_sdk.encoder import AiSdkEncoder
from hookline.web._protocols.ai_sdk.messages import from_ui_messages, to_ui_messages
from hookline.web._protocols.ai_sdk.request import parse_ai_sdk
from hookline.web._protocols.incoming import Incoming
from hookline.web._protocols.native.encoder import NativeEncoder
from hookline.web._protocols.native.messages import parse_native, to_native_messages
from hookline.web._runs.backlog import HookFired
from hookline.web._runs.hook_points import OnClientAttached, OnClientDetached, OnFeedback
from hookline.web._runs.registry import Runs
from hookline.web._runs.run import Caps
from hookline.web._site.application import Site
from hookline.web._site.conversations import conversation_key, read_conversation_key
from hookline.web._site.error_statuses import error_response, status_of
from hookline.web._site.run_start import resume_detached

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
