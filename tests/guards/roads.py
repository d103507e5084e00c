"""The roads of a chat to a tool's handler: ways in, hooks, options, other agents, approvals."""

from __future__ import annotations

from typing import Any

from tests.guards.case import (
    APPROVED,
    BAD,
    BROKEN,
    EDITED,
    GOOD,
    LAST,
    NONE,
    Case,
    asks,
    bash_call,
    denies,
    road,
)

from hookline import (
    Agent,
    Approve,
    Continue,
    Conversation,
    MemoryStore,
    ModelResponse,
    NullBus,
    Scope,
    Tool,
    define_hook,
)
from hookline.dialogue import Dialogue
from hookline.providers import tools as provider_tools
from hookline.storage import Rule
from hookline.testing import call

# ── ways into a chat ────────────────────────────────────────────────────────────────────────


@road("chat")
async def _(case: Case) -> None:
    await case.chat(case.agent())


@road("chat_stream")
async def _(case: Case) -> None:
    await case.stream(case.agent())


@road('release="response"')
async def _(case: Case) -> None:
    await case.stream(case.agent(), release="response")


@road("Dialogue")
async def _(case: Case) -> None:
    agent = case.agent(name="a")
    if case.place == "chat":  # a dialogue takes no hooks=
        await case.chat(agent)
        return
    async with Dialogue(agent, case.bare("fine", name="b"), turns=1) as dialogue:
        dialogue.send("go")
        async for _event in dialogue:
            pass


@road("input=None")
async def _(case: Case) -> None:
    talk = Conversation()
    agent = case.agent("hello", bash_call())
    await case.chat(agent, conversation=talk)
    history = talk.messages[:1]
    fresh = Conversation(history)
    await agent.chat(None, conversation=fresh, **case.keywords)


@road("a later chat of a conversation")
async def _(case: Case) -> None:
    talk = Conversation()
    agent = case.agent("hello", bash_call())
    await case.chat(agent, conversation=talk)
    await case.chat(agent, conversation=talk)


@road("a stored conversation")
async def _(case: Case) -> None:
    await case.chat(case.agent(store=MemoryStore()), conversation="one")


@road("a later step")
async def _(case: Case) -> None:
    await case.chat(case.agent(bash_call(GOOD), bash_call(GOOD), bash_call()))


@road("asked for again after a refusal")
async def _(case: Case) -> None:
    await case.chat(case.agent(bash_call(), bash_call()))


@road("a natural end is continued")
async def _(case: Case) -> None:
    agent = case.agent("done", bash_call())
    once = iter([Continue("go on")])
    agent.add_hook("preStop", lambda ctx: next(once, None))
    await case.chat(agent)


@road("beside other calls")
async def _(case: Case) -> None:
    await case.chat(case.agent([bash_call(GOOD), bash_call(), bash_call(GOOD)]))


@road("parallel_tools=False")
async def _(case: Case) -> None:
    await case.chat(case.agent([bash_call(GOOD), bash_call()], parallel_tools=False))


@road("a sync tool in a thread")
async def _(case: Case) -> None:
    def bash(command: str) -> str:
        case.ran.append(command)
        return "ran"

    await case.chat(case.agent(tools=[bash]))


@road("a tool of a scope")
async def _(case: Case) -> None:
    await case.chat(case.agent(tools=[], scopes=[Scope("shell", tools=[case.bash])]))


@road("a tool of the chat")
async def _(case: Case) -> None:
    await case.chat(case.agent(tools=[]), tools=[case.bash])


@road("a tool that preRequest adds")
async def _(case: Case) -> None:
    agent = case.agent(tools=[])
    agent.add_hook("preRequest", lambda ctx: ctx.request.replace(tools=(case.bash,)))
    await case.chat(agent)


@road("a tool that preChat adds")
async def _(case: Case) -> None:
    agent = case.agent(tools=[])
    agent.add_hook("preChat", lambda ctx: ctx.request.replace(tools=(case.bash,)))
    await case.chat(agent)


@road("a tool that aroundRequest adds")
async def _(case: Case) -> None:
    agent = case.agent(tools=[])

    async def add(ctx: Any, proceed: Any) -> Any:
        return await proceed(ctx.request.replace(tools=(case.bash,)))

    agent.add_hook("aroundRequest", add)
    await case.chat(agent)


