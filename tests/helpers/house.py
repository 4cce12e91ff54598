"""Size and structure of the source, counted, with what tests/test_house.py limits: `make house`.

The counts need only Python's own parser, but for that of options, which asks the commands themselves.
"""

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"

# Packages from top to bottom. Imports point down only, those for type hints included; packages of one level do not
# import each other.
LEVELS = (
    {"cli"},
    {"studio", "advise", "compare", "toy"},
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
LIMITS = {
    "src, lines of .py": 30_400,  # lower it with the count; 0.3 aims at 22,000 with templates
    "src, format exceptions": 40,
    "src, circular imports": 0,
    "src, upward imports": 0,
}
WRITTEN = (".py", ".jinja", ".css", ".js", ".html")


@dataclass(frozen=True)
class Count:
    """A number, and the places that make it up."""

    name: str
    value: float
    places: tuple[str, ...] = ()

    def __str__(self) -> str:
        limit = f"at most {LIMITS[self.name]:,}" if self.name in LIMITS else ""
        return f"{self.name:32} {self.value:8,}  {limit:15} {'; '.join(self.places[:3])}".rstrip()


def counts() -> list[Count]:
    written = [file for file in SOURCE.rglob("*") if file.suffix in WRITTEN]
    python = [file for file in written if file.suffix == ".py"]
    size = sum(file.stat().st_size for file in python)
    marked = {file: _text(file).count("# fmt: " + "skip") for file in python}
    circles, upward = circular_imports(), upward_imports()
    return [
        Count("src, lines of .py", _lines(python)),
        Count("src, lines with templates", _lines(written)),
        *(Count(f"  {folder.name}/", _lines(_under(folder, WRITTEN))) for folder in _packages()),
        Count("src, bytes a line", round(size / _lines(python), 1)),
        Count("src, format exceptions", sum(marked.values()), tuple(f.name for f in marked if marked[f])),
        Count("src, circular imports", len(circles), tuple(" - ".join(circle) for circle in circles)),
        Count("src, upward imports", len(upward), tuple(upward)),
        Count("tests, lines", _lines(_under(ROOT / "tests", (".py",)))),
        Count(
            "recipes and benchmarks, lines", sum(_lines(_under(ROOT / f, (".py",))) for f in ("recipes", "benchmarks"))
        ),
        Count("docs, words", sum(len(_text(file).split()) for file in _under(ROOT / "docs", (".md",)))),
        Count("README, words without code", len(" ".join(_text(ROOT / "README.md").split("```")[::2]).split())),
    ]


def options() -> Count:
    """Options of all commands, those of each counted."""
    import typer.main

    from maskwise.cli import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    each = {name: sum(p.param_type_name == "option" for p in command.params) for name, command in commands.items()}
    return Count("options", sum(each.values()), tuple(f"{name} {n}" for name, n in each.items()))


def _under(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    return [file for file in sorted(folder.rglob("*")) if file.suffix in suffixes]


def _packages() -> list[Path]:
    return sorted(file.parent for file in (SOURCE / "maskwise").glob("*/__init__.py"))


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _lines(files: list[Path]) -> int:
    return sum(len(_text(file).splitlines()) for file in files)


# Imports


@cache
def source_files() -> dict[str, Path]:
    """{module name: file} of every module of the package."""
    files = sorted((SOURCE / "maskwise").rglob("*.py"))
    return {".".join(f.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): f for f in files}


@cache
def nodes_of(file: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(_text(file))))


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


if __name__ == "__main__":
    print(*counts(), options(), sep="\n")
