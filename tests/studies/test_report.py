"""Reports: numbers against independent computation, what is said, and what is refused."""

import csv
import html
import io
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from noisegate.errors import InputError, UnknownNameError
from noisegate.reporting.page import Page, escape
from noisegate.reporting.plots import panels
from noisegate.studies import papers
from noisegate.studies.execute import execute
from noisegate.studies.report import build_table, gather, terminal_table, write_report
from noisegate.studies.report.words import headings, levels
from noisegate.studies.results import Results
from noisegate.studies.settings import FORMAT, RunSettings
from noisegate.studies.store import Store
from noisegate.studies.study import Cell, Figure, Number, Smoke, Study, Value

# -- results without training ----------------------------------------------------------------------


def settings(method="ce", rate=0.2, **more):
    noise = {"name": "symmetric", "rate": rate}
    recipe = {"epochs": 2, "batch_size": 32}
    return RunSettings(
        data={"name": "digits"}, method=method, network="mlp-64", noise=noise, recipe=recipe, **more
    )


def fill(store, run, seconds=2.0, hardware="x86_64", torch="2.13.0", device="cpu", **metrics):
    """Store a finished run with these metrics."""
    content = {
        "format": FORMAT,
        "noisegate": "0.1.0",
        "key": run.key,
        "settings": run.full(),
        "seed": run.seed,
        "metrics": metrics,
        "history": [[metrics]],
        "noise": {"train_rate": 0.18, "labels_sha256": ""},
        "rows": {"train": 1212, "validation": 135},
        "versions": {"python": "3.11.7", "torch": torch, "numpy": "2.4.6"},
        "hardware": hardware,
        "device": device,
        "seconds": seconds,
        "train_seconds": seconds / 2,
        "peak_memory": 1000,
    }
    return store.save(run, content, {})


def fill_cell(study, store, row, column, values, group="", name="test_accuracy"):
    cell = study.cell(row, column, group)
    for run, value in zip(study.runs(cell), values, strict=False):
        fill(store, run, **{name: value})


METHODS = {"CE": "ce", "GCE": "gce", "LN": "ln"}
PAPER = {
    ("CE", "20%"): Number(88.41, 0.34),
    ("GCE", "20%"): Number(98.85, 0.18, "bold"),
    ("LN", "20%"): Number(98.53, 0.27, "bold"),
    ("CE", "40%"): Number(70.67),
}
ACCURACY = {
    ("CE", "20%"): [0.880, 0.885, 0.882],
    ("GCE", "20%"): [0.988, 0.990, 0.989],
    ("LN", "20%"): [0.985, 0.993, 0.987],
    ("CE", "40%"): [0.70, 0.72, 0.71],
    ("GCE", "40%"): [0.95, 0.96, 0.97],
    ("LN", "40%"): [0.90, 0.91, 0.92],
}


def make_study(**changes):
    cells = tuple(
        Cell(
            row=row,
            column=column,
            group="Symmetric",
            settings=settings(method, rate),
            paper={"test_accuracy": PAPER[row, column]} if (row, column) in PAPER else {},
        )
        for row, method in METHODS.items()
        for column, rate in (("20%", 0.2), ("40%", 0.4))
    )
    options = {"name": "toy", "title": "A toy", "reference": "A paper, Table 1", "cells": cells, "seeds": 3}
    return Study(**{**options, "bold": "welch", **changes})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def filled(store, study=None, accuracy=ACCURACY):
    study = study or make_study()
    for (row, column), values in accuracy.items():
        fill_cell(study, store, row, column, values, "Symmetric")
    return Results(study, store)


def table_of(results, **options):
    return build_table(results.study, gather(results), **options)


def lines_of(path):
    return list(csv.DictReader(io.StringIO(Path(path).read_text(encoding="utf-8"))))


# -- numbers ---------------------------------------------------------------------------------------


def test_mean_deviation_and_difference(store):
    table = table_of(filled(store))
    for (row, column), values in ACCURACY.items():
        entry = table.at(row, column, group="Symmetric")
        assert entry.n == 3
        assert entry.mean == pytest.approx(100 * np.mean(values))
        assert entry.std == pytest.approx(100 * np.std(values, ddof=1))
    gce = table.at("GCE", "20%", group="Symmetric")
    assert gce.difference == pytest.approx((98.9 - 98.85) / math.sqrt((0.1**2 + 0.18**2) / 2))
    # The paper gives no deviation here: ours alone is the unit.
    assert table.at("CE", "40%", group="Symmetric").difference == pytest.approx((71 - 70.67) / 1.0)
    assert table.at("LN", "40%", group="Symmetric").difference is None
    assert table.at("LN", "60%", group="Symmetric") is None