@road("a scope that is registered in mid-chat")
async def _(case: Case) -> None:
    async def other() -> str:
        agent.scopes.register(Scope("late", tools=[case.bash]))
        return "there"

    agent = case.agent(call("other"), bash_call(), tools=[])
    agent.scopes.register(Scope("first", tools=[other]))
    if case.kind == "tools=":  # the tool must be known when the guard is checked
        agent.scopes.register(Scope("known", tools=[case.tool("bash2")]))
        agent.bus.clear("preToolCall")
        agent.add_hook("preToolCall", denies, guard=True, tools=["bash*"])
    await case.chat(agent)


# ── calls that hooks write or change ────────────────────────────────────────────────────────


def _answer() -> ModelResponse:
    return ModelResponse(parts=(bash_call().replace(id="a"),), finish_reason="tool_calls")


@road("a call that onResponse writes")
async def _(case: Case) -> None:
    agent = case.agent("hello")
    once = iter([_answer()])
    agent.add_hook("onResponse", lambda ctx: next(once, None))
    await case.chat(agent)


@road("a call in preRequest's answer")
async def _(case: Case) -> None:
    agent = case.agent("hello")
    once = iter([_answer()])
    agent.add_hook("preRequest", lambda ctx: next(once, None))
    await case.chat(agent)


@road("a call in preChat's answer")
async def _(case: Case) -> None:
    agent = case.agent("hello")
    agent.add_hook("preChat", lambda ctx: _answer())
    await case.chat(agent)


def becomes_bad(ctx: Any) -> Any:
    return ctx.call.replace(arguments={"command": BAD}) if ctx.call.name == "bash" else None


@road("a later hook changes the call")
async def _(case: Case) -> None:
    agent = case.agent(bash_call(GOOD))
    agent.add_hook("preToolCall", becomes_bad, priority=LAST - 1)
    await case.chat(agent)


@road("an earlier hook changes the call")
async def _(case: Case) -> None:
    agent = case.agent(bash_call(GOOD))
    agent.add_hook("preToolCall", becomes_bad, priority=1000)
    await case.chat(agent)


@road("a hook of the chat changes the call")
async def _(case: Case) -> None:
    changes = define_hook("preToolCall", becomes_bad, priority=LAST - 1)
    await case.chat(case.agent(bash_call(GOOD)), hooks=[*case.keywords.get("hooks", []), changes])


async def changes_around(ctx: Any, proceed: Any) -> Any:
    return await proceed(becomes_bad(ctx))


@road("a wrapper changes the call")
async def _(case: Case) -> None:
    agent = case.agent(bash_call(GOOD))
    agent.add_hook("aroundToolCall", changes_around, priority=LAST)
    await case.chat(agent)


@road("a wrapper changes the call of a sub-agent")
async def _(case: Case) -> None:
    below = case.bare(bash_call(GOOD), name="below")
    below.add_hook("aroundToolCall", changes_around, priority=LAST)
    await case.chat(case.agent(call("sub", input="go"), tools=[below.as_tool(name="sub")]))


@road("a wrapper runs an idempotent tool again, changed")
async def _(case: Case) -> None:
    agent = case.agent(bash_call(GOOD), tools=[case.tool(idempotent=True)])

    async def run(ctx: Any, proceed: Any) -> Any:
        await proceed()
        return await proceed(becomes_bad(ctx))

    agent.add_hook("aroundToolCall", run, priority=LAST)
    await case.chat(agent)


@road("a wrapper runs an idempotent tool again, guard added between")
async def _(case: Case) -> None:
    agent = case.bare(tools=[case.tool(idempotent=True)])

    async def run(ctx: Any, proceed: Any) -> Any:
        await proceed()
        case.ran.clear()
        case.tighten(agent)
        return await proceed(ctx.call)

    agent.add_hook("aroundToolCall", run, priority=LAST)
    await case.chat(agent)


