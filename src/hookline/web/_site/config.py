"""The configuration of an application of `hookline.web`."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any, Literal

from hookline import Store
from hookline.web._http.access import Guard
from hookline.web._http.request_reply import Request
from hookline.web._page.files import Page
from hookline.web._protocols.incoming import read_object
from hookline.web._protocols.masked_texts import DescribeError
from hookline.web._site.durable import DurableChats
from hookline.web._site.error_statuses import refused_for
from hookline.web._site.run_start import ChatHooks, Deps, OnBusy, Opening
from hookline.web.relay import RedisRelay


class SiteConfig(Opening, frozen=True, kw_only=True):
    """The options of `app`."""

    guard: Guard
    store: Store
    on_busy: OnBusy = "refuse"
    deps: Deps | None = None
    hooks: ChatHooks | None = None
    describe_error: DescribeError | None = None
    options: dict[str, Any]
    approvals: bool = True
    approvers: Any = None  # Approvers: the inbox imports this module
    policies: Any = None  # Policies, for the same reason
    page: Page | None = None
    relay: RedisRelay | None = None
    durable: DurableChats | None = None

    async def body(self, request: Request) -> dict[str, Any]:
        """Read the JSON object in the body of a request."""
        caps = self.runs.caps
        return read_object(await request.body(caps.body_bytes, caps.send))

    async def chat_option(
        self, name: Literal["deps", "hooks"], request: Request, principal: str
    ) -> Any:
        """Call `deps=` or `hooks=` for a request; the log names the function if it raises."""
        function = getattr(self, name)
        if function is None:
            return None
        try:
            value = function(request.scope, principal)
            return await value if isawaitable(value) else value
        except Exception as exc:
            raise refused_for(exc, self.describe_error, what=f"{name}= raised") from exc
