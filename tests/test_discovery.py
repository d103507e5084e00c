"""`hookline.discovery`: hooks out of a folder that is named, and out of entry points."""

import importlib
import os
import sys
import textwrap
from pathlib import Path

import pytest

from hookline import Agent
from hookline.discovery import Discovery, from_entry_points, from_folder
from hookline.errors import DiscoveryError
from hookline.testing import ScriptedModel

GOOD = """
    from hookline import define_hook
    ran = []

    @define_hook("onChatStart", id="{id}")
    def greet(ctx):
        ran.append(ctx.message.text)
"""
BROKEN = "import nothing_of_that_name\n"
posix = pytest.mark.skipif(os.name != "posix", reason="modes and links of POSIX")


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "hooks"
    place.mkdir(mode=0o755)
    return place


def write(folder, name, text, **values):
    path = folder / name
    path.write_text(textwrap.dedent(text).format(**values) if values else textwrap.dedent(text))
    path.chmod(0o644)
    return path


def ids(found):
    return [hook.id for hook in found.hooks]


# ── a folder ────────────────────────────────────────────────────────────────────────────────


async def test_valid_files_load_a_broken_one_is_reported_by_name_and_the_others_work(folder):
    write(folder, "a.py", GOOD, id="a")
    write(folder, "b.py", BROKEN)
    write(folder, "c.py", GOOD, id="c")
    found = from_folder(folder)
    assert ids(found) == ["a", "c"]
    (problem,) = found.problems
    assert problem.where == f"file {folder / 'b.py'}"
    assert "ModuleNotFoundError" in problem.why
    agent = Agent(ScriptedModel("ok"), hooks=found.hooks)
    await agent.chat("hello")
    assert found.hooks[0].fn.__globals__["ran"] == ["hello"]
    assert [info.origin for info in agent.hooks()] == [
        f"file {folder / 'a.py'}",
        f"file {folder / 'c.py'}",
    ]


async def test_hooks_of_files_are_declared_so_a_chat_may_replace_them(folder):
    write(folder, "a.py", GOOD, id="a")
    found = from_folder(folder)
    agent = Agent(ScriptedModel("ok", "ok"), hooks=found.hooks)
    await agent.chat("one", only_hooks=[])
    await agent.chat("two", only_hooks=["a"])
    assert found.hooks[0].fn.__globals__["ran"] == ["two"]


@pytest.mark.parametrize("text", [BROKEN, "def (", "raise SystemExit(1)", "x = 1\n", "\x00"])
def test_every_way_to_fail_is_a_problem(folder, text):
    write(folder, "a.py", text)
    found = from_folder(folder)
    assert found.hooks == ()
    assert len(found.problems) == 1


def test_a_file_that_fails_leaves_no_module(folder):
    before = set(sys.modules)
    write(folder, "a.py", BROKEN)
    from_folder(folder)
    assert not {name for name in sys.modules if name.startswith("hookline_hooks")} - before


@pytest.mark.parametrize("name", ["_private.py", "__init__.py", ".hidden.py", "notes.txt", "a.pyc"])
def test_other_files_are_left_alone(folder, name):
    write(folder, name, BROKEN)
    assert from_folder(folder) == Discovery((), ())


def test_definitions_in_lists_and_imported_ones_are_taken_once(folder):
    text = """
        from hookline.hooks import budget
        from hookline import HookDef
        guards = [budget(steps=3), [HookDef("onStep", lambda ctx: None, id="x")]]
        x = guards[1][0]
    """
    write(folder, "a.py", text)
    found = from_folder(folder)
    assert ids(found).count("x") == 1
    assert "preRequest" in [hook.point for hook in found.hooks]


SETS = """
    from hookline import HookSet, define_hook

    ran = []

    class Tenant(HookSet):
        def __init__(self, name{default}):
            self.name = name

        @define_hook("onChatStart")
        def start(self, ctx):
            ran.append(self.name)

    @define_hook("onChatStart")
    def plain(ctx):
        ran.append("plain")

    {offer}
"""


