"""The parts of a study's declaration: table cells, values, figures, sizes, the study itself."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noisegate.errors import InputError, UnknownNameError
from noisegate.studies.changes import changed, parameter_names, validate
from noisegate.studies.laptop import Laptop
from noisegate.studies.settings import RunSettings, Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

    from noisegate.studies.results import Results

#: The sizes of a study: the paper's; one that two cores finish in two hours; one that only shows
#: that everything runs.
SCALES = ("paper", "laptop", "smoke")


@dataclass(frozen=True)
class Number:
    """A number of a paper: the mean, and the standard deviation if the paper gives one.

    `mark` is how the paper marks it: "bold", or the stars of its test.

    >>> Number(93.4, 0.2, mark="bold")
    Number(mean=93.4, std=0.2, mark='bold')
    """

    mean: float
    std: float | None = None
    mark: str = ""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One place in a table, or one setting of a figure.

    Attributes
    ----------
    row, column : str
        Its labels, as the paper prints them.
    group : str
        A heading over several columns.
    settings : RunSettings
        With the paper's chosen hyper-parameters. The seed is ignored.
    paper : mapping of value name to Number
    search : mapping of parameter to candidates
        The paper's hyper-parameter grid.

    Examples
    --------
    >>> from noisegate.studies import Cell, Number, RunSettings
    >>> settings = RunSettings(data={"name": "digits"}, method="gce", network="mlp-64", recipe={"epochs": 3})
    >>> cell = Cell(
    ...     row="GCE", column="no noise", settings=settings,
    ...     paper={"test_accuracy": Number(93.4, 0.2)}, search={"q": (0.3, 0.7)},
    ... )
    >>> [tried.params for tried in cell.candidates()]
    [{'q': 0.3}, {'q': 0.7}]
    """

    row: str
    column: str
    settings: RunSettings
    group: str = ""
    paper: Mapping[str, Number] = field(default_factory=dict)
    search: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def candidates(self) -> list[RunSettings]:
        """The settings of every grid point; the paper's choice if there is no grid."""
        names, grids = list(self.search), list(self.search.values())
        points = [dict(zip(names, point, strict=True)) for point in itertools.product(*grids)]
        return [self.settings.replace(params={**self.settings.params, **point}) for point in points]


@dataclass(frozen=True, kw_only=True)
class Value:
    """A metric that the table shows for every cell, and how to print it.

    Besides the metrics of the final network there are, of the last phase: `test_accuracy_last`,
    `test_accuracy_best_validation` (at the epoch best by noisy validation accuracy),
    `test_accuracy_last10` (mean over the last ten epochs) and `test_accuracy_oracle` (the best
    epoch by the clean test labels, which nobody has in practice).

    >>> Value(name="test_nll", title="NLL", percent=False, higher_is_better=False).digits
    2
    """

    name: str = "test_accuracy"
    title: str = "accuracy"
    percent: bool = True
    digits: int = 2
    higher_is_better: bool = True


