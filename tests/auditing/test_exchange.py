"""Decisions leave as tables and tasks, and come back as they were."""

import json
import xml.etree.ElementTree as ElementTree

import pandas as pd
import pytest

from noisegate.auditing import exchange, stored
from noisegate.auditing.state import open_log
from noisegate.errors import InputError


def decisions(folder):
    log = open_log(stored.read(folder))
    found = {d.row: (d.decision, d.label, d.reviewer, d.at) for d in log.last()}
    log.close()
    return found


def decide_some(folder, decide):
    rows = stored.read(folder).rows.head(4).to_dict("records")
    decide(
        folder,
        {
            rows[0]["row"]: ("accept", rows[0]["suggested_label"]),
            rows[1]["row"]: ("keep", rows[1]["given_label"]),
            rows[2]["row"]: ("skip", -1),
        },
    )
    decide(folder, {rows[3]["row"]: ("choose", (rows[3]["given_label"] + 1) % 3)}, reviewer="bo")


@pytest.fixture(params=["text", "int"])
def audited(request, table_audit, npz_audit):
    """An audit whose labels are texts, and one whose labels are numbers."""
    return table_audit(50)[0] if request.param == "text" else npz_audit()[0]


def copy_without_decisions(folder, tmp_path, audit_id="f" * 12):
    audit = stored.read(folder)
    info = dict(audit.info) | {"audit_id": audit_id}
    return stored.write(tmp_path / "other", stored.StoredAudit(info, audit.rows))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_go_and_come_back(audited, decide, tmp_path, suffix):
    decide_some(audited, decide)
    path = tmp_path / f"decisions{suffix}"
    assert exchange.export_decisions(audited, path) == 4
    frame = pd.read_csv(path) if suffix == ".csv" else pd.read_parquet(path)
    assert tuple(frame.columns) == exchange.COLUMNS
    assert set(frame["audit_id"]) == {"0123456789ab"}
    assert frame["label"].isna().sum() == 1
    values = stored.read(audited).label_values
    assert set(frame["given_label"]) <= set(values)
    other = copy_without_decisions(audited, tmp_path)
    came = exchange.import_decisions(other, path)
    assert (came.stored, came.known, came.conflicts) == (4, 0, [])
    assert {row: d[:2] for row, d in decisions(other).items()} == {
        row: (d[0] if d[0] != "choose" else decisions(other)[row][0], d[1])
        for row, d in decisions(audited).items()
    }
    assert [d[2:] for d in decisions(other).values()] == [d[2:] for d in decisions(audited).values()]
    again = exchange.import_decisions(other, path)
    assert (again.stored, again.known) == (0, 4)


def test_decisions_here_are_not_overwritten(audited, decide, tmp_path):
    decide_some(audited, decide)
    exchange.export_decisions(audited, tmp_path / "d.csv")
    other = copy_without_decisions(audited, tmp_path)
    row = stored.read(other).rows["row"].iloc[0]
    decide(other, {int(row): ("keep", int(stored.read(other).rows["given_label"].iloc[0]))}, reviewer="cy")
    came = exchange.import_decisions(other, tmp_path / "d.csv")
    assert came.stored == 3
    assert [d.reviewer for d in came.conflicts] == ["cy"]
    assert decisions(other)[row][2] == "cy"
    assert exchange.import_decisions(other, tmp_path / "d.csv", overwrite=True).stored == 1
    assert decisions(other)[row][2] == "ana"


def test_label_studio_tasks_go_and_come_back(audited, decide, tmp_path):
    decide_some(audited, decide)
    path = tmp_path / "tasks.json"
    n = exchange.export_label_studio(audited, path)
    audit, tasks = stored.read(audited), json.loads(path.read_text())
    assert n == len(tasks) == int(audit.rows["is_label_issue"].sum())
    first = tasks[0]
    line = audit.rows.iloc[0]
    assert first["data"]["id"] == line["id"]
    assert first["predictions"][0]["result"][0]["value"]["choices"] == [
        audit.classes[line["suggested_label"]]
    ]
    shown = ElementTree.fromstring((tmp_path / "tasks.xml").read_text())
    assert [choice.get("value") for choice in shown.iter("Choice")] == audit.classes
    names = {child.get("name") for child in shown.iter() if child.get("name")}
    result = first["annotations"][0]["result"][0]
    assert {result["from_name"], result["to_name"]} <= names
    other = copy_without_decisions(audited, tmp_path)
    assert exchange.import_decisions(other, path).stored == 3
    labels = {row: d[1:] for row, d in decisions(other).items()}
    assert labels == {row: d[1:] for row, d in decisions(audited).items() if d[1] >= 0}


def test_tasks_of_pictures_name_their_files(folder_audit, tmp_path):
    folder, _ = folder_audit(20, stem="a b&{i}")
    exchange.export_label_studio(folder, tmp_path / "t.json")
    task = json.loads((tmp_path / "t.json").read_text())[0]
    assert task["data"]["image"].startswith("/data/local-files/?d=")
    assert "a%20b%26" in task["data"]["image"]
    assert "<Image " in (tmp_path / "t.xml").read_text()


def test_class_names_cannot_break_the_configuration(table_audit, tmp_path, nasty):
    folder, _ = table_audit(70, classes=nasty)
    exchange.export_label_studio(folder, tmp_path / "t.json")
    shown = ElementTree.fromstring((tmp_path / "t.xml").read_text())
    found = [choice.get("value") for choice in shown.iter("Choice")]
    assert [name.split() for name in found] == [name.split() for name in nasty]
    assert shown.find("script") is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": "unicorn"}, "no class"),
        ({"id": "9999"}, "no row"),
        ({"given_label": None}, None),
        ({"given_label": "other"}, "other data"),
    ],
)
def test_files_about_other_data_are_refused(table_audit, decide, tmp_path, change, words):
    folder, _ = table_audit(50)
    decide_some(folder, decide)
    exchange.export_decisions(folder, tmp_path / "d.csv")
    frame = pd.read_csv(tmp_path / "d.csv", dtype=str)
    for name, value in change.items():
        frame.loc[0, name] = value
    frame.to_csv(tmp_path / "d.csv", index=False)
    other = copy_without_decisions(folder, tmp_path)
    if words is None:
        assert exchange.import_decisions(other, tmp_path / "d.csv").stored == 4
        return
    with pytest.raises(InputError, match=words):
        exchange.import_decisions(other, tmp_path / "d.csv")
    assert decisions(other) == {}


def test_other_files_are_refused(table_audit, tmp_path):
    folder, _ = table_audit(50)
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "a.json").write_text('[{"annotations": [{"result": 3}]}]')
    (tmp_path / "b.json").write_text("{}")
    for name, words in (("a.csv", "lacks the columns"), ("a.json", "did not write"), ("b.json", "no list")):
        with pytest.raises(InputError, match=words):
            exchange.import_decisions(folder, tmp_path / name)
    with pytest.raises(InputError, match=r"\.csv or \.parquet"):
        exchange.export_decisions(folder, tmp_path / "d.xlsx")
    with pytest.raises(InputError, match=r"\.json"):
        exchange.export_label_studio(folder, tmp_path / "d.csv")