ANY = """
    class Any:
        @define_hook("onChatStart")
        def start(self, ctx):
            ran.append("any")

    any = Any()
"""


def sets(offer, default=""):
    return textwrap.dedent(SETS).format(offer=textwrap.dedent(offer), default=default)


async def starts(found):
    """The names of the hooks that a chat ran."""
    await Agent(ScriptedModel("ok"), hooks=found.hooks).chat("hello")
    return found.hooks[0].fn.__globals__["ran"]


@pytest.mark.parametrize(
    ("text", "ran"),
    [
        (sets("ann = Tenant('ann')"), ["plain", "ann"]),
        (sets("ann = Tenant('ann'); also = [ann, plain]"), ["plain", "ann"]),
        (sets("both = [Tenant('ann'), (Tenant('bob'), plain)]"), ["plain", "ann", "bob"]),
        (sets("start = Tenant('ann').start"), ["plain", "ann"]),
        (sets("", default="='own'"), ["plain", "own"]),
        (sets("these = [Tenant, plain]", default="='own'"), ["plain", "own"]),
        (sets("class Other(Tenant): pass", default="='own'"), ["plain", "own"]),
        (sets(ANY, default="='own'"), ["plain", "any", "own"]),
        (sets("ann = Tenant('ann'); ann.hooks = [Tenant('bob')]"), ["plain", "bob", "ann"]),
    ],
    ids=[
        *("object", "twice", "list", "bound", "class", "listed-class", "subclass", "any-class"),
        "hooks",
    ],
)
async def test_objects_and_classes_of_hooks_in_a_file_are_taken_once(folder, text, ran):
    write(folder, "a.py", "# A file.\n").write_text(text)
    found = from_folder(folder)
    assert found.problems == ()
    assert await starts(found) == ran
    assert {hook.origin for hook in found.hooks} == {f"file {folder / 'a.py'}"}


@pytest.mark.parametrize(
    ("offer", "why"),
    [
        (
            "",
            "the class Tenant needs arguments (missing a required argument: 'name'); offer",
        ),
        (
            "these = [plain, Tenant]",
            "the class Tenant needs arguments (missing a required argument: 'name')",
        ),
        (
            "these = [plain, 3]",
            "3 is not a hook; use @define_hook(...), an object or a class",
        ),
        ("class Empty(HookSet): pass\nx = [plain, Empty()]", "Empty object at"),
    ],
    ids=["class", "listed-class", "number", "no-hooks"],
)
def test_a_file_that_offers_something_else_is_a_problem(folder, offer, why):
    write(folder, "a.py", "").write_text(sets(offer))
    found = from_folder(folder)
    assert found.hooks == ()
    assert why in found.problems[0].why


def test_modules_and_lists_without_hooks_in_a_file_are_left_alone(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder.parent))
    write(folder.parent, "all_hooks.py", GOOD, id="elsewhere")
    write(folder, "a.py", "import all_hooks\nNAMES = ['a', 1]\n" + textwrap.dedent(GOOD), id="a")
    assert ids(from_folder(folder)) == ["a"]


def test_files_load_in_the_order_of_their_names(folder):
    for name in ("c", "a", "b"):
        write(folder, f"{name}.py", GOOD, id=name)
    assert ids(from_folder(folder)) == ["a", "b", "c"]


def test_an_id_that_is_taken_is_a_problem_of_the_later_file(folder):
    write(folder, "a.py", GOOD, id="same")
    write(folder, "b.py", GOOD, id="same")
    found = from_folder(folder)
    assert ids(found) == ["same"]
    (problem,) = found.problems
    assert problem.where.endswith("b.py")
    assert "'same' is taken" in problem.why
    assert "a.py" in problem.why


async def test_what_was_found_is_a_plugin_and_its_hooks_keep_their_origin(folder):
    write(folder, "a.py", GOOD, id="a")
    write(folder, "b.py", BROKEN)
    agent = Agent(ScriptedModel("ok"))
    remove = await agent.use(from_folder(folder))
    assert [info.origin for info in agent.hooks()] == [f"file {folder / 'a.py'}"]
    remove()
    assert agent.hooks() == ()


