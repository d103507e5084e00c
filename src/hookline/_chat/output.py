"""The answer as a value of `output=`. The model is asked to correct an answer that does not fit."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, isawaitable, signature
from typing import Any

from hookline._base.cancel import no_cancellation_of_its_own
from hookline._base.errors import OutputError, UsageError
from hookline._base.json import BadArguments, clean_text
from hookline._base.messages import Text, UserMessage
from hookline._chat.commit import commit
from hookline._chat.state import Chat
from hookline._model.output import form_of
from hookline._record.runtime import OUTPUT, Json

_ISSUES: Json[tuple[str, ...]] = Json(tuple[str, ...])


async def fits(chat: Chat, may_go_on: bool) -> bool:
    """Read the answer into `chat.last.output`; return False if the model must correct it.

    Without `output=`, the validators check the text. Raises OutputError if no correction is left,
    and any exception of a validator but ValueError.
    """
    if chat.config.output is None and not chat.config.output_validators:
        return True
    form = chat.config.output or form_of(str)
    text = chat.last.message.text if chat.last.message is not None else ""
    issues: tuple[str, ...] = ()
    try:
        value = form.read(text)
    except BadArguments as bad:
        issues = bad.issues
    else:
        key = (OUTPUT, chat.iteration)
        if chat.asks(chat.config.output_validators, key):
            issues = await chat.runtime.step(key, _issues, _ISSUES, chat, value)
            chat.check()
        if not issues:
            chat.last.output = value if chat.config.output is not None else None
            return True
    if chat.last.corrections >= chat.config.output_retries or not may_go_on:
        raise OutputError(form.name, issues, text)
    chat.last.corrections += 1
    await commit(chat, UserMessage(parts=(Text(clean_text(form.correction(issues))),)))
    return False


async def _issues(chat: Chat, value: Any) -> tuple[str, ...]:
    """The objections of the validators to the value."""
    issues: list[str] = []
    for validator in chat.config.output_validators:
        name = getattr(validator, "__name__", type(validator).__name__)
        try:
            with no_cancellation_of_its_own(
                UsageError, f"the output validator {name!r}", "raise ValueError"
            ):
                args = (value, chat.run) if _takes_run(validator) else (value,)
                verdict: Any = validator(*args)
                if isawaitable(verdict):
                    await verdict
        except ValueError as exc:
            issues.append(clean_text(str(exc)) or f"it does not pass {name}")
        except Exception as exc:
            exc.add_note(f"raised by the output validator {name!r}")
            raise
    return tuple(issues)


def _takes_run(validator: Callable[..., Any]) -> bool:
    """Whether the validator has a second argument, for the run."""
    try:
        parameters = list(signature(validator).parameters.values())
    except ValueError:  # of a function in C nothing is known
        return False
    by_place = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    needed = [
        parameter
        for parameter in parameters
        if parameter.kind in by_place and parameter.default is parameter.empty
    ]
    return len(needed) > 1
