"""What the documentation takes from the code itself: pages of the public names, facts about methods.

Everything is written into folders that git ignores (`docs/api`, `docs/methods/_facts`), so a name that
is added to the public list, or a parameter to a method, is in the next build without further ado.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import method_pictures

import noisegate as ng
from noisegate._registry import Registry
from noisegate.methods import METHODS
from noisegate.objectives import OBJECTIVES

ROOT = Path(__file__).parents[2]

#: The packages whose `__all__` is public, and what their pages say first.
MODULES = {
    "objectives": "What the outputs of a network mean: how many there are, what they cost, what they predict.",
    "quality": "How good given labels are, from anyone's out-of-sample probabilities. Needs no training.",
    "noise": "How labels go wrong, on purpose, and estimates of how they did.",
    "data": "From files, frames, texts and arrays to a `Dataset`.",
    "methods": "From a noisy dataset to a classifier.",
    "networks": "From inputs to `n_outputs` numbers.",
    "training": "How a phase is trained.",
    "evaluation": "Numbers from probabilities.",
    "studies": "Methods, noises and seeds by the protocol of a paper.",
    "testing": "The contract tests, for classes of your own.",
    "errors": "What goes wrong, and what to do about it.",
}


def write(docs: Path) -> None:
    """Write all generated pages."""
    _write_api(docs / "api")
    _write_facts(docs / "methods" / "_facts")
    _write_overview(docs / "methods" / "_facts")
    method_pictures.write(docs / "methods" / "_facts")


def _put(path: Path, text: str) -> None:
    """Write a file only if it changes, so that a second build has little to do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


# -- public names ----------------------------------------------------------------------------------


def public_names() -> dict[str, list[tuple[str, Any]]]:
    """Page -> (full name, object) of the classes and functions on it, each once, by its shortest name."""
    top = {
        name: getattr(ng, name) for name in ng.__all__ if not isinstance(getattr(ng, name), ModuleType | str)
    }
    shortest = {id(thing): f"noisegate.{name}" for name, thing in top.items()}
    pages: dict[str, list[tuple[str, Any]]] = {"noisegate": []}
    placed: set[int] = set()
    for module in MODULES:
        package = getattr(ng, module)
        names = getattr(package, "__all__", None) or [
            name for name, thing in vars(package).items() if _is_error(thing)
        ]
        things = [(name, getattr(package, name)) for name in names]
        things = [(name, thing) for name, thing in things if inspect.isclass(thing) or callable(thing)]
        fresh = [(name, thing) for name, thing in things if id(thing) not in placed]
        placed |= {id(thing) for _, thing in fresh}
        pages[module] = [
            (shortest.get(id(thing), f"noisegate.{module}.{name}"), thing) for name, thing in fresh
        ]
    pages["noisegate"] = [(f"noisegate.{name}", t) for name, t in top.items() if id(t) not in placed]
    return pages


def _is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Exception) and thing.__module__ == "noisegate.errors"


def _write_api(folder: Path) -> None:
    for page, names in public_names().items():
        title = "noisegate" if page == "noisegate" else f"noisegate.{page}"
        intro = "The names most people need." if page == "noisegate" else MODULES[page]
        lines = [title, "=" * len(title), "", intro, ""]
        for name, thing in sorted(names, key=lambda pair: pair[0].rpartition(".")[2].lower()):
            kind = "autoclass" if inspect.isclass(thing) else "autofunction"
            lines += [f".. {kind}:: {name}", ""]
        _put(folder / f"{page}.rst", "\n".join(lines))


# -- facts about methods ---------------------------------------------------------------------------


def _write_facts(folder: Path) -> None:
    ratios = _table(ROOT / "benchmarks/results/methods.md", "method")
    scores = _table(ROOT / "benchmarks/results/methods_by_noise.md", "method")
    problems = _table(ROOT / "benchmarks/results/real_noise.md", "problem")
    seconds = _table(ROOT / "benchmarks/results/real_noise.md", "problem", "## Seconds")
    on_mnist = set(
        re.findall(r"^\| `([\w-]+)` \|", (folder.parents[1] / "which-method.md").read_text(), re.M)
    )
    for name, entry in METHODS.own().items():
        lines = [f"*{entry.summary[0].upper() + entry.summary[1:]}.* {_sentence(entry.paper)}", ""]
        lines += ["```python", "import noisegate as ng", "", 'data = ng.data.load("moons", n=200)']
        lines += ["data = data.corrupt(ng.noise.Symmetric(0.3), seed=0)"]
        lines += [f'fitted = ng.train(data, "{name}", recipe={{"epochs": 2}}, progress=False)', "```", ""]
        _put(folder / f"{name}.md", "\n".join(lines))
        _put(folder / f"{name}-parameters.md", _parameters(name, entry))
        parts = [_cost(name, ratios), _by_noise(name, scores), _on_real_noise(name, problems, seconds)]
        if name in on_mnist:
            parts.append(
                "On MNIST, with mistakes at random and to similar classes: [which method for which noise]"
                "(../../which-method.md#mistakes-at-random-and-mistakes-to-the-next-class)."
            )
        _put(folder / f"{name}-measured.md", "\n\n".join(part for part in parts if part) + "\n")