# ── guards ──────────────────────────────────────────────────────────────────────────────────


def test_a_required_file_that_fails_stops_the_agent_from_being_made(folder):
    write(folder, "a.py", GOOD, id="a")
    write(folder, "guards.py", BROKEN)
    with pytest.raises(DiscoveryError, match=r"guards\.py.*ModuleNotFoundError") as caught:
        Agent(ScriptedModel(), hooks=from_folder(folder, required=["guards.py"]).hooks)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


@pytest.mark.parametrize("text", ["def (", BROKEN, "x = 1\n"])
def test_a_file_may_say_itself_that_it_is_required(folder, text):
    write(folder, "guards.py", "# hookline: required\n" + text)
    with pytest.raises(DiscoveryError, match=r"guards\.py"):
        from_folder(folder)


def test_a_required_file_that_is_gone_is_missed(folder):
    with pytest.raises(DiscoveryError, match=r"guards\.py. is missing"):
        from_folder(folder, required=["guards.py"])


@posix
@pytest.mark.parametrize(("mode", "who"), [(0o646, "everyone"), (0o664, "group")])
def test_a_required_file_that_others_may_write_is_not_passed_over(folder, mode, who):
    write(folder, "guards.py", "# hookline: required\n" + textwrap.dedent(GOOD), id="g")
    (folder / "guards.py").chmod(mode)
    with pytest.raises(DiscoveryError, match=who):
        from_folder(folder)


@pytest.mark.parametrize(
    "mark",
    [
        b"\xef\xbb\xbf# hookline: required\n",
        b"\xef\xbb\xbf\r\n# hookline: required\r\n",
        b'"""Guards."""\r# hookline: required\r',
        b"  # Hookline:  Required  \n",
        b"#hookline:required",
    ],
    ids=["after a BOM", "CRLF", "CR", "indented", "without spaces"],
)
def test_the_mark_is_read_however_the_file_was_saved(folder, mark):
    (folder / "guards.py").write_bytes(mark + b"\nimport nothing_of_that_name\n")
    (folder / "guards.py").chmod(0o644)
    with pytest.raises(DiscoveryError, match=r"required.*guards\.py"):
        from_folder(folder)


def test_a_file_that_speaks_of_the_mark_is_not_marked(folder):
    write(folder, "a.py", "# See '# hookline: required'\n" + BROKEN)
    assert len(from_folder(folder).problems) == 1


@posix
def test_a_file_that_cannot_be_read_counts_as_required(folder, monkeypatch):
    path = write(folder, "guards.py", "# hookline: required\n" + textwrap.dedent(GOOD), id="g")
    read = Path.read_bytes

    def denied(self):
        if self == path:  # no mode keeps the administrator from reading
            raise PermissionError(13, "Permission denied")
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", denied)
    path.chmod(0o666)
    with pytest.raises(DiscoveryError, match=r"required.*guards\.py"):
        from_folder(folder)


@posix
@pytest.mark.parametrize("target", ["nowhere.py", "hooks/guards.py"], ids=["dangling", "circle"])
def test_a_link_to_nothing_counts_as_required(folder, target):
    write(folder, "a.py", GOOD, id="a")
    (folder / "guards.py").symlink_to(folder.parent / target)
    with pytest.raises(DiscoveryError, match=r"required.*guards\.py"):
        from_folder(folder)


# ── which folder ────────────────────────────────────────────────────────────────────────────


def test_the_folder_must_be_named(folder, monkeypatch):
    write(folder, "a.py", GOOD, id="a")
    monkeypatch.chdir(folder)
    with pytest.raises(TypeError):
        from_folder()
    for relative in (".", "", "hooks", "../hooks"):
        with pytest.raises(DiscoveryError, match="absolute path"):
            from_folder(relative)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(DiscoveryError, match="is not a folder"):
        from_folder(tmp_path / "nowhere")


