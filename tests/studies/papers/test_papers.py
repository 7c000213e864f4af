"""What holds for every study of the catalogue, whoever wrote it."""

import re
import subprocess
import sys

import pytest

from noisegate import networks
from noisegate.data.registry import lookup
from noisegate.errors import InputError, UnknownNameError
from noisegate.studies import papers
from noisegate.studies.execute import execute
from noisegate.studies.report import write_report
from noisegate.studies.results import Results
from noisegate.studies.store import Store

STUDIES = papers.studies()
ASKED = {
    "demo",
    "audit-quality",
    *(f"ln-{part}" for part in ("figure1", "figure2", "figure3-moons", "figure3-circles", "figure4")),
    *(f"ln-{part}" for part in ("figure5", "figure6", "figure7", "table2", "table3")),
    *(f"ln-table1-{data}" for data in ("mnist", "cifar10", "cifar100")),
    *(f"temperature-{part}" for part in ("figure1", "figure2", "figure3", "figure4", "figure6", "camvid")),
    *(f"temperature-table{number}" for number in (1, 2, 3, 4, 5, 6)),
    *(f"smoothing-figure{number}" for number in range(1, 10)),
    *(f"smoothing-table{number}" for number in (2, 3, 4, 5, 7)),
    "causalnl-figure2",
    *(f"causalnl-table{number}" for number in range(1, 6)),
}
SCALES = ("paper", "laptop", "smoke")
each = pytest.mark.parametrize("name", sorted(STUDIES))


def test_every_table_and_figure_is_there():
    assert set(STUDIES) >= ASKED


def test_the_catalogue_is_read_without_torch_and_matplotlib():
    code = (
        "import sys; from noisegate.studies import papers; papers.studies(); "
        "print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "False"]


def test_an_unknown_study_suggests_the_near_ones():
    with pytest.raises(UnknownNameError, match="did you mean 'ln-table1-mnist'"):
        papers.get("ln-table1-minst")


@each
def test_names_and_texts(name):
    study = STUDIES[name]
    assert re.fullmatch(
        r"demo|audit-quality|(ln|temperature|smoothing|causalnl)-(table|figure)\d(-[a-z0-9]+)?"
        r"|temperature-camvid",
        name,
    )
    assert study.title
    assert study.reference
    assert study.cells or study.figures
    assert study.table or study.figures
    if study.stars_against is not None:
        assert study.stars_against in study.rows
    places = [(cell.row, cell.group, cell.column) for cell in study]
    assert len(set(places)) == len(places)


@each
@pytest.mark.parametrize("scale", SCALES)
def test_every_run_can_be_made(name, scale):
    study = STUDIES[name].at_scale(scale)
    built = set()
    for cell in study:
        for settings in [cell.settings, *(cell.candidates() if cell.search else [])]:
            full = settings.full()
            assert full["method"]["name"] == settings.method
        entry = lookup(settings.data["name"])
        assert scale != "smoke" or entry.source is None, "smoke must not need downloaded data"
        shape = (2,) if entry.name in ("moons", "circles", "gaussians") else (3, 32, 32)
        if settings.network not in built and not settings.network.startswith("mlp"):
            networks.build(settings.network, shape, 2)
        built.add(settings.network)


@each
def test_the_papers_choice_is_one_of_the_grid(name):
    for cell in STUDIES[name]:
        for parameter, values in cell.search.items():
            chosen = cell.settings.params.get(parameter)
            assert chosen is None or chosen in values, (cell.row, cell.column, parameter)


@each
def test_numbers_of_the_paper_are_about_values_that_are_shown(name):
    study = STUDIES[name]
    shown = {value.name for value in study.values}
    for cell in study:
        assert set(cell.paper) <= shown


@each
def test_smoke_is_small(name):
    small = STUDIES[name].at_scale("smoke")
    assert small.seeds <= 2
    assert not small.figures or all(figure.caption for figure in small.figures)


@each
def test_without_results_a_figure_is_drawn_from_nothing_or_refused(name, tmp_path):
    study = STUDIES[name]
    results = Results(study, Store(tmp_path / "results"))
    for figure in study.figures:
        if study.cells:
            with pytest.raises(InputError):
                figure.draw(results)
        else:
            assert figure.draw(results).axes


@pytest.mark.slow
@each
def test_the_whole_smoke_size(name, tmp_path):
    study = STUDIES[name].at_scale("smoke")
    store = Store(tmp_path / "results")
    results = Results(study, store)
    for run in results.planned():
        event = execute(run, store, "cpu")
        assert event.kind == "finished", event
    write_report(results, tmp_path / "report", changes={}, scale="smoke", command="x")
    for figure in study.figures:
        for kind in ("png", "svg"):
            assert (tmp_path / "report" / "figures" / f"{figure.name}.{kind}").stat().st_size > 1000