def bold(table):
    return {(e.of.cell.row, e.of.cell.column) for e in table.entries if e.bold}


def test_welch_decides_what_is_bold(store):
    table = table_of(filled(store))
    for column in ("20%", "40%"):
        best = max(METHODS, key=lambda row: np.mean(ACCURACY[row, column]))
        for row in METHODS:
            entry = table.at(row, column, group="Symmetric")
            p = stats.ttest_ind(ACCURACY[row, column], ACCURACY[best, column], equal_var=False).pvalue
            assert entry.bold == (row == best or p >= 0.05)
            assert entry.p_best is None if row == best else entry.p_best == pytest.approx(p)
    assert bold(table) == {("GCE", "20%"), ("LN", "20%"), ("GCE", "40%")}
    assert table.notes == ()


def test_best_is_bold_and_printed_ties_share_it(store):
    study = make_study(bold="best", values=(Value(digits=1),))
    accuracy = {("CE", "20%"): [0.98901] * 2, ("GCE", "20%"): [0.98949] * 2, ("LN", "20%"): [0.98951] * 2}
    assert bold(table_of(filled(store, study, accuracy))) == {("LN", "20%")}
    accuracy[("GCE", "20%")] = [0.98950001, 0.98950003]
    again = Store(store.folder.parent / "again")
    assert bold(table_of(filled(again, study, accuracy))) == {("LN", "20%"), ("GCE", "20%")}


def test_lower_may_be_better(store):
    study = make_study(bold="best", values=(Value(higher_is_better=False),))
    assert bold(table_of(filled(store, study))) == {("CE", "20%"), ("CE", "40%")}


def test_none_is_bold_where_the_study_says_so(store):
    table = table_of(filled(store, make_study(bold="none")))
    assert not bold(table)
    assert all(entry.p_best is None for entry in table.entries)


def test_one_run_a_cell_cannot_be_tested(store):
    accuracy = {place: values[:1] for place, values in ACCURACY.items()}
    table = table_of(filled(store, accuracy=accuracy))
    assert bold(table) == {("GCE", "20%"), ("GCE", "40%")}
    assert len(table.notes) == 1
    assert "two runs" in table.notes[0]
    entry = table.at("GCE", "20%", group="Symmetric")
    assert entry.std is None
    assert entry.difference == pytest.approx((98.8 - 98.85) / 0.18)


def test_two_runs_are_told_to_be_few(store):
    accuracy = {place: values[:2] for place, values in ACCURACY.items()}
    assert any("two runs" in note for note in table_of(filled(store, accuracy=accuracy)).notes)


def test_a_competition_of_one_has_no_winner(store):
    accuracy = {("LN", "20%"): ACCURACY["LN", "20%"]}
    assert not bold(table_of(filled(store, accuracy=accuracy)))


def test_columns_may_compete(store):
    study = make_study(compete="columns", bold="best")
    assert bold(table_of(filled(store, study))) == {("CE", "20%"), ("GCE", "20%"), ("LN", "20%")}


def test_stars_pair_common_seeds(store):
    study = make_study(bold="best", stars_against="LN", seeds=4)
    seeds = np.array([0.90, 0.94, 0.92, 0.80])
    accuracy = {
        ("LN", "20%"): seeds,
        ("CE", "20%"): seeds - [0.0500, 0.0501, 0.0499, 0.0502],
        ("GCE", "20%"): seeds - [0.010, 0.016, 0.012, 0.020],
        ("LN", "40%"): seeds[:3],
        ("CE", "40%"): seeds - [0.03, 0.05, 0.04, -0.9],
        ("GCE", "40%"): seeds - [0.01, -0.02, 0.03, 0.01],
    }
    table = table_of(filled(store, study, {place: list(map(float, v)) for place, v in accuracy.items()}))
    found = {(e.of.cell.row, e.of.cell.column): e.stars for e in table.entries}
    for (row, column), values in accuracy.items():
        common = 3 if column == "40%" else 4
        reference = accuracy["LN", column]
        p = 1.0 if row == "LN" else stats.ttest_rel(values[:common], reference[:common]).pvalue
        assert found[row, column] == ("‡" if p < 0.001 else "†" if p < 0.01 else "*" if p < 0.05 else "")
    assert set(found.values()) == {"", "*", "†", "‡"}
    assert found["CE", "40%"] == "*"


