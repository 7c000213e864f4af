"""What is shown of a row is what stands in the data, and nothing from outside its folder."""

import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from noisegate.auditing import content, stored
from noisegate.errors import DamagedFileError, InputError, MissingDataError


def opened(data):
    return Image.open(io.BytesIO(data))


def test_cells_of_a_csv(table_audit):
    folder, path = table_audit(30, cells=['a "quoted" <b>', "two\nlines"])
    shown = content.open_content(stored.read(folder))
    frame = pd.read_csv(path, dtype=str)
    for row in (0, 1, 29):
        assert shown.view(row).cells == [
            ("length", frame["length"][row]),
            ("remark", frame["remark"][row]),
        ]
    with pytest.raises(MissingDataError):
        shown.picture(0, "", 100)


def test_cells_of_parquet(table_audit, tmp_path):
    folder, path = table_audit(10)
    audit = stored.read(folder)
    pd.read_csv(path).assign(gap=None).to_parquet(tmp_path / "data.parquet")
    info = dict(audit.info) | {
        "source": stored.source_of("table", tmp_path / "data.parquet", 10, label="kind")
    }
    shown = content.open_content(stored.StoredAudit(info, audit.rows))
    assert shown.view(3).cells == [("length", "3"), ("remark", "row 3"), ("gap", "")]


def test_pictures_of_files(folder_audit):
    folder, _ = folder_audit(12)
    audit = stored.read(folder)
    shown = content.open_content(audit)
    names = content.names_in_order(audit)
    assert shown.view(4) == content.View(layers=("",), pixelated=True)
    picture = opened(shown.picture(4, "", 200))
    file = Image.open(f"{audit.source['path']}/{names[4]}")
    np.testing.assert_array_equal(np.asarray(picture), np.asarray(file))
    assert opened(shown.picture(4, "", 8)).size == (8, 8)


def test_nothing_from_outside_the_folder(folder_audit, tmp_path):
    folder, top = folder_audit(12)
    secret = tmp_path / "secret.png"
    Image.new("L", (4, 4)).save(secret)
    audit = stored.read(folder)
    link = top / audit.rows["id"][0]
    link.unlink()
    link.symlink_to(secret)
    ids = audit.rows["id"].to_numpy(object).copy()
    ids[1], ids[2] = "../secret.png", str(secret)
    outside = stored.StoredAudit(audit.info, audit.rows.assign(id=ids))
    shown = content.open_content(outside)
    for row in audit.rows["row"].to_numpy()[:3].tolist():
        assert "leads outside" in shown.view(row).problem
        with pytest.raises(InputError, match="leads outside"):
            shown.picture(row, "", 100)


def test_damaged_and_lost_files_say_so(folder_audit):
    folder, top = folder_audit(12)
    audit = stored.read(folder)
    names = content.names_in_order(audit)
    (top / names[0]).write_bytes(b"\x89PNG no")
    (top / names[1]).unlink()
    shown = content.Cached(content.open_content(audit))
    assert "cannot be read" in shown.view(0).problem
    assert "there is no image" in shown.view(1).problem
    with pytest.raises(DamagedFileError):
        shown.picture(0, "", 10)
    top.rename(top.with_name("elsewhere"))
    assert "any more" in content.open_content(audit).view(0).problem


def test_arrays(npz_audit):
    folder, path = npz_audit(image=True)
    shown = content.open_content(stored.read(folder))
    with np.load(path) as file:
        np.testing.assert_array_equal(np.asarray(opened(shown.picture(5, "", 100))), file["x"][5, 0])
    rows = content.ArrayRows(np.linspace(0, 1, 128).reshape(2, 64), (8, 8))
    assert opened(rows.picture(1, "", 100)).size == (8, 8)
    vector = content.ArrayRows(np.arange(100.0).reshape(2, 50))
    assert vector.view(1).cells[0] == ("x0", "50")
    assert vector.view(1).cells[-1] == ("…", "10 more")
    colour = content.ArrayRows(np.zeros((2, 3, 9, 5), np.uint8))
    assert opened(colour.picture(0, "", 100)).size == (5, 9)


def test_named_data_and_data_from_memory(npz_audit, tmp_path):
    folder, _ = npz_audit()
    audit = stored.read(folder)
    info = dict(audit.info)
    named = stored.StoredAudit(info | {"source": stored.source_of("named", "digits", 1347)}, audit.rows)
    assert opened(content.open_content(named).picture(0, "", 64)).size == (8, 8)
    memory = info | {"source": stored.source_of("memory", None, 40)}
    lost = content.open_content(stored.StoredAudit(memory, audit.rows, folder=folder))
    assert "from memory" in lost.view(0).problem
    np.savez(folder / "inputs.npz", x=np.arange(6.0).reshape(2, 3), rows=np.array([7, 3]))
    kept = content.open_content(stored.StoredAudit(memory, audit.rows, folder=folder))
    assert kept.view(3).cells[0] == ("x0", "3")
    assert "not kept" in kept.view(5).problem
    pd.DataFrame({"a": ["x", "y"], "row": [9, 8]}).to_parquet(folder / "inputs.parquet")
    frame = content.open_content(stored.StoredAudit(memory, audit.rows, folder=folder))
    assert frame.view(8).cells == [("a", "y")]


def test_other_tasks_bring_their_own(npz_audit, monkeypatch):
    folder, _ = npz_audit()
    audit = stored.read(folder)
    monkeypatch.setattr(content, "_TASKS", {})
    content.register("maps", lambda audit, root: content.Nothing("a map"))
    other = stored.StoredAudit(dict(audit.info) | {"task": "maps"}, audit.rows)
    assert content.open_content(other).view(0).problem == "a map"


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_every_mode_can_be_shown(mode):
    picture = opened(content.encode(Image.new(mode, (300, 200)), 250))
    assert picture.size == (250, 167)