@road("a guard is added before the handler begins")
async def _(case: Case) -> None:
    agent = case.bare()

    async def run(ctx: Any, proceed: Any) -> Any:
        case.tighten(agent)
        return await proceed()

    agent.add_hook("aroundToolCall", run, priority=LAST)
    await case.chat(agent)


@road("a call before it adds the guard")
async def _(case: Case) -> None:
    async def other() -> str:
        case.tighten(agent)
        return "there"

    turn = [call("other"), bash_call()]
    agent = case.bare(turn, tools=[other, case.bash], parallel_tools=False)
    await case.chat(agent)


@road("a guard raises an exception")
async def _(case: Case) -> None:
    agent = case.agent()
    token = BROKEN.set(case.kind != NONE)
    try:
        await case.chat(agent)
    except ValueError:
        pass
    finally:
        BROKEN.reset(token)


# ── options ─────────────────────────────────────────────────────────────────────────────────


@road("only_hooks=[]")
async def _(case: Case) -> None:
    await case.chat(case.agent(), only_hooks=case.keywords.get("hooks", []))


@road("bus=NullBus()")
async def _(case: Case) -> None:
    await case.chat(case.agent(bus=NullBus()))


@road("global_hooks=False")
async def _(case: Case) -> None:
    await case.chat(case.agent(global_hooks=False))


# ── other agents ────────────────────────────────────────────────────────────────────────────


def nested(case: Case, depth: int) -> Agent[Any]:
    agent = case.bare(name="a0")
    for level in range(depth - 1):
        tools = [agent.as_tool(name="sub")]
        agent = case.bare(call("sub", input="go"), name=f"a{level + 1}", tools=tools)
    return case.agent(call("sub", input="go"), name="top", tools=[agent.as_tool(name="sub")])


@road("a sub-agent, guard on the top")
async def _(case: Case) -> None:
    await case.chat(nested(case, 1))


@road("a sub-agent two levels down, guard on the top")
async def _(case: Case) -> None:
    await case.chat(nested(case, 2))


@road("a sub-agent three levels down, guard on the top")
async def _(case: Case) -> None:
    await case.chat(nested(case, 3))


@road("a sub-agent in a stream, guard on the top")
async def _(case: Case) -> None:
    await case.stream(nested(case, 1))


@road("a sub-agent under only_hooks=[], guard on the top")
async def _(case: Case) -> None:
    await case.chat(nested(case, 1), only_hooks=case.keywords.get("hooks", []))


@road("a sub-agent, guard on the sub-agent")
async def _(case: Case) -> None:
    below = case.agent(name="below")
    await case.bare(call("sub", input="go"), tools=[below.as_tool(name="sub")]).chat("go")


@road("a sub-agent has a tool of the same name")
async def _(case: Case) -> None:
    below = case.bare(name="below")
    tools = [case.tool(), below.as_tool(name="sub")]
    await case.chat(case.agent(call("sub", input="go"), tools=tools))


@road("agent.chat() inside a tool")
async def _(case: Case) -> None:
    below = case.bare(name="below")

    async def ask() -> str:
        return str((await below.chat("go")).text)

    await case.chat(case.agent(call("ask"), tools=[ask, case.bash]))


@road("a tool calls the function of another tool")
async def _(case: Case) -> None:
    async def ask() -> str:
        return str(await case.bash(command=BAD))

    await case.chat(case.agent(call("ask"), tools=[ask, case.bash]))


@road("a handoff, guard on the first agent")
async def _(case: Case) -> None:
    first = case.agent(call("transfer_to_next"), name="first", tools=[])
    first.handoffs(case.bare(name="next"))
    await case.chat(first)


@road("a handoff, guard on the next agent")
async def _(case: Case) -> None:
    first = case.bare(call("transfer_to_next"), name="first", tools=[])
    first.handoffs(case.agent(name="next"))
    await case.chat(first)


@road("a handoff of an earlier chat, guard on the next agent")
async def _(case: Case) -> None:
    first = case.bare(call("transfer_to_next"), name="first", tools=[])
    first.handoffs(case.agent("hello", bash_call(), name="next"))
    talk = Conversation()
    await case.chat(first, conversation=talk)
    await case.chat(first, conversation=talk)


