"""Mutants of the product that the tests should kill: ``python -m fuzz.mutants --seed 2 --count 100 --out mutants.json``.

A mutant is one line with one expression changed. ``--tree`` is another checkout to take them from and test;
``--again`` repeats the mutants of a file where their lines still exist. Tests near the changed module run until one
fails: a mutant that survives may yet be killed by a test further off.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCT = ("report/jobreport", "rules/jobrules", "record/jobrecord")
#: Test files run for a mutant, and seconds of processor time for all of them.
FILES, SECONDS = 5, 30
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "node_modules", "__pycache__", ".*_cache", "reports")
COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}


class Mutant(msgspec.Struct, kw_only=True):
    """A line of a file before and after; ``nth`` counts the equal lines before it in its file."""

    file: str
    nth: int
    before: str
    after: str
    outcome: str = ""
    #: The test that failed first.
    killer: str = ""


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """Copies of a node, each with one thing changed."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and len(new.ops) == 1:
        for operator in COMPARED[type(new.ops[0])]:
            new.ops = [operator()]
            yield new
    elif isinstance(new, ast.BinOp) and type(new.op) in COMPUTED:
        new.op = COMPUTED[type(new.op)]()
        yield new
    elif isinstance(new, ast.BoolOp):
        new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
        yield new
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not):
        yield new.operand
    elif isinstance(new, ast.Constant) and isinstance(new.value, (bool, int, float)):
        new.value = not new.value if isinstance(new.value, bool) else new.value + 1
        yield new
    elif isinstance(new, ast.Return) and new.value is not None:
        new.value = ast.Constant(None)
        yield new


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All that a module computes: no annotations, and no texts."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(node, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from nodes(child)


def mutants(tree: Path, file: Path) -> Iterator[Mutant]:
    """All mutants of a file."""
    text = file.read_text("utf-8")
    lines = text.splitlines()
    for node in nodes(ast.parse(text)):
        at = getattr(node, "lineno", None)
        if at is None or getattr(node, "end_lineno", None) != at:
            continue
        line = lines[at - 1].encode()
        for new in changed(node):
            after = line[: node.col_offset] + ast.unparse(new).encode() + line[node.end_col_offset :]  # type: ignore[attr-defined]
            yield Mutant(
                file=str(file.relative_to(tree)),
                nth=lines[: at - 1].count(lines[at - 1]),
                before=lines[at - 1],
                after=after.decode(),
            )


def drawn(tree: Path, seed: int, count: int) -> list[Mutant]:
    """Mutants of so many random lines."""
    by_line: dict[tuple[str, int, str], list[Mutant]] = {}
    for place in PRODUCT:
        for file in sorted((tree / place).rglob("*.py")):
            for mutant in mutants(tree, file):
                by_line.setdefault((mutant.file, mutant.nth, mutant.before), []).append(mutant)
    chance = random.Random(seed)
    return [chance.choice(by_line[line]) for line in chance.sample(sorted(by_line), count)]


def place_of(tree: Path, mutant: Mutant) -> tuple[Path, int] | None:
    """The file and line of a mutant in a tree, also where its line moved; None if the line is no more."""
    files = [
        tree / mutant.file,
        *(file for place in PRODUCT for file in sorted((tree / place).rglob("*.py"))),
    ]
    for file in files:
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        same = [number for number, line in enumerate(lines) if line.strip() == mutant.before.strip()]
        if same and (file == files[0] or len(same) == 1):
            return file, same[min(mutant.nth, len(same) - 1)]
    return None


def imported(file: Path, modules: set[str]) -> set[str]:
    """The modules of the product that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
    return names & modules


def tests_near(tree: Path, changed_file: Path, killer: str) -> list[str]:
    """Test files that may see a change: what saw it before, of its name, by length of the chain of imports, golden."""
    product = {
        ".".join(file.relative_to(tree / place).parts)[:-3].removesuffix(".__init__"): file
        for place in ("report", "rules", "record")
        for file in (tree / place).rglob("*.py")
    }
    names = set(product)
    tests = {file: imported(file, names) for file in sorted((tree / "tests").rglob("test_*.py"))}
    tests = {
        file: uses for file, uses in tests.items() if not {"browser", "docs", "corpus"} & set(file.parts)
    }
    uses_of = {name: imported(file, names) for name, file in product.items()}
    near = [file for file in tests if killer and file == tree / killer.partition("::")[0]]
    near += [file for file in tests if file.stem == f"test_{changed_file.stem}"]
    reached = {name for name, file in product.items() if file == changed_file}
    for _ in range(4):
        # Those that import least are about little else.
        direct = sorted((file for file in tests if tests[file] & reached), key=lambda file: len(tests[file]))
        near += [file for file in direct if file not in near]
        reached |= {name for name, uses in uses_of.items() if uses & reached}
    golden = [file for file in tests if file.stem == "test_golden_reports"]
    chosen = list(dict.fromkeys([*near[: FILES - 1], *golden]))
    return [str(file.relative_to(tree)) for file in chosen]


def test(tree: Path, mutant: Mutant, python: str) -> None:
    """Sets the outcome of a mutant: ``killed``, ``survived``, ``gone``, or ``not run``."""
    place = place_of(tree, mutant)
    if place is None:
        mutant.outcome = "gone"
        return
    file, number = place
    text = file.read_text("utf-8")
    lines = text.splitlines()
    blanks = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
    lines[number] = blanks + mutant.after.strip()
    chosen = tests_near(tree, file, mutant.killer)
    file.write_text("\n".join(lines) + "\n", "utf-8")
    path = os.pathsep.join(str(tree / part) for part in ("record", "report", "rules", "sample_data", "."))
    options = [
        "-x",
        "-q",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--hypothesis-profile",
        "few",
    ]
    command = ["timeout", str(10 * SECONDS), python, "-m", "pytest", *options, *chosen]
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (SECONDS, SECONDS))
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, preexec_fn=limit, check=False
        )
        seen = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
        mutant.killer = seen[1] if seen else ""
        # 3 to 5: pytest itself failed, or was asked for what it does not know.
        mutant.outcome = "killed" if seen else "not run" if done.returncode in (3, 4, 5) else "survived"
    finally:
        file.write_text(text, "utf-8")


def main() -> None:
    """Prints each mutant and its outcome, and how many were killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--again", type=Path, help="mutants of an earlier run, instead of new ones")
    parser.add_argument("--out", type=Path, help="where mutants and outcomes are written")
    given = parser.parse_args()
    python = given.tree / ".venv" / "bin" / "python"
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(given.tree, tree, ignore=NOT_COPIED)
        if given.again:
            chosen = msgspec.json.decode(given.again.read_bytes(), type=list[Mutant])
        else:
            chosen = drawn(tree, given.seed, given.count)
        for mutant in chosen:
            test(tree, mutant, str(python) if python.exists() else sys.executable)
            print(mutant.outcome, mutant.file, mutant.before.strip(), "->", mutant.after.strip(), flush=True)
            if given.out:
                given.out.write_bytes(msgspec.json.format(msgspec.json.encode(chosen)))
    counts = {
        what: sum(one.outcome == what for one in chosen) for what in ("killed", "survived", "gone", "not run")
    }
    print(counts)


if __name__ == "__main__":
    main()
