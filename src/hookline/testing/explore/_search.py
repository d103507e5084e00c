"""The search: plays scenes until one fails, and reports the shortest that fails."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky

from hookline import Agent
from hookline.errors import HooklineError, UsageError
from hookline.testing.explore._arguments import Domain, Guarded, domain_of, with_defaults
from hookline.testing.explore._scene import FAULTS, Fault, Scene, read_scene, scenes
from hookline.testing.explore._world import AnyTool, Make, World

Invariant: TypeAlias = Callable[[World], str | None]
"""Called after each scene; returns what is wrong, or None."""
DEPTH: Final = 3  # sub-agents of sub-agents whose tools count


class Unapproved(HooklineError, AssertionError):
    """A guarded call ran without an approval, or an invariant did not hold.

    The text has what happened in the shortest scene that was found, and the scene itself, for
    `explore(scene=…)`.
    """


@dataclass
class Explored:
    """What the scenes have reached."""

    scenes: int = 0
    """The number of scenes."""
    reached: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """For each guarded tool, how often it was "called" with guarded arguments, "asked" about,
    "approved", and "ran"."""

    def __str__(self) -> str:
        parts = [f"{tool} {what} {count}" for (tool, what), count in sorted(self.reached.items())]
        return f"{self.scenes} scenes: {', '.join(parts) or 'nothing reached'}"


def explore(
    make: Callable[[], Agent[Any]],
    guarded: Mapping[str, Guarded],
    *,
    scenes: int = 500,
    seed: int = 0,
    calls: int = 6,
    faults: Collection[Fault] = FAULTS,
    values: Mapping[str, Iterable[Mapping[str, Any]]] | None = None,
    invariants: Iterable[Invariant] = (),
    scene: str | None = None,
) -> Explored:
    """Play scenes with the agent; raises Unapproved if a guarded call runs without its approval.

    `make` makes the agent, as a new process would. `guarded` has the names of tools, and for each a
    function that returns whether a call with these arguments needs an approval, or "always". The
    function gets the defaults of arguments that are left out. One
    approval allows one run of exactly the call that was approved. A scene has at most `calls` calls
    of the agent. `faults` are the faults to try. `values` has further arguments of tools, which are
    needed if the boundary of a policy is not among the usual numbers. `invariants` are called after
    each scene. `scene` is a scene from the
    text of an error, which is played alone.

    Call it from a test that is not async. The same `seed` gives the same scenes. A scene may end
    with an error of the chat. Raises UsageError for a tool that the agent does not have, if `make`
    returns the same agent twice, or if no guarded call came to the agent's hooks, since
    such a test would show nothing.
    """
    _check_no_loop()
    own, below = dict[str, AnyTool](), dict[str, AnyTool]()
    _collect(_new_agent(make), own, below, 0)
    extra, tools = values or {}, {**own, **below}
    _check_names(tools, guarded, extra)
    guarded = {name: with_defaults(tools[name], check) for name, check in guarded.items()}
    search = _Search(make, guarded, list(invariants))
    if scene is not None:
        search.play(read_scene(scene))
        search.raise_failure()
        return search.explored
    search.run(
        _domains(own, guarded, extra), _domains(below, guarded, extra), scenes, seed, calls, faults
    )
    search.raise_failure()
    reached = search.explored.reached
    unreached = [name for name in guarded if not reached[name, "called"] + reached[name, "ran"]]
    if unreached:
        raise UsageError(
            f"in {search.explored.scenes} scenes, no call of {', '.join(map(repr, unreached))} "
            "with guarded arguments came to the agent's hooks, so nothing was shown; check "
            "guarded= and the tools that the agent offers, or pass values="
        )
    return search.explored


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        f"explore() was called in an event loop, of task {asyncio.current_task()!r}; call it in a "
        "test that is not async"
    )


def _new_agent(make: Make) -> Agent[Any]:
    agent, other = make(), make()
    if agent is other:
        raise UsageError(
            f"make={make!r} returned the same agent twice; make it anew, since its hooks may "
            "remember earlier scenes"
        )
    return agent


def _collect(agent: Any, own: dict[str, Any], below: dict[str, Any], depth: int) -> None:
    """Add the tools of the agent and those of its sub-agents, by name."""
    for tool, _ in agent.scopes.tools.values():
        own.setdefault(tool.name, tool)
        if tool.leads is not None and depth < DEPTH:
            inner = below if tool.leads == "agent" else own
            _collect(tool.agent, inner, below, depth + 1)


def _check_names(tools: Mapping[str, Any], *mappings: Mapping[str, Any]) -> None:
    for name in dict.fromkeys(name for mapping in mappings for name in mapping):
        if name not in tools:
            closest = get_close_matches(name, tools) or list(tools)
            raise UsageError(
                f"the agent has no tool {name!r}; name one of {', '.join(map(repr, closest))}"
            )


def _domains(
    tools: Mapping[str, AnyTool],
    guarded: Mapping[str, Guarded],
    values: Mapping[str, Iterable[Mapping[str, Any]]],
) -> dict[str, Domain]:
    return {
        name: domain_of(tool, guarded.get(name), values.get(name, ()))
        for name, tool in tools.items()
    }


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """Log nothing of hookline's: the faults of a scene are planned."""
    logger = logging.getLogger("hookline")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Search:
    """Plays scenes until one fails, and shortens that one."""

    def __init__(
        self, make: Make, guarded: dict[str, Guarded], invariants: list[Invariant]
    ) -> None:
        self.explored = Explored()
        self._make = make
        self._guarded = guarded
        self._invariants = invariants
        self._failure: tuple[World, str] | None = None

    def play(self, scene: Scene) -> str | None:
        """Play one scene in an event loop of its own; return what is wrong."""
        world = World(self._make, self._guarded, scene)
        with _quiet():
            asyncio.run(world.play())
        self.explored.scenes += 1
        self.explored.reached += world.reached
        problem = self._problem(world)
        if problem is not None:
            self._failure = world, problem
        return problem

    def _problem(self, world: World) -> str | None:
        if world.unapproved is not None:
            return f"{world.unapproved} ran without an approval"
        problems = (invariant(world) for invariant in self._invariants)
        return next((problem for problem in problems if problem is not None), None)

    def run(
        self,
        own: dict[str, Domain],
        below: dict[str, Domain],
        number: int,
        start: int,
        calls: int,
        faults: Collection[Fault],
    ) -> None:
        """Play this many scenes, or stop at the first that fails."""

        @seed(start)
        @settings(
            max_examples=number,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),  # pyright: ignore
            phases=[Phase.generate, Phase.shrink],
            report_multiple_bugs=False,
        )
        @given(scenes(own, below, calls=calls, faults=set(faults)))
        def check(scene: Scene) -> None:
            problem = self.play(scene)
            if problem is not None:
                raise Unapproved(problem)

        try:
            check()
        except (Unapproved, Flaky):
            assert self._failure is not None

    def raise_failure(self) -> None:
        """Raise the failure that was found, if there is one."""
        if self._failure is None:
            return
        world, problem = self._failure
        steps = "".join(f"\n  {line}" for line in world.trace)
        raise Unapproved(
            f"{problem}, after {self.explored.scenes} scenes:{steps}\n"
            f"play it again: explore(…, scene={world.scene.text()!r})"
        )
