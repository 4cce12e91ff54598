"""Size and structure of the source, counted, with the limits that tests/test_house.py checks: `make house`.

The counts need only Python's own parser, so they run without the package's dependencies.
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PYTHON_FOLDERS = ("src", "tests", "recipes", "benchmarks", "soak", "docs")

# Packages from top to bottom. Imports point down only, those for type hints included; packages of one level do not
# import each other.
LEVELS = (
    {"cli"},
    {"studio"},
    {"experiments", "advice"},
    {"runs"},
    {"report"},
    {"lm_eval"},
    {"probes"},
    {"training", "decoding", "scoring"},
    {"diffusion", "tasks"},
    {"models"},
    {"records", "kernels"},
    {"support"},
)

# What a count may be at most. Where the goal is not reached yet, the limit is today's count: lower it with the count.
LIMITS = {
    "lines of src": 48_150,  # goal: below 34,000; docs/architecture.md, "Size", says what came in
    "files in one folder": 20,
    "lines of the longest function body": 60,
    "lines of the longest file": 380,
    "format exceptions": 72,
    "circular imports": 0,
    "upward imports": 0,
    "type names defined twice": 0,
    "file names used twice": 1,  # model.py: lm_eval's is an entry point, by which stale installs still look for it
    "string keys of records": 8,  # those of outside formats
    "dict[str, Any] annotations": 180,  # goal: those of outside formats alone
}
RECORDS = {"record", "entry", "score", "claim", "summary", "manifest"}  # names of values that are structs or become so
FILES_WITHOUT_LIMIT = "maskwise/probes/library"  # one file per probe


@dataclass(frozen=True)
class Count:
    """A number, its limit (None: printed only) and the places that make it up, the worst first."""

    name: str
    value: int
    places: tuple[str, ...] = ()

    @property
    def limit(self) -> int | None:
        return LIMITS.get(self.name)

    def __str__(self) -> str:
        limit = "" if self.limit is None else f"at most {self.limit}"
        worst = "; ".join(self.places[:3]).replace("maskwise.", "").replace("maskwise/", "")
        return f"{self.name:36} {self.value:7}  {limit:14} {worst}".rstrip()


def counts() -> list[Count]:
    files = source_files()
    return [
        Count("files of src", len(files)),
        Count("lines of src", sum(len(lines) for lines in map(_lines, files.values()))),
        _largest("files in one folder", _files_per_folder()),
        _largest("lines of the longest function body", _function_bodies()),
        _largest("lines of the longest file", {name: len(_lines(file)) for name, file in files.items()}),
        _sum("format exceptions", _format_exceptions()),
        _listed("circular imports", [" - ".join(circle) for circle in circular_imports()]),
        _listed("upward imports", upward_imports()),
        _repeated("type names defined twice", _type_names()),
        _repeated("file names used twice", _file_names()),
        _sum("string keys of records", _per_file(_is_string_key)),
        _sum("dict[str, Any] annotations", _per_file(_is_untyped_dict)),
    ]


@cache
def source_files() -> dict[str, Path]:
    """{module name: file} of every module of the package."""
    files = sorted((SOURCE / "maskwise").rglob("*.py"))
    return {".".join(f.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): f for f in files}


# Imports


@cache
def import_graph() -> dict[str, set[str]]:
    """The modules of ours that each module imports, wherever the import stands.

    Left out is the package itself: its public names are imported on first use.
    """
    modules = source_files().keys() - {"maskwise"}
    return {name: _imported(name, modules) - {name} for name in sorted(modules)}


def _imported(name: str, modules: set[str]) -> set[str]:
    found = set()
    for node in nodes_of(source_files()[name]):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules else str(node.module))
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules


@cache
def third_party_imports() -> dict[str, str]:
    """{top-level module: one of our modules that imports it} of all imports from other distributions."""
    found: dict[str, str] = {}
    for name, file in source_files().items():
        for node in nodes_of(file):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            else:
                modules = [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            for module in modules:
                found.setdefault(module.partition(".")[0], name)
    return {module: name for module, name in found.items() if module not in sys.stdlib_module_names | {"maskwise"}}


def circular_imports() -> list[list[str]]:
    """Groups of modules that import each other, directly or by way of others."""
    graph = import_graph()
    reached = {name: _reachable(name, graph) for name in graph}
    groups = {tuple(sorted(m for m in reached[name] if name in reached[m])) for name in graph if name in reached[name]}
    return [list(group) for group in sorted(groups)]


def _reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    left = list(graph[start])
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += graph[name]
    return found


def upward_imports() -> list[str]:
    """Imports of a package on the same level or above, as "module -> module"."""
    level = {package: number for number, packages in enumerate(LEVELS) for package in packages}
    arrows = [(name, other) for name, imported in import_graph().items() for other in sorted(imported)]
    between = [(a, b, a.split(".")[1], b.split(".")[1]) for a, b in arrows]
    return [
        f"{a} -> {b}"
        for a, b, package, other in between
        if package != other and package in level and other in level and level[other] <= level[package]
    ]


# Counts per file


def _files_per_folder() -> Counter[str]:
    folders = Counter(str(file.parent.relative_to(SOURCE)) for file in source_files().values())
    folders.pop(FILES_WITHOUT_LIMIT, None)
    return folders


def _function_bodies() -> dict[str, int]:
    """Lines of each function from its first statement after the docstring to its last."""
    found = {}
    for name, file in source_files().items():
        for node in nodes_of(file):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                found[f"{name}:{node.name}"] = 1 + (body[-1].end_lineno or 0) - body[0].lineno if body else 0
    return found


def _format_exceptions() -> Counter[str]:
    mark = "# fmt: " + "skip"
    files = [file for folder in PYTHON_FOLDERS for file in (ROOT / folder).rglob("*.py")]
    return Counter({str(file.relative_to(ROOT)): file.read_text(encoding="utf-8").count(mark) for file in files})


def _type_names() -> Iterator[tuple[str, str]]:
    """Classes and type aliases of each module; an alias is a module's own name in capitals and small letters."""
    for name, file in source_files().items():
        for node in _module(file).body:
            if isinstance(node, ast.ClassDef):
                yield node.name, name
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                target = node.targets[0].id
                if target[0].isupper() and not target.isupper():
                    yield target, name


