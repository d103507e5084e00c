"""A scene: what the model writes, what people decide, and what goes wrong."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as exc:
    raise ModuleNotFoundError(
        f"hookline.testing.explore needs {exc.name}: pip install 'hookline[explore]'", name=exc.name
    ) from exc

from hookline.errors import UsageError
from hookline.testing.explore._arguments import Arguments, Domain

Person: TypeAlias = Literal["approve", "deny", "edit", "late", "raise"]
"""What a person does when asked."""
Resume: TypeAlias = Literal["once", "twice", "wrong id", "after a chat", "elsewhere"]
"""How a chat that waits is resumed; "elsewhere" is a new process."""
Fault: TypeAlias = Literal["abort", "crash", "late", "order"]
"""A fault of a scene: an abort at a hook, a crash of a durable worker, a late answer of a person,
or parallel tools that end in another order."""
FAULTS: tuple[Fault, ...] = ("abort", "crash", "late", "order")


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call that the model writes."""

    tool: str
    arguments: Arguments
    begins: Literal["", "answer", "chat"] = ""
    """What begins with the call: a new answer of the model, or a new chat."""
    id: str = ""
    """The call's id; empty to number the calls."""


class Scene(msgspec.Struct, frozen=True, omit_defaults=True):
    """One scene."""

    calls: tuple[Call, ...]
    """The calls of the first agent."""
    below: tuple[Call, ...] = ()
    """The calls of each sub-agent."""
    people: tuple[Person, ...] = ()
    """The decisions, in the order of the questions; afterwards, people approve."""
    waits: bool = False
    """Whether nobody answers while the chat runs, so that it is resumed."""
    resume: Resume = "once"
    same: bool = True
    """Whether all chats have the same conversation."""
    delays: tuple[int, ...] = ()
    """How many turns of the event loop each run of a tool takes."""
    abort: int | None = None
    """The number of the hook during which the chat is aborted."""
    crash: int | None = None
    """The number of the batch of its log at which a durable chat's worker dies."""

    @property
    def chats(self) -> list[list[list[Call]]]:
        """The calls of each answer of each chat."""
        return _chats_of(self.calls)

    @property
    def answers_below(self) -> list[list[Call]]:
        """The calls of each answer of a sub-agent."""
        return _chats_of(self.below)[0]

    def text(self) -> str:
        """The scene as text, for `explore(scene=…)`."""
        return base64.b85encode(zlib.compress(msgspec.json.encode(self), 9)).decode()


def _chats_of(calls: Iterable[Call]) -> list[list[list[Call]]]:
    chats: list[list[list[Call]]] = []
    for call in calls:
        if not chats or call.begins == "chat":
            chats.append([[]])
        elif call.begins == "answer":
            chats[-1].append([])
        chats[-1][-1].append(call)
    return chats or [[]]


def read_scene(text: str) -> Scene:
    """Read `Scene.text()`; raises UsageError if it is something else."""
    try:
        return msgspec.json.decode(zlib.decompress(base64.b85decode(text)), type=Scene)
    except (ValueError, zlib.error) as exc:
        raise UsageError(
            f"scene={text!r} is not a scene; pass the whole text from an Unapproved error"
        ) from exc


def scenes(
    domains: Mapping[str, Domain], below: Mapping[str, Domain], *, calls: int, faults: set[Fault]
) -> st.SearchStrategy[Scene]:
    """All scenes with these tools and at most this many calls of the first agent."""
    people: list[Person] = ["approve", "deny", "edit", "raise"]
    return st.builds(
        Scene,
        calls=_calls(domains, calls, ("", "answer", "chat")),
        below=_calls(below, calls, ("", "answer")) if below else st.just(()),
        people=_tuples(people + (["late"] if "late" in faults else []), 4),
        waits=st.booleans(),
        resume=st.sampled_from(["once", "twice", "wrong id", "after a chat", "elsewhere"]),
        same=st.booleans(),
        delays=_tuples([0, 1, 3], 4) if "order" in faults else st.just(()),
        abort=st.none() | st.integers(0, 20) if "abort" in faults else st.none(),
        crash=st.none() | st.integers(1, 20) if "crash" in faults else st.none(),
    )


def _tuples(values: list[Any], size: int) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.sampled_from(values), max_size=size).map(tuple)


def _calls(
    domains: Mapping[str, Domain], size: int, begins: tuple[str, ...]
) -> st.SearchStrategy[tuple[Call, ...]]:
    call = st.one_of(
        [
            st.builds(
                Call,
                tool=st.just(name),
                arguments=_arguments(domain),
                begins=st.sampled_from(begins),
                id=st.sampled_from(["", "", "", "call_1"]),
            )
            for name, domain in domains.items()
        ]
    )
    return st.lists(call, min_size=1, max_size=size).map(tuple)


def _arguments(domain: Domain) -> st.SearchStrategy[Arguments]:
    """Guarded and other arguments as often as each other, and sometimes broken ones."""
    kinds = [st.sampled_from(sets) for sets in (domain.guarded, domain.free) if sets]
    weighted = [*kinds * 4, *([st.sampled_from(domain.broken)] if domain.broken else [])]
    return st.one_of(weighted or [st.just({})])
