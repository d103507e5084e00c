"""Write what is made from the source: `_hooks/typed.pyi`, `points.py`, the types of `.replace(…)`,
docs/hooks.md, pictures, the types of clients/typescript.

python scripts/dev/generate.py                 write them
python scripts/dev/generate.py --check         exit 1 when one is stale
python scripts/dev/generate.py --pages FOLDER  write the pages that only the site has
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import life
import msgspec
import phases
import replacing
import sketches
import typescript

from hookline._hooks.points import END, TABLE, PointSpec
from hookline._hooks.registration import HookOptions

ROOT = Path(__file__).resolve().parents[2]
TYPED = ROOT / "src" / "hookline" / "_hooks/typed.pyi"
POINTS_FACE = ROOT / "src" / "hookline" / "points.py"
DOCS = ROOT / "docs" / "hooks.md"
PICTURE = ROOT / "docs" / "images" / "life.svg"
PHASES = ROOT / "docs" / "images" / "phases.svg"
EVENTS = ROOT / "clients" / "typescript" / "src" / "events.ts"
REGISTRATION = ROOT / "src" / "hookline" / "_hooks/registration.py"
POINTS = ast.parse((ROOT / "src" / "hookline" / "_hooks/points.py").read_text(encoding="utf-8"))

HEAD = '''"""The types of `add_hook`, `hook` and `define_hook`, one overload per hook point.

Generated from the table in `_hooks/points.py` by scripts/dev/generate.py. Do not edit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, overload

from hookline._hooks import points as p
from hookline._hooks.wrappers import Proceed
{imports}
from hookline._hooks.declared import HookDef
from hookline._hooks.registration import Disposer
from hookline._base.run import D, DepsT

C = TypeVar("C")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
O = TypeVar("O", bound=p.Observer)
OnError = Literal["raise", "log"]
Maybe: TypeAlias = R | Awaitable[R | None] | None  # what an interceptor may give, sync or async


class ObserverDecorator(Protocol[C]):
    def __call__(self, hook: Callable[[C], T], /) -> Callable[[C], T]: ...