def test_stars_need_their_row(store):
    study = make_study(stars_against="LN").only(rows=["ce", "gce"])
    accuracy = {place: values for place, values in ACCURACY.items() if place[0] != "LN"}
    table = table_of(filled(store, study, accuracy))
    assert all(entry.stars == "" for entry in table.entries)
    assert any("LN" in note for note in table.notes)


def test_unknown_words_of_a_study(store):
    with pytest.raises(UnknownNameError, match="did you mean 'welch'"):
        table_of(filled(store, make_study(bold="welsh")))
    with pytest.raises(UnknownNameError, match="compete"):
        table_of(filled(store, make_study(compete="cols")))


# -- layout ----------------------------------------------------------------------------------------


def test_headings_join_neighbours_only_under_the_same_group():
    cells = tuple(
        Cell(row="CE", column=column, group=group, settings=settings())
        for group, column in (("", "0%"), ("Symmetric", "20%"), ("Asymmetric", "20%"), ("Asymmetric", "40%"))
    )
    study = make_study(cells=cells, values=(Value(name="a", title="LL", percent=False), Value(name="b")))
    groups, header = headings(study)
    assert groups[0] == [("", 1), ("", 2), ("Symmetric", 2), ("Asymmetric", 4)]
    assert groups[1] == [("", 1), ("0%", 2), ("20%", 2), ("20%", 2), ("40%", 2)]
    assert header == ["method", *["LL", "accuracy (%)"] * 4]
    assert headings(make_study(cells=cells))[1] == ["method", "0%", "20%", "20%", "40%"]


def test_a_table_without_column_labels_has_its_value_as_header():
    cells = (Cell(row="CE", column="", settings=settings()),)
    assert levels(make_study(cells=cells)) == [["accuracy (%)"]]


def test_terminal_table(store):
    header, rows = terminal_table(filled(store))
    assert header == ["method", "Symmetric 20%", "Symmetric 40%"]
    assert rows[0] == ["CE", "88.23±0.25 (88.41±0.34)", "71.00±1.00 (70.67)"]
    assert terminal_table(filled(store), paper=False)[1][0] == ["CE", "88.23±0.25", "71.00±1.00"]


def test_terminal_table_of_what_is_there(store):
    results = filled(store, accuracy={("LN", "20%"): [0.985]})
    assert terminal_table(results)[1][2] == ["LN", "98.50 [1 of 3] (98.53±0.27)", "- [0 of 3]"]
    assert terminal_table(Results(make_study(table=False), store)) == ([], [])


# -- files -----------------------------------------------------------------------------------------

VOID = {"meta", "img", "br", "hr"}