_MEASURED = """## The numbers

Every method with default parameters, nothing searched, on the same small problems:

"""
_NOT_MEASURED = """## Methods that are not in these tables

`python benchmarks/methods_by_noise.py` compares every method on the same seven small problems, with
default parameters. It takes some hours on two cores. Where it has been run, this page and the pages of the
methods show its table.
"""


def _write_overview(folder: Path) -> None:
    """A table of all methods, and the numbers of every method where they have been measured."""
    ratios = _table(ROOT / "benchmarks/results/methods.md", "method")
    lines = ["| method | what it does | time |", "|---|---|---|"]
    pages = (folder.parent / "index.md").read_text().split()
    for name, entry in sorted(METHODS.own().items(), key=lambda pair: pages.index(pair[0])):
        time = ratios.get(name, {}).get("dearest phase", "see its page")
        lines.append(f"| [`{name}`](/methods/{name}.md) | {entry.summary} | {time} |")
    _put(folder / "table.md", "\n".join(lines) + "\n")
    measured = ROOT / "benchmarks/results/methods_by_noise.md"
    numbers = _NOT_MEASURED
    if measured.exists():
        numbers = re.sub(r"\A# .*\n\n?", _MEASURED, measured.read_text())
    _put(folder.parents[1] / "_numbers.md", numbers)


def _sentence(paper: str) -> str:
    return f"{paper[0].upper() + paper[1:]}."


def _parameters(name: str, entry: Any) -> str:
    """A definition list of the parameters with their defaults, from the docstring of the class."""
    if not entry.defaults:
        return "It has no parameters.\n"
    kind = type(entry.create({}))
    objective = getattr(entry.create({}), "objective", None)
    if inspect.isclass(objective) and objective in OBJECTIVES.values():
        kind = objective
    told = {}
    for base in reversed(kind.__mro__):
        told |= _documented(inspect.getdoc(base) or "") if base is not object else {}
    lines = ["| parameter | default | meaning |", "|---|---|---|"]
    for parameter, default in entry.defaults.items():
        shown = getattr(default, "__name__", None) or repr(default)
        meaning = told.get(parameter, "").replace("|", "\\|") or "see the API"
        lines.append(f"| `{parameter}` | `{shown}` | {meaning} |")
    lines += ["", f"On the command line: `--method {name} --param {next(iter(entry.defaults))}=...`; in"]
    lines += [f'scikit-learn: `NoisyLabelClassifier("{name}")` and `method__{next(iter(entry.defaults))}`.']
    return "\n".join(lines) + "\n"


def _documented(doc: str) -> dict[str, str]:
    """What the section "Parameters" of a docstring says of each parameter, in one line each."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n-{3,}\n|^>>>|\Z)", doc, re.S | re.M)
    if section is None:
        return {}
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section[1].splitlines():
        head = re.match(r"^(\w+(?:, \w+)*) : ", line)
        if head:
            names = head[1].split(", ")
            found |= dict.fromkeys(names, "")
        elif line.startswith("    "):
            found |= {name: f"{found[name]} {line.strip()}".strip() for name in names}
        elif line.strip():
            names = []
    return found


def _table(path: Path, first: str, heading: str = "") -> dict[str, dict[str, str]]:
    """The rows of a file's first Markdown table, below a heading, whose first column is `first`."""
    if not path.exists():
        return {}
    text = path.read_text()
    rows: dict[str, dict[str, str]] = {}
    header: list[str] | None = None
    for line in text[max(0, text.find(heading)) :].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if header is None and cells[0] == first:
            header = cells
        elif header is not None and line.startswith("|") and not cells[0].startswith("-"):
            rows[cells[0]] = dict(zip(header, cells, strict=False))
        elif header is not None and not line.startswith("|"):
            break
    return rows


def _cost(name: str, ratios: dict[str, dict[str, str]]) -> str:
    if name not in ratios:
        return ""
    return (
        f"A training step takes {ratios[name]['dearest phase']} times as long as one of cross-entropy "
        "(wide ResNet 16-1 on 32 x 32 images, one CPU thread; `python benchmarks/methods.py`)."
    )


def _by_noise(name: str, scores: dict[str, dict[str, str]]) -> str:
    """The rows of a method and of cross-entropy in the table of all methods, if it has been measured."""
    if name not in scores:
        return ""
    columns = [c for c in scores[name] if c not in ("method", "n", "seconds")]
    lines = [
        "Accuracy on clean test labels in per cent, default parameters, mean ± standard deviation "
        f"of {scores[name]['n']} seeds:",
        "",
        f"| | {' | '.join(columns)} |",
        "|---|" + "---|" * len(columns),
    ]
    lines += [
        f"| `{row}` | {' | '.join(scores[row][c] for c in columns)} |" for row in dict.fromkeys([name, "ce"])
    ]
    lines += [
        "",
        "`python benchmarks/methods_by_noise.py`; [all methods, hardware and versions]"
        "(../../which-method.md#the-numbers).",
    ]
    return "\n".join(lines)


