"""The budgets and bans no linter of ours checks: sizes, names, left-overs, docs in step."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = (
    "strandline",
    "api",
    "kafka_listener",
    "rlm",
    "rlmm",
    "kafka_client",
    "rsm_backends",
    "kafka_formats",
    "pipeline",
)
FILE_LINES_MAX = 500
ONE_IDEA_LINES_MAX = 600
ONE_IDEA = {"pipeline/decode/kernel.pyx"}
"""A compiled kernel whose parts mean nothing alone."""
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 7
MORE_PARAMETERS = {
    "kafka_formats/record_batch.py: encode_batch": "the fields of a batch's header, mostly left out"
}
"""With the reason. Commands (`*_command`) have one parameter an option: that is Typer's form."""
MORE_PARTS = {
    "kafka_listener/connections/answers.py: Answers",
    "kafka_listener/connections/fetching.py: Fetching",
    "rlm/delegated/calls.py: BrokerCalls",
    "rlm/delegated/copies.py: BrokerCopies",
    "rlm/retention/expirer.py: Expirer",
    "strandline/node/node.py: Node",
    "strandline/node/remote_log.py: RemoteLogParts",
}
"""Dataclasses that work and are made of more parts than a parameter list may have: take away, and
add none. Dataclasses that are values are what says a long list, and may have any number.
"""
BLOB_BYTES_MAX = 1_000_000
BANNED_MODULE_NAMES = {
    "utils",
    "util",
    "common",
    "helpers",
    "helper",
    "misc",
    "manager_of_managers",
}
LEFT_OVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
PURE_FORBIDDEN = {
    "asyncio", "threading", "socket", "time", "random", "uuid", "boto3", "botocore",
    "aiobotocore", "rocksdict", "fastapi", "kio", "confluent_kafka",
}  # fmt: skip
PURE_MODULES = (
    "kafka_formats/*.py",
    "rlmm/lineage.py",
    "rlmm/partition_state.py",
    "rlmm/segment.py",
    "rlmm/records/*.py",
    "rlmm/rows/*.py",
    "rlmm/apply/*.py",
    "rlmm/raft/*.py",
    "rlm/format/*.py",
    "rlm/*/*_plan.py",
    "rlm/leadership/leadership.py",
    "rlm/control/backoff.py",
    "rlm/control/why_not.py",
    "rlm/fetch/leader_transition.py",
    "rlm/fetch/follower_start.py",
    "rlm/fetch/list_offsets.py",
    "strandline/node/readiness.py",
)
"""Pure whatever they say of themselves; a module whose docstring says so is held to it as well."""
SAYS_PURE = re.compile(r"\bPure[.:]")
PLAIN_WORDS = (
    "api",
    "bench",
    "kafka_formats",
    "kafka_client",
    "kafka_listener",
    "pipeline",
    "rlm",
    "rlmm",
    "rsm_backends",
    "sim",
    "strandline",
)
"""Packages and folders whose docstrings were put into plain words (docs/STYLE.md); add to it."""
FOREIGN_OPENING = re.compile(r"(What|Whether|Who|Whose|How|When|Which)\b")
HALF_AN_OPENING = re.compile(
    r"(Of|With|Without|From|To|For|By|As|In|On|Over|Below|Behind|Beside|Between|Around|Under"
    r"|Within|Past|Before|After|Until|Once|Like|Per|So|Where|Why|At(?! most| least))\b"
    r"|(The same|The other|Those|These|That|It|Its|They|Their|One per)\b"
    r"|(None|True|False|[A-Z]{2}[A-Z_]*|Conflict|Fenced|Refused|[A-Z]\w*[a-z][A-Z]\w*):"
    r"|([A-Z]\w*Error|RetryLater|CorruptData|InvalidRequest|NotFound|OutcomeUnknown)\b"
    r"|(False|None|Conflict|Fenced|Refused)(\(\w+\))? (for|if|unless|once|below|until|that)\b"
)
"""A preposition without the noun before it, a pronoun without its noun, an error or a value without
the sentence that it belongs to: a reader sees a docstring alone, in an editor's box.
"""
CODECS_ALLOWED = {
    "rlmm/wire/": {"kio", "uuid"},
    "kafka_client/": {"kio", "uuid"},
    "kafka_listener/protocol/": {"kio"},
}
"""The schemas and the UUID type of the one library that has its home there are plain values."""


@cache
def tracked(*patterns: str) -> tuple[Path, ...]:
    """Files git knows (or would add), so that a build folder never fails a check."""
    out = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    ).stdout
    paths = (REPOSITORY / name for name in out.decode().split("\0") if name)
    return tuple(sorted(path for path in paths if path.is_file()))


def python_files() -> tuple[Path, ...]:
    return tracked("*.py")