class Outline(HTMLParser):
    """Well-formed, with the texts of every row of every table."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.bold = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "br":
            self.rows[-1][-1] += "\n"

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data
        if "strong" in self.open:
            self.bold.append(data)


def write(results, tmp_path, **options):
    return write_report(results, tmp_path / "report", **{"command": "noisegate study run toy", **options})


def read(report, name):
    return (report.folder / name).read_text(encoding="utf-8")


def test_the_table_in_all_files(store, tmp_path):
    report = write(filled(store), tmp_path)
    assert {path.name for path in report.files} == {"report.md", "report.html", "table.csv", "runs.csv"}
    assert report.missing == ()
    markdown = read(report, "report.md")
    assert "| method | Symmetric<br>20% | Symmetric<br>40% |" in markdown
    first, second = (
        "88.23 ± 0.25 (n=3)<br>paper 88.41 ± 0.34, -0.6 sd",
        "71.00 ± 1.00 (n=3)<br>paper 70.67, +0.3 sd",
    )
    assert f"| CE | {first} | {second} |" in markdown
    assert "**98.90 ± 0.10** (n=3)<br>paper **98.85 ± 0.18**, +0.3 sd" in markdown
    outline = Outline(read(report, "report.html"))
    assert ["", "Symmetric"] in outline.rows
    ce = ["CE", "88.23 ± 0.25 (n=3)\npaper 88.41 ± 0.34, -0.6 sd", "71.00 ± 1.00 (n=3)\npaper 70.67, +0.3 sd"]
    assert ce in outline.rows
    assert {"98.90 ± 0.10", "98.83 ± 0.42", "96.00 ± 1.00"} < set(outline.bold)
    assert "91.00 ± 1.00" not in outline.bold
    for text in (markdown, read(report, "report.html")):
        assert "Welch" in text
        assert "noisegate study run toy" in text
        assert "smoke" not in text


def test_table_csv(store, tmp_path):
    report = write(filled(store), tmp_path)
    lines = lines_of(report.folder / "table.csv")
    head = (
        "study,row,group,column,value,n,mean,std,paper_mean,paper_std,difference_sd,bold,p_against_best,stars,"
        "failed,seeds"
    )
    assert read(report, "table.csv").splitlines()[0] == head
    assert len(lines) == 6
    ce = next(line for line in lines if (line["row"], line["column"]) == ("CE", "20%"))
    assert float(ce["mean"]) == pytest.approx(88.2333333)
    assert float(ce["std"]) == pytest.approx(100 * np.std(ACCURACY["CE", "20%"], ddof=1))
    assert float(ce["paper_mean"]) == 88.41
    assert (ce["bold"], ce["n"], ce["seeds"], ce["failed"], ce["group"]) == (
        "false",
        "3",
        "3",
        "0",
        "Symmetric",
    )
    p = stats.ttest_ind(ACCURACY["CE", "20%"], ACCURACY["GCE", "20%"], equal_var=False).pvalue
    assert float(ce["p_against_best"]) == pytest.approx(p)
    ln = next(line for line in lines if (line["row"], line["column"]) == ("LN", "40%"))
    assert (ln["paper_mean"], ln["difference_sd"]) == ("", "")


def test_runs_csv_has_one_line_a_run(store, tmp_path):
    # Both rows have the same settings, so the same runs.
    cells = (
        Cell(row="LS, α = 0", column="A", settings=settings()),
        Cell(row="FC, α = 0", column="A", settings=settings()),
    )
    study = make_study(cells=cells, seeds=2)
    fill(store, study.runs(cells[0])[0], test_accuracy=0.5, seconds=12.5, test_ece=0.1)
    store.fail(study.runs(cells[0])[1], "crashed", "ValueError: no\nmore")
    report = write(Results(study, store), tmp_path)
    done, failed = lines_of(report.folder / "runs.csv")
    assert done["key"] == study.runs(cells[0])[0].key
    assert (done["row"], done["also_in"], done["part"]) == ("LS, α = 0", "FC, α = 0 /  / A", "cell")
    assert (float(done["seconds"]), done["test_ece"], done["torch"]) == (12.5, "0.1", "2.13.0")
    assert (done["method"], json.loads(done["params"])) == (settings().method, dict(settings().params))
    assert (failed["status"], failed["error"], failed["seed"]) == ("crashed", "ValueError: no\nmore", "1")
    assert report.failed == 1
    assert "time of all runs: 12.5 s" in read(report, "report.md")


def test_what_is_missing_and_what_failed_is_told(store, tmp_path):
    results = filled(store, accuracy={("LN", "20%"): [0.98, 0.99], ("CE", "20%"): [0.88, 0.89, 0.9]})
    study = results.study
    store.fail(study.runs(study.cell("LN", "20%", "Symmetric"))[2], "diverged", "training diverged at step 7")
    store.fail(study.runs(study.cell("CE", "40%", "Symmetric"))[0], "crashed", "KeyError: '<x> | y'")
    report = write(results, tmp_path)
    outline = Outline(read(report, "report.html"))
    rows = {row[0]: row for row in outline.rows}
    assert rows["LN"][1].startswith("98.50 ± 0.71 (2 of 3; 1 diverged)")
    assert rows["LN"][2] == "not run"
    assert rows["CE"][2].splitlines()[0] == "0 of 3; 1 crashed"
    assert ["LN, Symmetric 20%", "2", "diverged", "training diverged at step 7"] in outline.rows
    assert ["CE, Symmetric 40%", "0", "crashed", "KeyError: '<x> | y'"] in outline.rows
    markdown = read(report, "report.md")
    assert "KeyError: '&lt;x&gt; \\| y'" in markdown
    assert "5 cells of 6 lack runs" in markdown
    assert "- runs: 5 of 18 done" in markdown
    assert report.failed == 2
    assert "LN, Symmetric 20%: 2 of 3 runs; 1 diverged" in report.missing
    assert len(report.missing) == 5
    failed = {(line["row"], line["column"]): line["failed"] for line in lines_of(report.folder / "table.csv")}
    assert failed["LN", "20%"] == "1"


def test_a_number_that_finished_runs_lack_is_told(store, tmp_path):
    study = make_study(values=(Value(), Value(name="test_ece100", title="ECE", percent=False)))
    markdown = read(write(filled(store, study), tmp_path), "report.md")
    assert "0 of 3; 3 without this number" in markdown


def test_a_long_list_of_missing_cells_is_cut(store, tmp_path):
    cells = tuple(Cell(row=f"row {i}", column="A", settings=settings(rate=i / 100)) for i in range(40))
    study = make_study(cells=cells, seeds=1)
    fill(store, cells[0].settings, test_accuracy=0.5)
    report = write(Results(study, store), tmp_path)
    assert len(report.missing) == 39
    assert "and 9 more cells" in read(report, "report.md")


def test_nothing_to_report(store, tmp_path):
    results = Results(make_study(), store)
    with pytest.raises(InputError, match="no finished run of toy.*noisegate study run toy"):
        write(results, tmp_path)
    store.fail(results.planned()[0], "crashed", "OSError: no such file")
    with pytest.raises(InputError, match="1 failed, the first: OSError: no such file"):
        write(results, tmp_path)
    assert not (tmp_path / "report").exists()
    with pytest.raises(InputError, match="noisegate study run toy --scale smoke"):
        write_report(results, tmp_path / "report", scale="smoke")


def test_bad_arguments(store, tmp_path):
    with pytest.raises(UnknownNameError, match="scale"):
        write(filled(store), tmp_path, scale="smokey")
    (tmp_path / "report").write_text("in the way")
    with pytest.raises(InputError, match="found a file"):
        write(filled(store), tmp_path)


def test_smoke_is_no_reproduction(store, tmp_path):
    report = write(filled(store), tmp_path, scale="smoke")
    markdown, page = read(report, "report.md"), read(report, "report.html")
    assert "no reproduction" in markdown.splitlines()[0]
    assert "not comparable" in markdown.splitlines()[2]
    assert "no reproduction" in re.search("<h1>(.*)</h1>", page)[1]
    assert "not comparable" in re.search('<p class="lead">(.*)</p>', page)[1]
    assert "paper 88.41 ± 0.34 |" in markdown
    assert " sd" not in markdown
    assert all(line["difference_sd"] == "" for line in lines_of(report.folder / "table.csv"))
    assert all(entry.difference is None for entry in report.table.entries)


def test_changes_are_told(store, tmp_path):
    markdown = read(write(filled(store), tmp_path, changes={"recipe.epochs": 2}), "report.md")
    assert "- changed: recipe.epochs = 2" in markdown
    assert "Settings were changed" in markdown.splitlines()[2]


def test_versions_and_hardware_of_all_runs(store, tmp_path):
    study = make_study(seeds=1)
    for place, run in enumerate(Results(study, store).planned()):
        gpu = {"hardware": "NVIDIA H200", "device": f"cuda:{place}", "torch": "2.11.0"} if place < 2 else {}
        fill(store, run, test_accuracy=0.5, seconds=1000.0, **gpu)
    markdown = read(write(Results(study, store), tmp_path), "report.md")
    assert "- hardware: x86\\_64 (cpu) (4 runs); NVIDIA H200 (cuda) (2 runs)" in markdown
    assert "torch 2.13.0, numpy 2.4.6 (4 runs); noisegate 0.1.0, python 3.11.7, torch 2.11.0" in markdown
    assert "- time of all runs: 6,000 s (1 h 40 min)" in markdown


def test_accuracies_and_the_oracle(store, tmp_path):
    study = make_study(seeds=2)
    for run in study.runs(study.cell("LN", "20%", "Symmetric")):
        more = {"test_accuracy_best_validation": 0.91 + 0.02 * run.seed, "test_accuracy_oracle": 0.99}
        fill(store, run, test_accuracy=0.9, test_accuracy_last=0.9, **more)
    outline = Outline(read(write(Results(study, store), tmp_path), "report.html"))
    head = next(row for row in outline.rows if row[:2] == ["column", "row"])
    assert head[2] == "last epoch"
    assert "noisy validation" in head[3]
    assert "ORACLE" in head[4]
    assert "not available in practice" in head[4]
    assert ["Symmetric 20%", "LN", "90.00 ± 0.00", "92.00 ± 1.41", "99.00 ± 0.00"] in outline.rows


def test_no_accuracies_no_second_table(store, tmp_path):
    assert "ORACLE" not in read(write(filled(store), tmp_path), "report.md")


def test_damaged_files_are_told(store, tmp_path):
    results = filled(store)
    run = results.runs(results.study.cell("LN", "20%", "Symmetric"))[1]
    (store.path(run) / "result.json").write_text("{")
    again = Results(results.study, Store(store.folder))
    report = write(again, tmp_path)
    assert "Damaged files" in read(report, "report.md")
    assert "result.json.damaged-" in read(report, "report.html")
    assert report.missing == ("LN, Symmetric 20%: 2 of 3 runs",)


def test_a_report_written_twice_is_the_same(store, tmp_path):
    first = write(filled(store, figures_study()), tmp_path)
    before = {path: path.read_bytes() for path in first.files}
    second = write(Results(figures_study(), Store(store.folder)), tmp_path)
    assert {path: path.read_bytes() for path in second.files} == before
    assert not list(first.folder.rglob("*.part"))


# -- figures ---------------------------------------------------------------------------------------


def draw(results):
    """A line of the accuracies of CE."""
    cell = results.study.cell("CE", "20%", "Symmetric")
    found = results.values(cell, "test_accuracy") if cell else {0: 0.0, 1: 1.0}
    if not found:
        raise InputError("no run of CE at 20% is done")
    figure, (ax,) = panels(1)
    ax.plot(list(found), list(found.values()), "o-")
    ax.set_xlabel("$\\tau$")
    return figure


def figures_study(**changes):
    figure = Figure(name="toy-figure1", draw=draw, caption="A line | of CE.", paper="The paper's line rises.")
    return make_study(figures=(figure,), **changes)


def test_figures_are_saved_and_shown(store, tmp_path):
    report = write(filled(store, figures_study()), tmp_path)
    png, svg = (report.folder / "figures" / f"toy-figure1.{kind}" for kind in ("png", "svg"))
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in svg.read_bytes()
    assert not re.search(rb"\d{4}-\d\d-\d\dT", svg.read_bytes())
    assert {png, svg} < set(report.files)
    markdown, page = read(report, "report.md"), read(report, "report.html")
    assert "![A line \\| of CE.](figures/toy-figure1.png)" in markdown
    for text in (markdown, html.unescape(page)):
        assert "What the paper's figure shows: The paper's line rises." in text
    assert 'alt="A line | of CE."' in page
    assert page.count("data:image/png;base64,") == 1


def test_a_figure_that_cannot_be_drawn_says_why(store, tmp_path):
    write(filled(store, figures_study()), tmp_path)
    study = figures_study().only(rows=["ln", "ce"])
    results = Results(study, Store(tmp_path / "other"))
    fill_cell(study, results.store, "LN", "20%", [0.9], "Symmetric")
    report = write(results, tmp_path)
    assert "toy-figure1 could not be drawn: no run of CE at 20% is done" in read(report, "report.md")
    assert "toy-figure1: no run of CE at 20% is done" in report.missing
    # The picture of the report before would be taken for this one's.
    assert not list((report.folder / "figures").iterdir())


def test_a_study_without_runs_has_figures_only(store, tmp_path):
    study = figures_study(cells=(), table=False)
    report = write(Results(study, store), tmp_path, scale="smoke")
    assert {path.name for path in report.files} == {
        "report.md",
        "report.html",
        "toy-figure1.png",
        "toy-figure1.svg",
    }
    markdown = read(report, "report.md")
    assert "needs no training" in markdown
    # There is one size of it, so its smoke size is the real one.
    assert "no reproduction" not in markdown.splitlines()[0]


def test_a_study_without_table_has_its_runs(store, tmp_path):
    report = write(filled(store, figures_study(table=False)), tmp_path)
    assert not (report.folder / "table.csv").exists()
    assert len(lines_of(report.folder / "runs.csv")) == 18
    assert "## Results" not in read(report, "report.md")


def test_errors_of_drawing_are_not_hidden(store, tmp_path):
    figure = Figure(name="x", draw=lambda results: 1 / 0, caption="c")
    with pytest.raises(ZeroDivisionError):
        write(filled(store, make_study(figures=(figure,))), tmp_path)


# -- search ----------------------------------------------------------------------------------------


def search_study():
    cell = Cell(
        row="GCE", column="20%", settings=settings("gce", params={"q": 0.7}), search={"q": (0.3, 0.5, 0.7)}
    )
    return make_study(cells=(cell, Cell(row="CE", column="20%", settings=settings())), seeds=2)


def test_search_says_what_was_chosen(store, tmp_path):
    study = search_study()
    gce = study.cells[0]
    for candidate, score in zip(gce.candidates()[:2], (0.6, 0.8), strict=True):
        fill(store, candidate, test_accuracy=0.9, validation_accuracy=score)
    store.fail(gce.candidates()[2], "diverged", "training diverged")
    fill(store, gce.candidates()[1].replace(seed=1), test_accuracy=0.94, validation_accuracy=0.1)
    report = write(Results(study, store, search=True), tmp_path)
    assert report.table.at("GCE", "20%").mean == pytest.approx(92)
    outline = Outline(read(report, "report.html"))
    assert ["GCE", "20%", "q = 0.5", "0.8000", "q = 0.7", "2 scored, 1 diverged"] in outline.rows
    lines = lines_of(report.folder / "runs.csv")
    assert [(line["part"], line["seed"]) for line in lines] == [
        ("cell", "0"),
        ("cell", "1"),
        ("search", "0"),
        ("search", "0"),
    ]
    assert "searched on noisy validation labels" in read(report, "report.md")


def test_without_search_the_papers_choice_is_named(store, tmp_path):
    study = search_study()
    fill(store, study.cells[0].settings, test_accuracy=0.9)
    markdown = read(write(Results(study, store), tmp_path), "report.md")
    assert "- hyper-parameters: the paper's choice" in markdown
    assert "## Hyper-parameters" not in markdown


def test_a_search_under_way_is_told(store, tmp_path):
    study = search_study()
    gce = study.cells[0]
    fill(store, gce.candidates()[0], test_accuracy=0.9, validation_accuracy=0.7)
    report = write(Results(study, store, search=True), tmp_path)
    markdown = read(report, "report.md")
    assert "| GCE | its search is not over |" in markdown
    assert "| GCE | 20% | not chosen yet |  | q = 0.7 | 1 scored, 2 open |" in markdown
    for candidate in gce.candidates():
        if store.result(candidate) is None:
            store.fail(candidate, "diverged", "no")
    (store.path(gce.candidates()[0]) / "result.json").unlink()
    store = Store(store.folder)
    store.fail(gce.candidates()[0], "diverged", "no")
    fill(store, study.cells[1].settings, test_accuracy=0.9)
    report = write(Results(study, store, search=True), tmp_path)
    assert "GCE, 20%: every candidate of its search failed" in report.missing


# -- Markdown --------------------------------------------------------------------------------------


def test_markdown_is_escaped():
    text = Page("a # *b*", "1. no list").text("# no heading", "- no item").bullets(["_x_ | <b>"]).markdown()
    assert text.splitlines()[0] == "# a # \\*b\\*"
    assert "1\\. no list" in text
    assert "\\# no heading\n\n\\- no item" in text
    assert "- \\_x\\_ \\| &lt;b&gt;" in text
    assert escape("a\nb\\") == "a b\\\\"


def test_code_cannot_end_its_block():
    assert "````\na ``` b\n````" in Page("t").code("a ``` b").markdown()


# -- a real one ------------------------------------------------------------------------------------


def test_report_of_the_demo(tmp_path):
    study = papers.get("demo").at_scale("smoke").only(rows=["ce", "ln"], columns=["symmetric-40"])
    store = Store(tmp_path / "store")
    results = Results(study, store)
    for run in results.planned():
        execute(run, store, "cpu")
        assert store.status(run) == "finished"
    report = write_report(results, tmp_path / "report", scale="smoke")
    stored = [json.loads(p.read_text()) for p in (store.folder / "runs").glob("*/result.json")]
    for row, method in (("CE", "ce"), ("LN", "ln")):
        values = [
            100 * r["metrics"]["test_accuracy"] for r in stored if r["settings"]["method"]["name"] == method
        ]
        assert report.table.at(row, "symmetric 40%").mean == pytest.approx(np.mean(values))
    assert "ORACLE" in read(report, "report.md")
    assert Smoke().seeds == 2 == len(lines_of(report.folder / "runs.csv")) / 2