def _on_real_noise(name: str, problems: dict[str, dict[str, str]], seconds: dict[str, dict[str, str]]) -> str:
    """A method beside cross-entropy and logistic regression on the problems with people's mistakes."""
    shown = list(dict.fromkeys([name, "ce", "logistic regression"]))
    rows = [row for row in problems.values() if name in row and row["wrong"]]
    if not rows:
        return ""
    counts = sorted({int(row["n"]) for row in rows})
    seeds = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    lines = [
        "Accuracy on clean test labels in per cent after training on people's labels, mean ± standard "
        f"deviation of {seeds} seeds:",
        "",
        f"| problem | wrong | {' | '.join(shown)} |",
        "|---|" + "---|" * (len(shown) + 1),
    ]
    lines += [
        f"| {row['problem']} | {row['wrong']} | {' | '.join(row[c].replace('**', '') for c in shown)} |"
        for row in rows
    ]
    spent = [
        [float(seconds[row["problem"]][column]) for row in rows if row["problem"] in seconds]
        for column in dict.fromkeys([name, "ce"])
    ]
    if spent[0]:
        ranges = [f"{min(values):.0f} to {max(values):.0f}" for values in spent]
        baseline = f" (`ce`: {ranges[1]})" if ranges[1:] else ""
        lines += ["", f"One of these fits takes {ranges[0]} seconds of CPU{baseline}."]
    lines += [
        "",
        "`python benchmarks/real_noise.py`; all contenders, hardware and versions are in "
        "`benchmarks/results/real_noise.md`.",
    ]
    return "\n".join(lines)


# -- files from outside docs/ ----------------------------------------------------------------------

#: Files of the repository that are pages of the documentation.
PAGES = {
    "CONTRIBUTING.md": "/contributing.md",
    "CHANGELOG.md": "/changes.md",
    "reproduction/README.md": "/ledger.md",
    "SECURITY.md": "/security.md",
}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#|mailto:)([^)\s]+)\)")


def include_read(app: Any, relative: Path, parent: str, content: list[str]) -> None:
    """Rewrite links of an included file: to pages where there are some, else to the name of the file."""
    del app, parent
    folder = (Path(__file__).parents[1] / relative).resolve().parent if not relative.is_absolute() else None

    def replace(match: re.Match[str]) -> str:
        text = match[1]
        target, mark, anchor = match[2].partition("#")
        base = folder or relative.parent
        try:
            name = str((base / target).resolve().relative_to(ROOT))
        except ValueError:
            return text
        if name in PAGES:
            return f"[{text}]({PAGES[name]}{mark}{anchor})"
        if name.startswith("docs/"):
            return f"[{text}](/{name.removeprefix('docs/')}{mark}{anchor})"
        return f"{text} (`{name}`)" if text.strip("`") != name else f"`{name}`"

    content[0] = _LINK.sub(replace, content[0])


# -- docstrings ------------------------------------------------------------------------------------

_SPECIAL = re.compile(r"(`[^`]*`)(\w)?|(\\)|([*|])|((?<=\w)_(?!\w))")


def plain_docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape what reStructuredText would read as markup: docstrings are plain text with formulas.

    `*`, `|` and a trailing `_` stand for themselves, except in backticks, examples and formulas.
    """
    del app, what, name, thing, options
    text = "\n".join(_with_sections(lines))
    parts = re.split(r"((?:^ *>>>.*\n?(?:^ *\S.*\n?)*)+|^::\n\n(?:^ +\S.*\n?)+)", text, flags=re.M)
    for place in range(0, len(parts), 2):  # the others are examples and formulas
        parts[place] = _SPECIAL.sub(_escaped, parts[place])
    lines[:] = "".join(parts).split("\n")


def skip_member(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what only the lists of names use: registries, and one-line summaries of classes."""
    del app, what, skip, options
    return True if name == "summary" or isinstance(thing, Registry) else None


def _escaped(match: re.Match[str]) -> str:
    code, glued = match[1], match[2]
    if code is None:
        return f"\\{match[0]}"
    return f"{code}\\ {glued}" if glued else code  # `loss`es: markup must end before the word goes on


def _with_sections(lines: list[str]) -> list[str]:
    """Head examples, and prose after a section, so that they are not read as names of parameters.

    Indented blocks of prose are formulas, and are shown as they stand.
    """
    found: list[str] = []
    section = ""
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if line and following.startswith("---"):
            section = line
        elif section and line[:1].strip() and found and not found[-1] and not line.startswith("---"):
            head = "Examples" if line.startswith(">>>") else "Notes"
            entry = re.match(r"[\w*.]+(, [\w*.]+)*( : .*)?$", line) and section not in ("Examples", "Notes")
            told = section == "References" and head == "Notes"  # lines of references are prose
            if head != section and not entry and not told:
                found += [head, "-" * len(head)]
                section = head
        elif section in ("", "Notes") and re.match(r"    +(?!>>>)\S", line) and found and not found[-1]:
            found += ["::", ""]
        found.append(line)
    return found