@road("a handoff inside a sub-agent, guard on the top")
async def _(case: Case) -> None:
    below = case.bare(call("transfer_to_next"), name="below", tools=[])
    below.handoffs(case.bare(name="next"))
    await case.chat(case.agent(call("sub", input="go"), tools=[below.as_tool(name="sub")]))


# ── approvals ───────────────────────────────────────────────────────────────────────────────


async def resumed(
    case: Case, command: str, answer: Any, *, guarded: bool, stream: bool = False, **options: Any
) -> None:
    """A call waits, the guard is added if it was not there, and the call is approved."""
    agent = case.agent(bash_call(command)) if guarded else case.bare(bash_call(command))
    asks(agent)
    talk = Conversation()
    response = await case.chat(agent, conversation=talk)
    if not guarded:
        case.tighten(agent)
    answers = {request.id: answer for request in response.pending}
    options = {**case.keywords, **options}
    if "only_hooks" in options:
        options.pop("hooks", None)
    if not stream:
        await agent.resume(talk, answers, **options)
        return
    async with agent.resume_stream(talk, answers, **options) as events:
        async for _event in events:
            pass


@road("resume, guard added while the call waited")
async def _(case: Case) -> None:
    await resumed(case, BAD, APPROVED, guarded=False)


@road("resume_stream, guard added while the call waited")
async def _(case: Case) -> None:
    await resumed(case, BAD, APPROVED, guarded=False, stream=True)


@road("resume with changed arguments")
async def _(case: Case) -> None:
    await resumed(case, GOOD, EDITED, guarded=True)


@road("resume_stream with changed arguments")
async def _(case: Case) -> None:
    await resumed(case, GOOD, EDITED, guarded=True, stream=True)


@road("resume(only_hooks=[]) with changed arguments")
async def _(case: Case) -> None:
    hooks = [case.hooks] if case.place == "chat" else []
    await resumed(case, GOOD, EDITED, guarded=True, only_hooks=hooks)


@road("resume by another agent on the same store")
async def _(case: Case) -> None:
    store = MemoryStore()
    first = case.bare(store=store)
    asks(first)
    response = await first.chat("go", conversation="one")
    second = case.agent("done", store=store)
    asks(second)
    await second.resume("one", {each.id: APPROVED for each in response.pending}, **case.keywords)


@road("resume by an agent that never asked")
async def _(case: Case) -> None:
    store = MemoryStore()
    first = case.bare(store=store)
    asks(first)
    response = await first.chat("go", conversation="one")
    second = case.agent("done", store=store)
    await second.resume("one", {each.id: APPROVED for each in response.pending}, **case.keywords)


@road("resume, the code of the tool has changed")
async def _(case: Case) -> None:
    store = MemoryStore()
    first = case.bare(store=store)
    asks(first)
    response = await first.chat("go", conversation="one")

    async def bash(command: str) -> str:
        case.ran.append(command)
        return "ran"

    second = case.agent("done", store=store, tools=[bash])
    await second.resume("one", {each.id: APPROVED for each in response.pending}, **case.keywords)


@road("a live approver, guard added while it thinks")
async def _(case: Case) -> None:
    async def approver(request: Any, run: Any) -> Approve:
        case.tighten(agent)
        return APPROVED

    agent = case.bare()
    asks(agent)
    await case.chat(agent, approver=approver)


@road("a live approver changes the arguments")
async def _(case: Case) -> None:
    agent = case.agent(bash_call(GOOD))
    asks(agent)
    await case.chat(agent, approver=lambda request, run: EDITED)


@road("a live approver changes the arguments in a sub-agent")
async def _(case: Case) -> None:
    below = case.bare(bash_call(GOOD), name="below")
    asks(below)
    agent = case.agent(call("sub", input="go"), tools=[below.as_tool(name="sub")])
    await case.chat(agent, approver=lambda request, run: EDITED)


@road("an approved call beside others, guard added while it waited")
async def _(case: Case) -> None:
    agent = case.bare([bash_call(GOOD), bash_call()])
    asks(agent)
    talk = Conversation()
    response = await case.chat(agent, conversation=talk)
    case.tighten(agent)
    answers = {request.id: APPROVED for request in response.pending}
    await agent.resume(talk, answers, **case.keywords)