@posix
@pytest.mark.parametrize(("mode", "who"), [(0o777, "everyone"), (0o775, "group")])
def test_a_folder_that_others_may_write_is_refused(folder, mode, who):
    folder.chmod(mode)
    with pytest.raises(DiscoveryError, match=who):
        from_folder(folder)


@posix
def test_every_folder_up_to_the_root_is_looked_at(folder):
    root = folder.parent
    assert from_folder(folder, root=root) == Discovery((), ())
    root.chmod(0o777)
    assert from_folder(folder) == Discovery((), ())
    with pytest.raises(DiscoveryError, match="everyone"):
        from_folder(folder, root=root)


@posix
@pytest.mark.parametrize(("mode", "who"), [(0o666, "everyone"), (0o664, "group")])
def test_a_file_that_others_may_write_is_not_run(folder, mode, who):
    write(folder, "a.py", GOOD, id="a")
    (folder / "a.py").chmod(mode)
    found = from_folder(folder)
    assert found.hooks == ()
    assert who in found.problems[0].why


@posix
def test_a_folder_must_lie_in_its_root_with_links_resolved(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    write(outside, "a.py", GOOD, id="a")
    (root / "hooks").symlink_to(outside)
    with pytest.raises(DiscoveryError, match="must be inside"):
        from_folder(root / "hooks", root=root)
    with pytest.raises(DiscoveryError, match="must be inside"):
        from_folder(root / ".." / "outside", root=root)


@posix
def test_a_link_out_of_the_folder_is_not_followed_one_inside_is(folder, tmp_path):
    outside = write(tmp_path, "evil.py", GOOD, id="evil")
    write(folder, "a.py", GOOD, id="a")
    (folder / "b.py").symlink_to(outside)
    found = from_folder(folder)
    assert ids(found) == ["a"]
    assert [problem.where[-4:] for problem in found.problems] == ["b.py"]
    (folder / "e.py").symlink_to(folder / "a.py")
    assert "is taken" in from_folder(folder).problems[-1].why


@posix
def test_a_pipe_is_no_file_of_hooks(folder):
    os.mkfifo(folder / "a.py", 0o600)
    found = from_folder(folder)
    assert "regular" in found.problems[0].why


@posix
@pytest.mark.skipif(os.name == "posix" and os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_not_run(folder):
    os.chown(write(folder, "a.py", GOOD, id="a"), 12345, -1)
    assert "another user" in from_folder(folder).problems[0].why


STATIC = """
    from hookline import define_hook
    made = []
    ran = []

    class Guard:
        def __init__(self):
            made.append(type(self).__name__)

        {decorators[0]}
        {decorators[1]}
        def check(*given):
            ran.append(given[-1].message.text)

    {offer}
"""


@pytest.mark.parametrize(
    "decorators",
    [
        pytest.param(("@staticmethod", "@define_hook('onChatStart')"), id="static outside"),
        pytest.param(("@define_hook('onChatStart')", "@staticmethod"), id="static inside"),
    ],
)
@pytest.mark.parametrize(
    ("offer", "made"),
    [
        pytest.param("pass", ["Guard"], id="the class alone"),
        pytest.param("guard = Guard()", ["Guard"], id="an object"),
        pytest.param("guards = [Guard]", ["Guard"], id="the class in a list"),
        pytest.param("guards = ([Guard()],)", ["Guard"], id="an object in a list"),
        pytest.param("own = type('Own', (Guard,), {})()", ["Own"], id="of a subclass"),
    ],
)
async def test_a_class_of_static_hooks_has_one_object(folder, decorators, offer, made):
    write(folder, "a.py", STATIC, decorators=decorators, offer=offer)
    found = from_folder(folder, required=["a.py"])
    module = found.hooks[0].fn.__globals__
    assert module["made"] == made
    await Agent(ScriptedModel("ok"), hooks=found.hooks).chat("hello")
    assert module["ran"] == ["hello"]


# ── entry points ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with entry points, as an installer leaves it."""

    def install(**points):
        info = tmp_path / "fake-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake\nVersion: 1.0\n")
        lines = "\n".join(f"{name} = {value}" for name, value in points.items())
        (info / "entry_points.txt").write_text(f"[hookline.hooks]\n{lines}\n")
        module = tmp_path / "fake_hooks.py"
        module.write_text(
            "from hookline import HookDef\n"
            "alone = HookDef('onChatStart', print, id='alone')\n"
            "several = (alone, [HookDef('onStep', print, id='inner')])\n"
            "def made(): return [HookDef('onStep', print, id='made')]\n"
            "nothing = 3\n"
            + sets("""
                ann = Tenant('ann')
                mixed = [plain, ann, Tenant('bob')]
                def one(): return Tenant('one')
                class Ready(Tenant):
                    def __init__(self): super().__init__('ready')
                class Static:
                    made = []
                    def __init__(self):
                        self.made.append(self)
                    @define_hook('onChatStart')
                    @staticmethod
                    def check(ctx): ran.append('static')
                wrong = [plain, 'no hook']
                empty = []
            """)
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "fake_hooks", raising=False)
        importlib.invalidate_caches()

    return install


def test_hooks_of_installed_packages(installed):
    installed(
        a="fake_hooks:several",
        b="fake_hooks:made",
        c="fake_hooks:missing",
        d="no_such_module:x",
        e="fake_hooks:nothing",
    )
    found = from_entry_points()
    assert ids(found) == ["alone", "inner", "made"]
    assert [problem.where for problem in found.problems] == [
        "entry point c",
        "entry point d",
        "entry point e",
    ]
    assert {hook.origin for hook in found.hooks} == {"entry point a", "entry point b"}


@pytest.mark.parametrize(
    ("offer", "ran"),
    [
        ("ann", ["ann"]),
        ("mixed", ["plain", "ann", "bob"]),
        ("Ready", ["ready"]),
        ("one", ["one"]),
        ("Static", ["static"]),
    ],
)
async def test_an_entry_point_gives_objects_classes_and_lists_of_hooks(installed, offer, ran):
    installed(a=f"fake_hooks:{offer}")
    found = from_entry_points(required=["a"])
    assert await starts(found) == ran
    assert len(sys.modules["fake_hooks"].Static.made) == (offer == "Static")
    assert {hook.origin for hook in found.hooks} == {"entry point a"}


async def test_two_entry_points_that_give_the_same_object_give_its_hooks_once(installed):
    installed(a="fake_hooks:ann", b="fake_hooks:mixed")
    assert await starts(from_entry_points()) == ["ann", "plain", "bob"]


@pytest.mark.parametrize(
    ("offer", "why"),
    [
        (
            "Tenant",
            "the class Tenant needs arguments (missing a required argument: 'name'); offer",
        ),
        ("HookSet", "HookSet'> is not a hook"),
        ("wrong", "'no hook' is not a hook; use @define_hook(...)"),
        ("nothing", "3 is not a hook"),
        ("empty", "fake_hooks:empty returned an empty list"),
    ],
)
def test_an_entry_point_that_gives_something_else_is_a_problem(installed, offer, why):
    installed(a=f"fake_hooks:{offer}")
    found = from_entry_points()
    assert found.hooks == ()
    assert why in found.problems[0].why
    with pytest.raises(DiscoveryError, match="entry point a"):
        from_entry_points(required=["a"])


def test_only_those_that_are_named(installed):
    installed(a="fake_hooks:alone", b="fake_hooks:made")
    assert ids(from_entry_points(["b"])) == ["made"]


def test_a_required_entry_point_that_fails_or_is_not_there(installed):
    installed(a="no_such_module:x")
    with pytest.raises(DiscoveryError, match=r"entry point a.*ModuleNotFoundError"):
        from_entry_points(required=["a"])
    with pytest.raises(DiscoveryError, match="the required entry point 'b'"):
        from_entry_points(required=["b"])


def test_without_any_there_is_nothing():
    assert from_entry_points(group="hookline.no.such.group") == Discovery((), ())