def _file_names() -> Iterator[tuple[str, str]]:
    for name, file in source_files().items():
        if not file.stem.startswith("__"):
            yield file.name, name


def _per_file(wanted: Callable[[ast.AST], bool]) -> Counter[str]:
    return Counter({name: sum(map(wanted, nodes_of(file))) for name, file in source_files().items()})


def _is_string_key(node: ast.AST) -> bool:
    """`record["probe"]` and the like, read or written: what a typed struct would have as a field."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name) or node.value.id not in RECORDS:
        return False
    return isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)


def _is_untyped_dict(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and ast.unparse(node) == "dict[str, Any]"


@cache
def _module(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def nodes_of(file: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_module(file)))


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def _largest(name: str, sizes: Mapping[str, int]) -> Count:
    ranked = sorted(sizes.items(), key=lambda item: -item[1])
    return Count(name, ranked[0][1], tuple(f"{place} {size}" for place, size in ranked[:10]))


def _sum(name: str, sizes: Mapping[str, int]) -> Count:
    return Count(name, sum(sizes.values()), _largest(name, sizes).places)


def _listed(name: str, places: list[str]) -> Count:
    return Count(name, len(places), tuple(places))


def _repeated(name: str, named: Iterator[tuple[str, str]]) -> Count:
    places = defaultdict(list)
    for one, module in named:
        places[one].append(module)
    several = sorted(((one, found) for one, found in places.items() if len(found) > 1), key=lambda item: -len(item[1]))
    return Count(name, len(several), tuple(f"{one}: {', '.join(found)}" for one, found in several))


if __name__ == "__main__":
    print(*counts(), sep="\n")
