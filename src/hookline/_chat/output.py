"""The answer read in the form of `output=`: what does not fit is told to the model, as a step."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from inspect import Parameter, isawaitable, signature
from typing import Any

from hookline._base.cancel import being_cancelled
from hookline._base.errors import OutputError, UsageError
from hookline._base.json import BadArguments, clean_text
from hookline._base.messages import Text, UserMessage
from hookline._base.runtime import OUTPUT, Json
from hookline._chat.state import Chat
from hookline._model.output import Form

_ISSUES: Json[tuple[str, ...]] = Json(tuple[str, ...])


async def fits(chat: Chat, form: Form, may_go_on: bool) -> bool:
    """Read the answer into `chat.last.output`; False where the model was told to correct it.

    Raises OutputError where there is no correction left, and what a validator raises besides
    ValueError.
    """
    text = chat.last.message.text if chat.last.message is not None else ""
    issues: tuple[str, ...] = ()
    try:
        value = form.read(text)
    except BadArguments as bad:
        issues = bad.issues
    else:
        if chat.config.output_validators:
            key = (OUTPUT, chat.iteration)
            issues = await chat.runtime.step(key, _refused, _ISSUES, chat, value)
            chat.check()
        if not issues:
            chat.last.output = value
            return True
    chat.last.output = None
    if chat.last.corrections >= chat.config.output_retries or not may_go_on:
        raise OutputError(form.name, issues, text)
    chat.last.corrections += 1
    await chat.commit(UserMessage(parts=(Text(clean_text(form.correction(issues))),)))
    return False


async def _refused(chat: Chat, value: Any) -> tuple[str, ...]:
    """What the validators have against the value, each in its words."""
    issues: list[str] = []
    for validator in chat.config.output_validators:
        name = getattr(validator, "__name__", type(validator).__name__)
        try:
            given: Any = validator(value, chat.run) if _takes_run(validator) else validator(value)
            if isawaitable(given):
                await given
        except ValueError as exc:
            issues.append(clean_text(str(exc)) or f"it does not pass {name}")
        except CancelledError as exc:
            if being_cancelled():
                raise
            raise UsageError(
                f"the output validator {name!r} raised CancelledError by itself; raise ValueError "
                "to tell the model what is wrong"
            ) from exc
        except Exception as exc:
            exc.add_note(f"raised by the output validator {name!r}")
            raise
    return tuple(issues)


def _takes_run(validator: Callable[..., Any]) -> bool:
    """Whether it needs a second argument, which is the run."""
    try:
        given = list(signature(validator).parameters.values())
    except ValueError:  # of a function in C nothing is known
        return False
    by_place = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each for each in given if each.kind in by_place and each.default is each.empty]
    return len(needed) > 1