class InterceptorDecorator(Protocol[C, R]):
    @overload
    def __call__(
        self, hook: Callable[[C], Coroutine[Any, Any, R | None]], /
    ) -> Callable[[C], Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(self, hook: Callable[[C], R | None], /) -> Callable[[C], R | None]: ...


class WrapperDecorator(Protocol[C, T, R]):
    def __call__(
        self, hook: Callable[[C, Proceed[T, R]], Coroutine[Any, Any, R]], /
    ) -> Callable[[C, Proceed[T, R]], Coroutine[Any, Any, R]]: ...
'''

FACE = '''"""\
The contexts of the hook points: `add_hook` takes a context class in place of a point's name.

`matches` compares a tool's name with patterns, as the `tools=` option of a hook does. `as_tuple`
and `check_number` check arguments of your own that take a list or a number.

Generated from the table in `_hooks/points.py` by scripts/dev/generate.py. Do not edit.
"""

from hookline._base.lists import as_tuple
from hookline._base.numbers import check_number
from hookline._base.patterns import matches
from hookline._base.returns import Compaction, Guide, Hold
from hookline._hooks.points import {contexts}

__all__ = {names}
'''


def face() -> str:
    contexts = sorted(
        ["TABLE", "Context", "PointSpec", *(s.context.__name__ for s in TABLE.values())]
    )
    others = ["Compaction", "Guide", "Hold", "as_tuple", "check_number", "matches"]
    names = sorted([*contexts, *others])
    return FACE.format(contexts=", ".join(contexts), names=names)


def imports() -> str:
    """The imports of the types that hooks take and return."""
    by_module: dict[str, set[str]] = {}
    for spec in TABLE.values():
        for kind in (*spec.acts, *spec.takes):
            by_module.setdefault(kind.__module__, set()).add(kind.__name__)
    return "\n".join(
        f"from {module} import {', '.join(sorted(names))}" for module, names in by_module.items()
    )


def payload(spec: PointSpec) -> str:
    """The type that `proceed(changed)` takes."""
    return " | ".join(kind.__name__ for kind in spec.takes)


def returns(spec: PointSpec) -> str:
    union = " | ".join(kind.__name__ for kind in spec.acts)
    if spec.pair is not None:
        union += f" | tuple[{', '.join(kind.__name__ for kind in spec.pair)}]"
    return f"{union} | tuple[{union}, ...]" if spec.flat else union


def context(spec: PointSpec) -> str:
    generic = hasattr(spec.context, "__parameters__") and spec.context.__parameters__
    return f"p.{spec.context.__name__}" + ("[{D}]" if generic else "")


def hook_type(spec: PointSpec) -> str:
    ctx = context(spec)
    if spec.kind == "observer":
        return f"Callable[[{ctx}], object]"
    union = returns(spec)
    if spec.kind == "wrapper":
        return f"Callable[[{ctx}, Proceed[{payload(spec)}, {union}]], Awaitable[{union}]]"
    return f"Callable[[{ctx}], Maybe[{union}]]"


def decorator_type(spec: PointSpec) -> str:
    ctx = context(spec)
    if spec.kind == "observer":
        return f"ObserverDecorator[{ctx}]"
    if spec.kind == "wrapper":
        return f"WrapperDecorator[{ctx}, {payload(spec)}, {returns(spec)}]"
    return f"InterceptorDecorator[{ctx}, {returns(spec)}]"


def options(spec: PointSpec) -> str:
    lines = [
        "priority: int = 0,",
        "name: str | None = None,",
        "timeout: float | None = None,",
    ]
    deny = spec.name == "preToolCall"
    lines.append(
        'on_error: Literal["raise", "log", "deny"] = "raise",'
        if deny
        else 'on_error: OnError = "raise",'
    )
    if spec.at_tool:
        lines.append("tools: Iterable[str] | None = None,")
    # Only guards inherit by default, and only preToolCall has guards.
    lines.append("inherit: bool | None = None," if deny else "inherit: bool = False,")
    if deny:
        lines.append("guard: bool = False,")
    if spec.name in ("onResponse", "preMessage"):
        lines.append("keeps_deltas: bool = False,")
    if spec.name == "preSteer":
        lines.append("early: bool = False,")
    if spec.kind == "wrapper":
        lines.append("observes: bool = False,")
    return "\n        ".join(lines)


OWN_OPTIONS = """priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,"""


def point_type(spec: PointSpec) -> str:
    return f'Literal["{spec.name}"] | type[{context(spec).format(D="Any")}]'


REQUIRED = "required: bool = False,\n        "


def of_definitions(spec: PointSpec) -> str:
    """The options of a definition that depend on the point."""
    # Only a guard is required by default.
    required = REQUIRED.replace("bool = False", "bool | None = None")
    required = required if spec.name == "preToolCall" else REQUIRED
    withhold = "withhold: bool = False,\n        " if spec.name == "onResponse" else ""
    return required + withhold


def calls(result: str, extra: str, *, var: str) -> str:
    out: list[str] = []
    for spec in TABLE.values():
        hook = hook_type(spec).replace("{D}", var)
        out.append(f"""    @overload
    def __call__(
        self,
        point: {point_type(spec)},
        hook: {hook},
        *,
        {extra}{of_definitions(spec) if extra else ""}{options(spec)}
    ) -> {result}: ...
""")
    for point, hook in OWN:
        out.append(f"""    @overload
    def __call__(
        self,
        point: {point},
        hook: {hook},
        *,
        {extra}{REQUIRED if extra else ""}{OWN_OPTIONS}
    ) -> {result}: ...
""")
    return "".join(out)


def decorators(extra: str) -> str:
    """The decorator form of `define_hook`."""
    hooks = [
        (
            point_type(spec),
            hook_type(spec).replace("{D}", "Any"),
            of_definitions(spec) + options(spec),
        )
        for spec in TABLE.values()
    ]
    # Of a function, or of a method, whose first parameter is the object.
    hooks += [(point, hook, REQUIRED + OWN_OPTIONS) for point, hook in OWN]
    return "".join(
        f"""    @overload
    def __call__(
        self,
        point: {point},
        *,
        {extra}{rest}
    ) -> Callable[[{hook} | {hook.replace("Callable[[", "Callable[[Any, ", 1)}], HookDef]: ...
"""
        for point, hook, rest in hooks
    )


OWN = [
    ("type[O]", "Callable[[O], object]"),
    ("type[p.Interceptor[R]]", "Callable[[Any], Maybe[R]]"),
    ("type[p.Wrapper[R]]", "Callable[[Any, Proceed[Any, R]], Awaitable[R]]"),
]
OWN_DECORATORS = [
    ("type[O]", "ObserverDecorator[O]"),
    ("type[p.Interceptor[R]]", "InterceptorDecorator[Any, R]"),
    ("type[p.Wrapper[R]]", "WrapperDecorator[Any, Any, R]"),
]


def typed() -> str:
    text = (
        HEAD.replace("{imports}", imports())
        + "\n\nclass AddHook(Protocol[D]):\n"
        + calls("Disposer", "", var="D")
    )
    text += "\n\nclass HookDecorator(Protocol[DepsT]):\n"
    for spec in TABLE.values():
        kind = decorator_type(spec).replace("{D}", "DepsT")
        text += f"""    @overload
    def __call__(
        self,
        point: {point_type(spec)},
        *,
        {options(spec)}
    ) -> {kind}: ...
"""
    for point, kind in OWN_DECORATORS:
        text += f"""    @overload
    def __call__(
        self,
        point: {point},
        *,
        {OWN_OPTIONS}
    ) -> {kind}: ...
"""
    extra = "id: str | None = None,\n        "
    text += "\n\nclass DefineHook(Protocol):\n" + calls("HookDef", extra, var="Any")
    text += decorators(extra)
    return text


def ends(spec: PointSpec) -> str:
    found = [f"`{kind.__name__}`" for kind, act in spec.acts.items() if act is END]
    return ", ".join(found) if found and spec.kind == "interceptor" else "–"


def docs_below(tree: ast.Module, name: str) -> dict[str, str]:
    """What stands below each field of a class."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for field, below in zip(node.body, node.body[1:], strict=False):
                text = getattr(getattr(below, "value", None), "value", None)
                if isinstance(field, ast.AnnAssign) and isinstance(text, str):
                    found[ast.unparse(field.target)] = text
    return found


def option_rows() -> list[str]:
    """The options of a hook, as the docstrings of `HookOptions` explain them."""
    rows = []
    told = docs_below(ast.parse(REGISTRATION.read_text()), "HookOptions")
    for field in msgspec.structs.fields(HookOptions):
        default = None if field.required else field.default
        shown = f'"{default}"' if isinstance(default, str) else repr(default)
        effect = " ".join(told[field.name].split())
        rows.append(f"| `{field.name}` | `{shown}` | {effect} |")
    return rows


def stub(spec: PointSpec) -> list[str]:
    """A hook at this point that changes nothing."""
    context = f"ctx: {spec.context.__name__}"
    if spec.kind == "observer":
        lines = [f"def hook({context}) -> None:", "    ..."]
    elif spec.kind == "wrapper":
        result = returns(spec)
        proceed = f"Proceed[{payload(spec)}, {result}]"
        lines = [f"async def hook({context}, proceed: {proceed}) -> {result}:"]
        lines += ["    return await proceed()"]
    else:
        lines = [f"def hook({context}) -> {returns(spec)} | None:", "    return None"]
    return ["```py", f'@agent.hook("{spec.name}")', *lines, "```"]


def differs(spec: PointSpec, key: str) -> bool:
    """Whether a point has a rule of its own."""
    field = next(field for field in msgspec.structs.fields(PointSpec) if field.name == key)
    return bool(getattr(spec, key) != field.default)


def docs() -> str:
    lines = [
        "# The hook points",
        "",
        "Generated from the table in `src/hookline/_hooks/points.py` by `scripts/dev/generate.py`.",
        "",
        "This page is the reference. To find the point for a task, see [Hooks by task](tasks.md).",
        "",
        "```py",
        '@agent.hook("preRequest")',
        "def be_brief(ctx: PreRequest) -> ModelRequest:",
        '    return ctx.request.replace(system="Be brief.")',
        "```",
        "",
        "![The life of a chat, and its hook points](images/life.svg)",
        "",
        "An **observer** watches; its return value is ignored. An **interceptor** returns a",
        "changed value, or `None` to change nothing; the next interceptor sees the changed value.",
        "A **wrapper** is `async def w(ctx, proceed)`: it runs before and after the operation that",
        "it wraps.",
        "",
        "Requests, calls, answers and messages cannot be changed. Their method `replace` returns a",
        "changed copy, such as `ctx.request.replace(model=small)`. Type checkers know which fields",
        "`replace` takes.",
        "",
        "![The three kinds of hook: observers, interceptors, wrappers](images/kinds.svg)",
        "",
        "## Options",
        "",
        "`add_hook(point, hook, …)`, the decorator `hook(point, …)` and `define_hook` take these",
        "options:",
        "",
        "| option | default | effect |",
        "|---|---|---|",
        *option_rows(),
        "",
        "Only `define_hook` takes `id`, `required` and `withhold`. An unknown option, or an option",
        "that does not fit the point, raises `HookOptionError`.",
        "",
        "## Rules",
        "",
        "Each section begins with a hook that changes nothing. A hook may also be async. The",
        "contexts are in `hookline.points`, the chunks in `hookline.models`, the other types in",
        "`hookline`. At the points of a chat, the context also has `ctx.run`, the",
        "[run](chats.md#what-hooks-and-tools-can-use).",
        "",
        "Unless a section says otherwise, an exception in a hook ends the chat: `onChatError`",
        'fires, and the same exception reaches the caller. With `on_error="log"`, it is logged,',
        "and the chat continues with the last good value. When another process continues a",
        "[durable chat](durable.md) and replays its recorded steps, their hooks are not run again,",
        "unless a section says otherwise.",
        "",
        "At the points of a tool call, `tools=` limits a hook to some tools, by name or pattern:",
        '`tools=["pay", "fs_*"]`. In a pattern, `*` matches any text. Names are case-sensitive.',
        "To match names in your own hooks, call `hookline.points.matches`.",
        "",
        'A hook at `preToolCall` that is `required` or has `on_error="deny"` or `guard=True` is',
        "a [guard](guards.md). `agent.hooks()` and `hookline hooks` list the names in `tools=`",
        "that match no tool.",
        "",
        "Use priorities of 200 and above for safety guards, 100 to 199 for infrastructure, 0 to 99",
        "for the application, and below 0 for post-processing.",
        "",
        "| point | kind | returned types that end the chain |",
        "|---|---|---|",
    ]
    for spec in TABLE.values():
        cells = (f"[`{spec.name}`](#{spec.name.lower()})", spec.kind, ends(spec))
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for spec in TABLE.values():
        fields = [name for name in spec.context.__struct_fields__ if name != "run"]
        summary = (spec.context.__doc__ or "").strip().splitlines()[0]
        about = docs_below(POINTS, spec.context.__name__)
        names = [f"- `ctx.{name}`{': ' * (name in about)}{about.get(name, '')}" for name in fields]
        lines += [f"## {spec.name}", "", summary, ""]
        lines += [*stub(spec), "", *names, ""]
        if spec.note:
            lines += [f"{spec.note}.", ""]
        rules = [("If a hook raises an exception", "throws"), ("On replay", "replay")]
        own = [f"{what}: {getattr(spec, key)}." for what, key in rules if differs(spec, key)]
        lines += [" ".join(own), ""] if own else []
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    if "--pages" in sys.argv:
        folder = Path(sys.argv[-1])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "compatibility.md").write_text(compatibility())
        return 0
    stale = []
    made = (
        (TYPED, formatted(TYPED, typed())),
        (POINTS_FACE, formatted(POINTS_FACE, face())),
        (DOCS, docs()),
        (PICTURE, life.svg()),
        (PHASES, phases.svg()),
        (EVENTS, typescript.events()),
        *(
            (PICTURE.with_name(f"{name}.svg"), sketches.svg(each))
            for name, each in sketches.SKETCHES.items()
        ),
        *map(replacing.written, replacing.MODULES),
    )
    for path, text in made:
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path.name)
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    print("stale: " + ", ".join(stale) if stale else "up to date")
    return 1 if stale and "--check" in sys.argv else 0


def compatibility() -> str:
    """The page of what servers send, from the rows of its tests."""
    sys.path.insert(0, str(ROOT))
    from tests.providers._habits import page

    return page()


def formatted(path: Path, text: str) -> str:
    import subprocess

    for command in (["check", "--fix", "-q", "--select", "I,RUF022"], ["format", "-q"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(ruff, input=text, text=True, capture_output=True, check=True).stdout
    return text


if __name__ == "__main__":
    raise SystemExit(main())