@dataclass(frozen=True, kw_only=True)
class Selection:
    """How a search selects: the metric on noisy validation labels, and the seeds to average over.

    >>> Selection(metric="validation_log_likelihood", seeds="all").metric
    'validation_log_likelihood'
    """

    metric: str = "validation_accuracy"
    seeds: str = "first"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure drawn from stored results.

    Attributes
    ----------
    name : str
        Name of its files.
    draw : function (Results) -> matplotlib Figure
        Raises InputError if the results that it needs are not available yet.
    caption : str
    paper : str
        What the paper's figure shows, in our words, to compare with.
    column : str, default=""
        The column that the figure belongs to; the figure is left out if the column is not chosen.

    Examples
    --------
    >>> import tempfile
    >>> from matplotlib.figure import Figure as Picture
    >>> from noisegate import studies
    >>> def draw(results):
    ...     picture, cell = Picture(), results.study.cells[0]
    ...     _ = picture.subplots().plot(results.curve(cell, "test_accuracy"))
    ...     return picture
    >>> figure = studies.Figure(name="accuracy", draw=draw, caption="Accuracy by epoch.")
    >>> one = studies.get("demo").at_scale("smoke").only(rows=["ce"], columns=["symmetric-40"]).with_seeds(1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     len(figure.draw(studies.run(one, folder, workers=1, device="cpu")).axes)
    1
    """

    name: str
    draw: Callable[[Results], Picture]
    caption: str
    paper: str = ""
    column: str = ""


@dataclass(frozen=True, kw_only=True)
class Smoke:
    """A size that takes minutes and only shows that everything runs: small data and networks, few epochs.

    `data=None` keeps the study's own data, network and recipe except the epochs (toy problems). `noise`
    replaces the noise of data sets with wrong labels of their own, since digits have none. `change` is
    applied last.

    >>> from noisegate import studies
    >>> small = Smoke(rows=100, epochs=1).apply(studies.get("demo").cells[0].settings)
    >>> small.rows, small.recipe["epochs"]
    (100, 1)
    """

    data: Settings | None = field(default_factory=lambda: {"name": "digits"})
    network: str | None = "mlp-64"
    rows: int | None = 400
    epochs: int = 3
    seeds: int = 2
    recipe: Settings = field(default_factory=dict)
    noise: Settings | None = None
    change: Callable[[RunSettings], RunSettings] | None = None

    def apply(self, settings: RunSettings) -> RunSettings:
        """The settings at this size."""
        kept = {k: v for k, v in settings.recipe.items() if k in ("keep", "monitor", "patience", "normalize")}
        small = {"epochs": self.epochs, "batch_size": 32, "lr": 3e-3, **kept, **self.recipe}
        if self.data is None:
            small = {**settings.recipe, "epochs": self.epochs, **self.recipe}
            settings = settings.replace(recipe=small)
        else:
            held = settings.validation
            settings = settings.replace(
                data=self.data,
                network=self.network or settings.network,
                weights=None,
                balanced=False,
                recipe=small,
                noise=settings.noise or self.noise,
                rows=self.rows,
                evaluate_every=min(settings.evaluate_every, 1),
                validation=0.1 if isinstance(held, int | str) else held,
            )
        return settings if self.change is None else self.change(settings)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A declared grid of runs with a protocol, and what its report shows.

    Attributes
    ----------
    name : str
        PAPER-TABLE[-DATASET].
    title : str
    reference : str
        Paper and place.
    cells : tuple of Cell
    values : tuple of Value
        Metrics that the table shows for every cell; the first decides what is bold.
    seeds : int
        Number of repetitions; seeds are 0, 1, ...
    compete : {"rows", "columns"}
        What the methods are: rows, compared within a column, or columns, compared within a row.
    bold : {"welch", "best", "none"}
        "welch": every method without significant difference to the best one (5 %); "best": the best
        mean.
    stars_against : str or None
        The row that the others are tested against, paired by seed; stars mark p < .05, .01, .001.
    select : Selection
    notes : tuple of str
        Where the protocol is our choice, or differs from the paper.
    figures : tuple of Figure
    findings : function (Results) -> sequence of str, optional
        Sentences computed from the stored results, for the report and the terminal.
    smoke : Smoke
    laptop : Laptop

    Examples
    --------
    >>> from noisegate.studies import Cell, RunSettings, Study
    >>> base = RunSettings(data={"name": "digits"}, method="ce", network="mlp-64", recipe={"epochs": 3})
    >>> cells = [Cell(row=name, column="digits", settings=base.replace(method=name)) for name in ("ce", "gce")]
    >>> study = Study(name="mine", title="Two losses", reference="nobody 2026", cells=tuple(cells), seeds=2)
    >>> study.rows, [run.seed for run in study.runs(study.cells[0])]
    (['ce', 'gce'], [0, 1])
    """

    name: str
    title: str
    reference: str
    cells: tuple[Cell, ...] = ()
    values: tuple[Value, ...] = (Value(),)
    seeds: int = 5
    compete: str = "rows"
    bold: str = "best"
    stars_against: str | None = None
    select: Selection = field(default_factory=Selection)
    notes: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    findings: Callable[[Results], Sequence[str]] | None = None
    smoke: Smoke = field(default_factory=Smoke)
    laptop: Laptop = field(default_factory=Laptop)
    table: bool = True

    @property
    def rows(self) -> list[str]:
        """Row labels, in order."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[tuple[str, str]]:
        """(group, column) labels, in order."""
        return list(dict.fromkeys((cell.group, cell.column) for cell in self.cells))

    def cell(self, row: str, column: str, group: str = "") -> Cell | None:
        """The cell at a place, or None where the paper has none."""
        place = (row, column, group)
        return next((c for c in self.cells if (c.row, c.column, c.group) == place), None)

    def runs(self, cell: Cell) -> list[RunSettings]:
        """The cell's runs with the paper's hyper-parameters, one a seed."""
        return [cell.settings.replace(seed=seed) for seed in range(self.seeds)]

    def at_scale(self, scale: str) -> Study:
        """Return the study at a size: "paper", "laptop" (two hours on two cores) or "smoke" (minutes)."""
        if scale not in SCALES:
            raise UnknownNameError("scale", scale, SCALES)
        if scale == "paper":
            return self
        if scale == "laptop":
            return self.laptop.apply(self)
        small = self._each(self.smoke.apply)
        return dataclasses.replace(small, seeds=min(self.seeds, self.smoke.seeds))

    def _each(self, change: Callable[[RunSettings], RunSettings]) -> Study:
        cells = tuple(dataclasses.replace(cell, settings=change(cell.settings)) for cell in self.cells)
        return dataclasses.replace(self, cells=cells)

    def with_seeds(self, seeds: int) -> Study:
        """The study with another number of seeds."""
        if seeds < 1:
            raise InputError(f"a study needs at least one seed, got {seeds}")
        return dataclasses.replace(self, seeds=seeds)

    def only(self, rows: Iterable[str] = (), columns: Iterable[str] = ()) -> Study:
        """Select cells by row and column: labels or method names, in lower case with dashes.

        >>> slug("Het-$\\\\tau$, Symmetric 40 %")
        'het-tau-symmetric-40'
        """
        cells = self.cells
        for kind, wanted, names in (("row", rows, _row_names), ("column", columns, _column_names)):
            chosen = {slug(name) for name in wanted}
            known = {name for cell in self.cells for name in names(cell)}
            for name in sorted(chosen - known):
                raise UnknownNameError(f"{kind} of {self.name}", name, known)
            if chosen:
                cells = tuple(cell for cell in cells if chosen & set(names(cell)))
        if not cells and self.cells:
            raise InputError(f"{self.name} has no cell in those rows and columns")
        return dataclasses.replace(self, cells=cells)

    def with_changes(self, changes: Mapping[str, Any]) -> Study:
        """Change settings of all runs: "network", "recipe.epochs", "params.q", "noise.rate", "data.size", ...

        Unknown settings raise UnknownNameError. `params.x` applies to the methods that have an `x`.
        """
        study = self
        for name, value in changes.items():
            touched: list[bool] = []
            study = study._each(lambda s, n=name, v=value, t=touched: changed(s, n, v, t))  # type: ignore[misc]
            if self.cells and not any(touched) and name.startswith("noise."):
                raise InputError(f"{name} changes nothing: no run of {self.name} that was chosen has noise")
            if self.cells and not any(touched):
                known = {p for cell in self.cells for p in parameter_names(cell.settings.method)}
                raise UnknownNameError("setting", name, [f"params.{p}" for p in known])
        for settings in (
            {cell.settings.key: cell.settings for cell in study.cells}.values() if changes else ()
        ):
            validate(settings)
        return study

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells)


def slug(text: str) -> str:
    """Lower-case text with words joined by dashes and everything else removed."""
    words = re.sub(r"\\(\w+)", r"\1", text.lower().replace("τ", "tau").replace("σ", "sigma"))
    return "-".join(re.findall(r"[a-z0-9.]+", words.replace("$", "")))


def _row_names(cell: Cell) -> tuple[str, ...]:
    return slug(cell.row), cell.settings.method


def _column_names(cell: Cell) -> tuple[str, ...]:
    names = [slug(cell.column), slug(f"{cell.group} {cell.column}"), cell.settings.method]
    return (*names, *([slug(cell.group)] if cell.group else []))


def signature_accepts(function: Callable[..., Any], name: str) -> bool:
    """Whether a function takes a keyword of that name."""
    return name in inspect.signature(function).parameters
