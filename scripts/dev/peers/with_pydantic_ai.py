"""The three programs with pydantic-ai, and DBOS for the worker, written as their docs say."""

# ruff: noqa: I001 – each section has its own imports
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from faults import JOB, Script

# section: desk
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolApproved, ToolFailed
from pydantic_ai.capabilities import Hooks
from pydantic_ai.exceptions import ApprovalRequired

# end
# section: worker
from dbos import DBOS, SetWorkflowID
from pydantic_ai.durable_exec.dbos import DBOSDurability

# end
# section: migration
from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, TextPart
from pydantic_ai.messages import ToolCallPart, ToolReturnPart, UserPromptPart

# end
from pydantic_ai.models.function import FunctionModel


def model_of(script: Script) -> FunctionModel:
    def answer(messages: list[Any], info: Any) -> ModelResponse:
        parts = [part for message in messages for part in message.parts]
        calls = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
        results = [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)]
        texts = " ".join(str(getattr(part, "content", "")) for part in parts)
        step = script.next(len(results), (calls, results, texts))
        if step:
            return ModelResponse([ToolCallPart(step[0], step[1], f"c{len(results)}")])
        return ModelResponse([TextPart("All done.")])

    async def stream(messages: list[Any], info: Any) -> AsyncIterator[str]:
        async for piece in script.pieces():
            yield piece

    return FunctionModel(answer, stream_function=stream)


# section: desk
hooks = Hooks[Any]()


@hooks.on.before_tool_execute(tools=["refund"])
async def guard(ctx: Any, *, call: Any, tool_def: Any, args: dict[str, Any]) -> dict[str, Any]:
    if not args["order"].startswith("A-"):
        raise ToolFailed("That is the order of another customer.")
    if args["euros"] > 50 and not ctx.tool_call_approved:
        raise ApprovalRequired
    return args


def desk_of(model: Any, refund: Callable[..., Any]) -> Agent[Any, Any]:
    output = [str, DeferredToolRequests]
    return Agent(model, tools=[refund], output_type=output, capabilities=[hooks])


async def support(model: Any, refund: Callable[..., Any], edit: dict[str, Any] | None) -> None:
    agent = desk_of(model, refund)
    result = await agent.run("Refund my order.")
    while isinstance(asked := result.output, DeferredToolRequests):
        decision = ToolApproved(override_args=edit)
        decisions = {call.tool_call_id: decision for call in asked.approvals}
        results = DeferredToolResults(approvals=decisions)
        history = result.all_messages()
        result = await agent.run(message_history=history, deferred_tool_results=results)


async def leave(model: Any, refund: Callable[..., Any]) -> None:
    async with desk_of(model, refund).run_stream("Hello.") as result:
        async for _ in result.stream_text(delta=True, debounce_by=None):
            break


# end
# section: worker
async def work(model: Any, pay: Callable[..., Any], folder: Path) -> None:
    DBOS(config={"name": "payer", "system_database_url": f"sqlite:///{folder}/jobs.db"})
    step = DBOS.step()(pay)
    agent = Agent(model, name="payer", tools=[step], capabilities=[DBOSDurability()])

    @DBOS.workflow()
    async def job() -> str:
        return (await agent.run("Pay Ada.")).output

    DBOS.launch()
    with SetWorkflowID(JOB):
        handle = await DBOS.start_workflow_async(job)
    print(await handle.get_result())
    DBOS.destroy()


# end
# section: migration
async def migrate(model: Any, history: list[dict[str, Any]]) -> None:
    messages: list[ModelRequest | ModelResponse] = []
    names: dict[str, str] = {}
    for message in history:
        text = message["content"] or ""
        if message["role"] == "assistant":
            parts: list[Any] = [TextPart(text)] if text else []
            for call in message.get("tool_calls", []):
                function = call["function"]
                names[call["id"]] = function["name"]
                parts.append(ToolCallPart(function["name"], function["arguments"], call["id"]))
            messages.append(ModelResponse(parts))
        elif message["role"] == "tool":
            id = message["tool_call_id"]
            messages.append(ModelRequest([ToolReturnPart(names[id], text, id)]))
        elif message["role"] == "system":
            messages.append(ModelRequest([SystemPromptPart(text)]))
        else:
            messages.append(ModelRequest([UserPromptPart(text)]))
    await Agent(model).run("Go on.", message_history=messages)


# end
