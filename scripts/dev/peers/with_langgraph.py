"""The three programs with LangGraph and langchain, written as their docs say."""

# ruff: noqa: I001 – each section has its own imports
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from faults import JOB, Script

# section: desk
from contextlib import aclosing

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, wrap_tool_call
from langchain.messages import ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

# end
# section: worker
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

# end
# section: migration
from langchain_core.messages import convert_to_messages

# end
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult


class Scripted(BaseChatModel):
    script: Any

    _llm_type = "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> "Scripted":
        return self

    def _generate(self, *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: Any, *args: Any, **options: Any) -> ChatResult:
        calls, results, texts = [], [], []
        for message in messages:
            texts.append(message.text)
            calls += [call["id"] for call in getattr(message, "tool_calls", ())]
            if isinstance(message, ToolMessage):
                results.append(message.tool_call_id)
        step = self.script.next(len(results), (calls, results, " ".join(texts)))
        made = [{"id": f"c{len(results)}", "name": step[0], "args": step[1]}] if step else []
        message = AIMessage("" if step else "All done.", tool_calls=made)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(self, messages: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
        async for piece in self.script.pieces():
            yield ChatGenerationChunk(message=AIMessageChunk(piece))


class Whole(Scripted):
    _astream = BaseChatModel._astream  # answers with calls come as a whole


def model_of(script: Script) -> BaseChatModel:
    return (Whole if script.calls else Scripted)(script=script)


# section: desk
@wrap_tool_call
async def guard(request: Any, handler: Callable[..., Any]) -> ToolMessage | Command[Any]:
    call = request.tool_call
    if not call["args"]["order"].startswith("A-"):
        text = "That is the order of another customer."
        return ToolMessage(text, tool_call_id=call["id"], status="error")
    return await handler(request)


def desk_of(model: Any, refund: Callable[..., Any]) -> Any:
    asks = {
        "allowed_decisions": ["approve", "edit", "reject"],
        "when": lambda request: request.tool_call["args"]["euros"] > 50,
    }
    approvals = HumanInTheLoopMiddleware(interrupt_on={"refund": asks})
    middleware = [approvals, guard]
    return create_agent(model, [refund], middleware=middleware, checkpointer=InMemorySaver())


async def support(model: Any, refund: Callable[..., Any], edit: dict[str, Any] | None) -> None:
    agent, thread = desk_of(model, refund), {"configurable": {"thread_id": "1"}}
    state = await agent.ainvoke({"messages": [("user", "Refund my order.")]}, thread)
    while "__interrupt__" in state:
        decision: dict[str, Any] = {"type": "approve"}
        if edit:
            decision = {"type": "edit", "edited_action": {"name": "refund", "args": edit}}
        stops = state["__interrupt__"]
        asked = [action for stop in stops for action in stop.value["action_requests"]]
        state = await agent.ainvoke(Command(resume={"decisions": [decision] * len(asked)}), thread)


async def leave(model: Any, refund: Callable[..., Any]) -> None:
    question = {"messages": [("user", "Hello.")]}
    thread = {"configurable": {"thread_id": "1"}}
    stream = desk_of(model, refund).astream(question, thread, stream_mode="messages")
    async with aclosing(stream):
        async for piece, _ in stream:
            if piece.text:
                break


# end
# section: worker
async def work(model: Any, pay: Callable[..., Any], folder: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(f"{folder}/jobs.db") as saver:
        agent = create_agent(model, [pay], checkpointer=saver)
        thread = {"configurable": {"thread_id": JOB}}
        started = (await agent.aget_state(thread)).created_at is not None
        question = None if started else {"messages": [("user", "Pay Ada.")]}
        state = await agent.ainvoke(question, thread, durability="sync")
        print(state["messages"][-1].text)


# end
# section: migration
async def migrate(model: Any, history: list[dict[str, Any]]) -> None:
    messages = convert_to_messages(history)
    await create_agent(model).ainvoke({"messages": [*messages, ("user", "Go on.")]})


# end