async def resumed_below(
    case: Case, command: str, answer: Any, *, on_top: bool, depth: int = 1, guarded: bool = False
) -> None:
    """A call of a sub-agent waits, the guard is added if it was not there, and it is approved."""
    make = case.agent if guarded and not on_top else case.bare
    below = agent = make(bash_call(command), name="below")
    asks(below)
    for level in range(depth):
        top = level == depth - 1
        make = case.agent if guarded and on_top and top else case.bare
        tools = [agent.as_tool(name="sub")]
        agent = make(call("sub", input="go"), name=f"above{level}", tools=tools)
    talk = Conversation()
    response = await case.chat(agent, conversation=talk)
    if not guarded:
        case.tighten(agent if on_top else below)
    answers = {request.id: answer for request in response.pending}
    await agent.resume(talk, answers, **(case.keywords if on_top else {}))


@road("resume of a sub-agent, guard on the top added while the call waited")
async def _(case: Case) -> None:
    await resumed_below(case, BAD, APPROVED, on_top=True)


@road("resume of a sub-agent, guard on the sub-agent added while the call waited")
async def _(case: Case) -> None:
    await resumed_below(case, BAD, APPROVED, on_top=False)


@road("resume of a sub-agent three levels down with changed arguments")
async def _(case: Case) -> None:
    await resumed_below(case, GOOD, EDITED, on_top=True, depth=3, guarded=True)


@road("resume of a sub-agent by other agents on the same store")
async def _(case: Case) -> None:
    store = MemoryStore()
    below = case.bare(name="below")
    asks(below)
    first = case.bare(call("sub", input="go"), tools=[below.as_tool(name="sub")], store=store)
    response = await first.chat("go", conversation="one")
    other = case.bare("done", name="below")
    second = case.agent("done", tools=[other.as_tool(name="sub")], store=store)
    await second.resume("one", {each.id: APPROVED for each in response.pending}, **case.keywords)


@road("resume of an exported conversation")
async def _(case: Case) -> None:
    first = case.bare()
    asks(first)
    talk = Conversation()
    response = await first.chat("go", conversation=talk)
    copy = Conversation.from_json(talk.to_json())
    answers = {each.id: APPROVED for each in response.pending}
    await case.agent("done").resume(copy, answers, **case.keywords)


@road("a remembered approval, guard added since")
async def _(case: Case) -> None:
    talk = Conversation()
    first = case.bare()
    asks(first)
    response = await first.chat("go", conversation=talk)
    rule = Approve(remember=Rule("bash"))
    await first.resume(talk, {each.id: rule for each in response.pending})
    case.ran.clear()
    second = case.agent(bash_call())
    asks(second)
    await case.chat(second, conversation=talk)


@road("a hook answers the question")
async def _(case: Case) -> None:
    agent = case.agent()
    asks(agent)
    agent.add_hook("preToolCall", lambda ctx: Approve(), priority=LAST - 1)
    await case.chat(agent, conversation=Conversation())


# ── other tools ─────────────────────────────────────────────────────────────────────────────


@road("a tool with a prefix")
async def _(case: Case) -> None:
    tools = [case.tool("x_bash")]
    await case.chat(case.agent(bash_call(name="x_bash"), tools=tools))


@road("a client-side tool")
async def _(case: Case) -> None:
    schema = {"type": "object", "properties": {"command": {"type": "string"}}}
    tool = Tool.from_schema("bash", "Run it.", schema, client=True, validate=False)
    talk = Conversation()
    await case.chat(case.agent(tools=[tool]), conversation=talk)
    case.ran.extend(str(each.arguments["command"]) for each in talk.client_calls)


@road("a tool that the provider runs")
async def _(case: Case) -> None:
    def send(ctx: Any) -> None:
        if any(tool.name == "bash" for tool in ctx.request.tools):
            case.ran.append(BAD)  # nothing can stop the provider now

    tool = provider_tools.web_search()
    agent = case.agent("done", tools=[tool.replace(name="bash")])

    async def sends(ctx: Any, proceed: Any) -> Any:
        send(ctx)
        return await proceed()

    agent.add_hook("aroundRequest", sends, priority=LAST)
    await case.chat(agent)
