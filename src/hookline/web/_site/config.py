"""The configuration of an application of `hookline.web`."""

from __future__ import annotations

from typing import Any

import msgspec

from hookline import Store
from hookline.web._http.access import Guard
from hookline.web._page.files import Page
from hookline.web._protocols.ag_ui.state import AgUiState
from hookline.web._protocols.ai_sdk.encoder import AiSdkVersion
from hookline.web._protocols.error_texts import DescribeError
from hookline.web._runs.registry import Runs
from hookline.web._site.begin import ChatHooks, ClientTools, Deps, OnBusy, OnDisconnect
from hookline.web._site.durable import DurableChats
from hookline.web.relay import RedisRelay


class SiteConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `app`."""

    agent: Any  # Agent: the type of its deps is up to the caller
    guard: Guard
    runs: Runs
    store: Store
    on_disconnect: OnDisconnect = "cancel"
    on_busy: OnBusy = "refuse"
    ai_sdk_version: AiSdkVersion = 6
    deps: Deps | None = None
    hooks: ChatHooks | None = None
    describe_error: DescribeError | None = None
    options: dict[str, Any] = {}
    edits: bool = True
    approvals: bool = True
    approvers: Any = None  # Approvers: the inbox imports this module
    policies: Any = None  # Policies, for the same reason
    client_tools: ClientTools = ()
    ag_ui_state: AgUiState | None = None
    ag_ui_context: bool = False
    page: Page | None = None
    relay: RedisRelay | None = None
    durable: DurableChats | None = None