def relative(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


class Function(NamedTuple):
    """Its length, and the number of its parameters without `self` and `cls`."""

    name: str
    lines: int
    parameters: int


class Part(NamedTuple):
    """A dataclass that works, by an async method or a state of its own, and is no plain value.
    `given`: the number of its fields that a caller has to give.
    """

    name: str
    given: int


class Facts(NamedTuple):
    """What the rules below ask of a Python file. Its syntax tree would take too much memory."""

    opening: str
    is_docstring_only: bool
    functions: tuple[Function, ...]
    parts: tuple[Part, ...]
    imported_roots: frozenset[str]
    docstrings: tuple[tuple[int, str], ...]


@cache
def facts(path: Path) -> Facts:
    """Each file is parsed once in a process, whatever is asked of it."""
    tree = ast.parse(path.read_text())
    functions: list[Function] = []
    parts: list[Part] = []
    roots: set[str] = set()
    texts: list[tuple[int, str]] = []
    for node in statements(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
                count = len(names) + len(node.args.kwonlyargs) - (names[:1] in (["self"], ["cls"]))
                functions.append(Function(node.name, lines, count))
            case ast.ClassDef() if does_work(node):
                fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
                given = [each for each in fields if each.value is None and not is_marker(each)]
                parts.append(Part(node.name, len(given)))
            case ast.Import():
                roots |= {alias.name.split(".")[0] for alias in node.names}
            case ast.ImportFrom(module=str(module)):
                roots.add(module.split(".")[0])
            case ast.Expr(value=ast.Constant(value=str(text))):
                texts.append((node.lineno, text.lstrip()))
    is_docstring_only = len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr)
    opening = ast.get_docstring(tree) or ""
    return Facts(
        opening, is_docstring_only, tuple(functions), tuple(parts), frozenset(roots), tuple(texts)
    )


def is_marker(field: ast.AnnAssign) -> bool:
    return isinstance(field.annotation, ast.Name) and field.annotation.id == "KW_ONLY"


def does_work(node: ast.ClassDef) -> bool:
    decorators = [ast.unparse(each) for each in node.decorator_list]
    made = next((each for each in decorators if each.startswith("dataclass")), None)
    methods = [
        each
        for each in node.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.decorator_list
    ]
    is_async = any(isinstance(each, ast.AsyncFunctionDef) for each in methods)
    return made is not None and (is_async or (bool(methods) and "frozen=True" not in made))


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements, in no order. Functions, imports and docstrings are in no expression."""
    left: list[ast.AST] = [*tree.body]
    while left:
        node = left.pop()
        yield node
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            left += getattr(node, name, ())


def test_files_stay_small_enough_to_read_at_once() -> None:
    long = {}
    for path in (*python_files(), *tracked("*.pyx")):
        name, count = relative(path), len(path.read_text().splitlines())
        if count > (ONE_IDEA_LINES_MAX if name in ONE_IDEA else FILE_LINES_MAX):
            long[name] = count
    assert long == {}


def test_functions_stay_small_enough_to_hold_in_the_head() -> None:
    long = []
    for path in python_files():
        for each in facts(path).functions:
            if each.lines > FUNCTION_LINES_MAX:
                long.append(f"{relative(path)}: {each.name} has {each.lines} lines")
    assert long == []


def test_parameter_lists_stay_short_where_a_value_object_says_it() -> None:
    assert len(MORE_PARAMETERS) <= 3
    long = set()
    for path in python_files():
        if relative(path).startswith(("tests/", "bench/")):
            continue
        for each in facts(path).functions:
            if each.parameters > PARAMETERS_MAX and not each.name.endswith("_command"):
                long.add(f"{relative(path)}: {each.name}")
    assert long == set(MORE_PARAMETERS)


def test_dataclasses_that_work_are_made_of_few_parts() -> None:
    assert len(MORE_PARTS) <= 7
    many = {
        f"{relative(path)}: {each.name}"
        for path in python_files()
        if not relative(path).startswith(("tests/", "bench/"))
        for each in facts(path).parts
        if each.given > PARAMETERS_MAX
    }
    assert many == MORE_PARTS


def test_no_module_is_named_after_nothing() -> None:
    bad = [
        relative(path)
        for path in python_files()
        if {path.stem, *path.relative_to(REPOSITORY).parts} & BANNED_MODULE_NAMES
    ]
    assert bad == []


def test_no_process_lets_sigpipe_end_it() -> None:
    """A peer that goes away would end a node, a worker or a job without a word."""
    found = [
        relative(path)
        for path in python_files()
        if relative(path).partition("/")[0] in (*PACKAGES, "executors", "pyspark_strandline")
        and "SIG_DFL" in path.read_text()
    ]
    assert found == []


def test_nothing_is_left_over() -> None:
    found = [
        f"{relative(path)}:{number}"
        for path in tracked("*.py", "*.md", "*.java", "*.sh", "Makefile")
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if LEFT_OVERS.search(line)
    ]
    assert found == []


def test_no_large_blob_is_kept_in_the_repository() -> None:
    assert [relative(path) for path in tracked() if path.stat().st_size > BLOB_BYTES_MAX] == []


def test_package_init_files_hold_a_docstring_only() -> None:
    busy = []
    for path in python_files():
        # Spark takes the data source from the package itself.
        if path.name != "__init__.py" or relative(path) == "pyspark_strandline/__init__.py":
            continue
        if not facts(path).is_docstring_only:
            busy.append(relative(path))
    assert busy == []


@pytest.mark.parametrize("pattern", PURE_MODULES)
def test_pure_modules_import_no_world(pattern: str) -> None:
    paths = list(REPOSITORY.glob(pattern))
    assert paths, f"{pattern} names no file any more: bring this list up to date"
    for path in paths:
        assert facts(path).imported_roots & PURE_FORBIDDEN == set(), relative(path)


def test_what_says_it_is_pure_imports_no_world() -> None:
    says = {
        relative(path): path
        for path in python_files()
        if relative(path).startswith(PACKAGES) and SAYS_PURE.search(facts(path).opening)
    }
    assert "rlm/reconcile/adoption_plan.py" in says, "the rule finds nothing any more"
    worldly = {}
    for name, path in says.items():
        allowed = next((found for home, found in CODECS_ALLOWED.items() if home in name), set())
        if found := facts(path).imported_roots & PURE_FORBIDDEN - allowed:
            worldly[name] = found
    assert worldly == {}


def docstrings(path: Path) -> Iterable[tuple[int, str]]:
    """(line, text) of every docstring, those below assignments included."""
    if path.suffix != ".pyx":
        return facts(path).docstrings
    source = path.read_text()
    return [
        (source.count("\n", 0, found.start()) + 1, found[1].lstrip())
        for found in re.finditer(r'^ *"""(.+?)"""', source, flags=re.MULTILINE | re.DOTALL)
    ]


@pytest.mark.parametrize("package", PLAIN_WORDS)
def test_docstrings_say_first_what_a_thing_is_or_does(package: str) -> None:
    paths = tracked(f"{package}/*.py", f"{package}/*.pyx")
    assert paths, f"{package} has no file any more: bring PLAIN_WORDS up to date"
    assert [
        f"{relative(path)}:{line}: {text.splitlines()[0]}"
        for path in paths
        for line, text in docstrings(path)
        if FOREIGN_OPENING.match(text)
    ] == []


@pytest.mark.parametrize("package", PLAIN_WORDS)
def test_docstrings_begin_with_a_whole_sentence(package: str) -> None:
    assert [
        f"{relative(path)}:{line}: {text.splitlines()[0]}"
        # Not the .pyx: a word changed there has everybody compile the module anew.
        for path in tracked(f"{package}/*.py")
        for line, text in docstrings(path)
        if HALF_AN_OPENING.match(text)
    ] == []


def test_half_openings_are_found() -> None:
    half = ("Of a page.", "To an Ask.", "FrameError: malformed.", "LIVE: it is.", "None: unknown.",
            "RetryLater if it waits.", "Conflict(SCHEMA) unless they agree.")  # fmt: skip
    whole = (
        "At most a page.",
        "The answer to an Ask.",
        "Official: yes.",
        "None of them.",
        "Frames.",
    )
    assert [text for text in (*half, *whole) if HALF_AN_OPENING.match(text)] == list(half)


ONE_HOME = {
    "rocksdict": ("rlmm/view/view.py",),
    "confluent_kafka": (
        "rlm/leadership/broker_view.py",
        "pipeline/restore/kafka_target.py",
        "pipeline/export/schema_registry.py",
    ),
    "kio": ("kafka_client/", "kafka_listener/protocol/", "rlmm/wire/"),
    "aiobotocore": ("rsm_backends/s3",),
    "boto3": ("rsm_backends/s3",),
    "fastapi": ("api/",),
}


@pytest.mark.parametrize("library", sorted(ONE_HOME))
def test_each_large_library_has_one_home(library: str) -> None:
    strays = [
        relative(path)
        for path in python_files()
        if relative(path).startswith(PACKAGES)
        and library in facts(path).imported_roots
        and not relative(path).startswith(ONE_HOME[library])
    ]
    assert strays == []


def test_the_loop_clock_is_not_a_way_around_the_ban_on_ambient_time() -> None:
    loop_time = re.compile(r"get_(running_|event_)?loop\(\)\.time\(")
    found = [
        relative(path)
        for path in python_files()
        if relative(path).startswith(PACKAGES) and loop_time.search(path.read_text())
    ]
    assert found == []


def test_lock_files_name_no_registry() -> None:
    for path in tracked("requirements/*.txt"):
        text = path.read_text()
        assert "://" not in text, f"{relative(path)} names an address"
        assert "--hash=" in text, f"{relative(path)} is not hash-locked"


def test_documents_cite_no_line_numbers() -> None:
    cited = re.compile(r"\.py:\d+")
    assert [relative(p) for p in tracked("*.md") if cited.search(p.read_text())] == []
