import datetime
import decimal
import gzip
import json
import re

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from noisegate.auditing.cells import CsvFile
from noisegate.data import TableReader, from_frame, load, load_table, read_table, reader_from_dict
from noisegate.data.tables import is_frame
from noisegate.errors import DamagedFileError, InputError, MissingDataError


@pytest.fixture
def frame(rng):
    """Numbers, gaps, booleans, categories, times, a constant, an empty column, an identifier, and labels."""
    n = 40
    number = rng.normal(1e6, 3, n)
    number[[3, 7]] = np.nan
    colour = rng.choice(["red", "green", "blue"], n).astype(object)
    colour[[1, 5]] = None
    return pd.DataFrame(
        {
            "whole": np.arange(n) // 2,
            "number": number,
            "flag": rng.random(n) < 0.5,
            "colour": colour,
            "shape": pd.Categorical(rng.choice(["disc", "square"], n)),
            "when": pd.Timestamp("2024-03-01", tz="Europe/Berlin")
            + pd.to_timedelta(np.arange(n) * 7, unit="s"),
            "same": "x",
            "empty": [None] * n,
            "id": [f"row-{i}" for i in range(n)],
            "target": rng.choice(["yes", "no"], n),
        }
    )


def test_columns_agree_with_scikit_learn(frame):
    reader = TableReader.fit(frame, label="target")
    oracle = make_column_transformer(
        (SimpleImputer(add_indicator=True), ["whole"]),
        (SimpleImputer(strategy="median", add_indicator=True), ["number"]),
        ("passthrough", ["flag"]),
        (OneHotEncoder(sparse_output=False, categories=[["red", "green", "blue"], ["disc", "square"]],
                       handle_unknown="ignore"), ["colour", "shape"]),
    )  # fmt: skip
    expected = np.asarray(oracle.fit_transform(frame), float)
    ours = pd.DataFrame(reader.read(frame), columns=reader.features)
    names = ["whole", "number", "number is missing", "flag", "colour=red", "colour=green", "colour=blue",
             "shape=disc", "shape=square"]  # fmt: skip
    # A column far from zero is counted from its median, so that single precision keeps its digits.
    expected[:, 1] -= frame.number.median()
    np.testing.assert_allclose(ours[names], expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(ours["colour is missing"], frame.colour.isna())
    np.testing.assert_array_equal(ours["when"], np.arange(40) * 7.0)
    assert set(reader.features) == {*names, "colour is missing", "when"}
    assert reader.dropped == {
        "same": "constant",
        "empty": "all values are missing",
        "id": "names the rows: a different text in each",
    }


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_what_was_learnt_survives_json_and_reads_new_files(frame, tmp_path, suffix):
    reader = TableReader.fit(frame, label="target")
    stored = reader_from_dict(json.loads(json.dumps(reader.to_dict(), allow_nan=False)))
    new = frame.drop(columns=["target", "same"]).iloc[::-1].assign(extra=1)
    path = tmp_path / f"new.{suffix}"
    new.to_csv(path, index=False) if suffix == "csv" else new.to_parquet(path)
    np.testing.assert_allclose(stored.read(path), reader.read(frame)[::-1], rtol=1e-7)
    first = 2 if suffix == "csv" else 1  # the header of a CSV file is its row 1
    assert stored.names(path) == [str(i + first) for i in range(40)]


def test_prediction_meets_what_training_did_not_have():
    train = pd.DataFrame({"n": [1.0, 2.0, 6.0], "c": ["a", "b", "a"]})
    reader = TableReader.fit(train)
    new = pd.DataFrame({"c": ["z", None, "b"], "n": [None, 5.0, 1.0]})
    # The median where a number is missing, all zero for an unknown or missing category: training had no gaps.
    np.testing.assert_array_equal(reader.read(new), [[2, 0, 0], [5, 0, 0], [1, 0, 1]])
    with pytest.raises(InputError, match="lacks 1 of the 2 columns it was trained on: 'c'; it has 'n'"):
        reader.read(new[["n"]])
    with pytest.raises(
        InputError, match="column 'n' was a column of numbers in training, but row 1 has 'many'"
    ):
        reader.read(pd.DataFrame({"c": ["a", "a"], "n": ["3", "many"]}))
    np.testing.assert_array_equal(reader.read(pd.DataFrame({"c": ["a"], "n": ["3"]})), [[3, 1, 0]])


def test_times_that_cannot_be_read_are_named():
    reader = TableReader.fit(pd.DataFrame({"t": pd.to_datetime(["2020-01-01", "2020-01-03"])}))
    assert reader.read(pd.DataFrame({"t": ["2020-01-02", None]})).tolist() == [[86400], [86400]]
    with pytest.raises(
        InputError, match="column 't' was a column of times in training, but row 1 has 'soon'"
    ):
        reader.read(pd.DataFrame({"t": ["2020-01-02", "soon"]}))


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39])
def test_infinite_numbers_are_refused_by_column_and_row(value):
    frame = pd.DataFrame({"a": [1.0, 2.0, value], "b": [1, 2, 3]})
    with pytest.raises(InputError, match=r"column 'a' has .* in row 2"):
        TableReader.fit(frame)
    with pytest.raises(InputError, match=r"column 'a' has .* in row 2"):
        TableReader.fit(frame[:2]).read(frame)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([decimal.Decimal("1.5"), decimal.Decimal(2), None], [[1.5, 0], [2, 0], [1.75, 1]]),
        (pd.array([1, None, 3], "Int64"), [[1, 0], [2, 1], [3, 0]]),
        (pd.array([True, None, False], "boolean"), [[1, 0], [0.5, 1], [0, 0]]),
        (pd.to_timedelta([1, 2, 4], unit="s"), [[1], [2], [4]]),
        (
            [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)],
            [[0], [86400], [0]],
        ),
        (pd.Categorical([1, 2, 1]), [[1, 0], [0, 1], [1, 0]]),
        ([7.0, None, 7.0], [[1, 0], [0, 1], [1, 0]]),
        (pd.array(["u", None, "u"], "string"), [[1, 0], [0, 1], [1, 0]]),
        ([True, None, False], [[1, 0], [0.5, 1], [0, 0]]),
        (pd.cut([1.0, 5.0, 2.0, np.nan], [0, 3, 6]), [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]),
        (pd.arrays.IntervalArray.from_tuples([(0, 1), (1, 2), (0, 1)]), [[1, 0], [0, 1], [1, 0]]),
        (pd.PeriodIndex(["1970-01", "1970-02", "1970-01"], freq="M"), [[0], [31 * 86400], [0]]),
        (pd.arrays.SparseArray([0.0, 1.0, 0.0]), [[0], [1], [0]]),
    ],
)
def test_kinds_of_columns(values, expected):
    frame = pd.DataFrame({"v": values})
    np.testing.assert_array_equal(TableReader.fit(frame).read(frame), expected)


@pytest.mark.parametrize("values", [[[1], [2]], [{"a": 1}, None], [1j, 2j], [b"x", b"y"]])
def test_columns_that_hold_no_values_are_refused(values):
    with pytest.raises(InputError, match="column 'v' holds"):
        TableReader.fit(pd.DataFrame({"v": values}))


def test_only_the_most_frequent_categories_count():
    values = ["common"] * 5 + [f"rare{i:03d}" for i in range(150) for _ in range(2)]
    reader = TableReader.fit(pd.DataFrame({"c": values}))
    assert len(reader.features) == 100
    assert reader.features[0] == "c=common"
    assert reader.features[-1] == "c=rare098"


def test_whole_numbers_are_one_category_however_they_are_stored():
    reader = TableReader.fit(pd.DataFrame({"c": pd.Categorical([1, 2, 2])}))
    for new in ([2, 1], [2.0, 1.0], ["2", "1"]):
        assert reader.read(pd.DataFrame({"c": new})).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    "values", [[1.5, 2.0, 1.5], [12, 7, 12], ["12345678901234567", "7", "7"], ["0.00001", "2", "2"]]
)
def test_categories_that_look_like_numbers_are_the_same_in_a_file(tmp_path, values):
    frame = pd.DataFrame({"c": pd.Categorical(values)})
    reader = TableReader.fit(frame)
    frame.to_csv(tmp_path / "t.csv", index=False)
    np.testing.assert_array_equal(reader.read(tmp_path / "t.csv"), reader.read(frame))


def test_tables_are_known_without_a_look_at_their_columns():
    lazy = polars.DataFrame({"a": [1.0, 2.0, 4.0]}).lazy()  # to ask for its columns warns
    assert is_frame(lazy)
    assert TableReader.fit(lazy).features == ["a"]
    for single in (pd.Series([1]), polars.Series([1]), pa.array([1])):
        assert not is_frame(single)
    with pytest.raises(InputError, match=r"type that Arrow does not know .*: convert or drop it"):
        TableReader.fit(polars.DataFrame({"a": polars.Series([1, 2], dtype=polars.Int128)}))


class HuggingFace:
    """What noisegate asks of a dataset of Hugging Face."""

    __module__ = "datasets.arrow_dataset"

    def __init__(self, table, **names):
        self.table, self.column_names = table, table.column_names
        kinds = {
            name: type("ClassLabel", (), {"names": known, "int2str": None})() for name, known in names.items()
        }
        self.features = {name: kinds.get(name, "Value") for name in table.column_names}

    def with_format(self, kind):
        assert kind == "arrow"
        return self

    def select(self, rows): ...

    def __getitem__(self, rows):
        return self.table[rows] if isinstance(rows, str) else self.table.slice()


def test_a_dataset_of_hugging_face_has_names_for_classes():
    table = pa.table({"text": ["a b c", "d e f"] * 6, "size": range(12), "label": [1, 0] * 6})
    data = load(HuggingFace(table, label=["neg", "pos"]), label="label")
    assert data.classes == ("neg", "pos")
    assert data.train.y.tolist() == [1, 0] * 6
    gap = table.set_column(2, "label", pa.array([1, -1] * 6))  # -1 is no label there
    with pytest.raises(InputError, match="6 of 12 labels in 'label' are missing, the first in row 1"):
        load(HuggingFace(gap, label=["neg", "pos"]), label="label")


def test_what_is_no_single_dataset_of_hugging_face_is_refused():
    parts = type("DatasetDict", (dict,), {"column_names": {}, "__module__": "datasets.dataset_dict"})
    with pytest.raises(InputError, match=r"several parts \(train, test\): give one, such as data\['train'\]"):
        TableReader.fit(parts(train=1, test=2))
    stream = type("IterableDataset", (), {"column_names": [], "__module__": "datasets.iterable_dataset"})
    with pytest.raises(InputError, match="the table is a stream of rows; .* without streaming=True"):
        TableReader.fit(stream())


def test_nothing_to_learn_from():
    with pytest.raises(InputError, match=r"no column is left to learn from \(a: constant\)"):
        TableReader.fit(pd.DataFrame({"a": [1, 1], "y": [0, 1]}), label="y")


@pytest.mark.parametrize(
    ("labels", "classes", "values", "numbers"),
    [
        (["b", "a", "b"], ("a", "b"), ["a", "b"], [1, 0, 1]),
        ([10, 9, 10], ("9", "10"), [9, 10], [1, 0, 1]),
        ([1.0, 0.0, 1.0], ("0", "1"), [0, 1], [1, 0, 1]),
        ([True, False, True], ("False", "True"), [False, True], [1, 0, 1]),
        (pd.Categorical(["q", "p", "q"], categories=["q", "p"]), ("p", "q"), ["p", "q"], [1, 0, 1]),
        (pd.array([2, 1, 2], "Int64"), ("1", "2"), [1, 2], [1, 0, 1]),
        (pd.array(["b", "a", "b"], "string"), ("a", "b"), ["a", "b"], [1, 0, 1]),
    ],
)
def test_labels_of_any_kind_keep_their_values(labels, classes, values, numbers):
    data = from_frame(pd.DataFrame({"u": [1, 2, 3], "y": labels}), label="y")
    assert data.classes == classes
    assert data.info["label_values"] == values
    assert [type(v) for v in data.info["label_values"]] == [type(v) for v in values]
    assert data.train.y.tolist() == numbers
    json.dumps(dict(data.info))


@pytest.mark.parametrize(
    ("labels", "option", "message"),
    [
        (["a", None, "b"], "y", "1 of 3 labels in 'y' are missing.*drop these rows, or label them first"),
        (["a", "a", "a"], "y", "at least two classes, found only a"),
        ([0.5, 1.5, 1.0], "y", r"fractions such as 0\.5"),
        (["a", "b", "a"], "Y", "no column 'Y'; did you mean 'y'"),
        (["a", "b", "a"], "yy", "did you mean 'y'"),
        (["a", "b", "a"], None, "say which column holds the labels, label=...; there are 'u', 'y'"),
    ],
)
def test_labels_that_cannot_be_used(labels, option, message):
    with pytest.raises(InputError, match=message):
        from_frame(pd.DataFrame({"u": [1, 2, 3], "y": labels}), label=option)


def test_clean_labels_and_ignored_columns_are_no_inputs(tmp_path):
    frame = pd.DataFrame({"u": [1, 2, 3, 4], "y": list("abab"), "truth": list("aabb"), "note": [5, 6, 7, 8]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = load(tmp_path / "t.csv", label="y", clean="truth", ignore=["note"])
    assert data.info["features"] == ["u"]
    assert data.train.clean.tolist() == [0, 0, 1, 1]
    assert data.train.wrong.tolist() == [False, True, True, False]


def test_a_second_table_is_the_test_split(tmp_path):
    train = pd.DataFrame({"u": [1.0, None, 4.0, 5.0], "y": [3, 8, 3, 8]})
    test = pd.DataFrame({"y": [8, 3], "u": [None, 2.0]})
    train.to_csv(tmp_path / "train.csv", index=False)
    test.to_csv(tmp_path / "test.tsv", index=False, sep="\t")
    data = load(tmp_path / "train.csv", label="y", test=tmp_path / "test.tsv")
    np.testing.assert_array_equal(data.test.x, [[4, 1], [2, 0]])
    assert data.test.y.tolist() == [1, 0]
    with pytest.raises(InputError, match="1 labels such as '9' do not occur in the training labels"):
        load(tmp_path / "train.csv", label="y", test=test.assign(y=[9, 3]))
    with pytest.raises(InputError, match="the test table has no column 'y'"):
        load(tmp_path / "train.csv", label="y", test=test[["u"]])


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("t.csv", b"", InputError, "is empty"),
        ("t.csv", b"a,b\n", InputError, "has no rows"),
        ("t.csv", "a,b\nü,1\n".encode("latin1"), DamagedFileError, "not UTF-8"),
        ("t.csv", b'a,b\n1,2\n1,2,3,4\n"', DamagedFileError, "line 3 has 4 values"),
        (
            "t.csv.gz",
            gzip.compress(b"a,b\n" + b"1,2\n" * 500, mtime=0)[:-12],
            DamagedFileError,
            "cannot be read as a table",
        ),
        ("t.parquet", b"PAR1 no", DamagedFileError, "cannot be read as a table"),
        ("t.parquet", b"", DamagedFileError, "cannot be read as a table"),
        ("t.xlsx", b"PK", InputError, "is no table noisegate reads"),
    ],
)
def test_files_that_are_no_tables(tmp_path, name, content, error, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(error, match=message) as caught:
        read_table(path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fill": "x"}, "fill holds 'x'"),
        ({"fill": float("nan")}, "fill holds nan"),
        ({"fill": [1.0]}, "fill holds"),
        ({"fill": 10**400}, "cannot be"),
        ({"origin": {}}, "origin holds"),
        ({"origin": -(10**400)}, "cannot be"),
        ({"missing": "no"}, "missing holds"),
        ({"decimal": "dot"}, "cannot be"),
        ({"name": 3}, "name holds 3"),
    ],
)
def test_a_reader_whose_columns_cannot_be_is_refused(change, words):
    frame = pd.DataFrame(
        {"size": [1.5, None, 3.0] * 10, "day": ["18/11/2026", "03/04/2026", "1/2/2026"] * 10}
    )
    stored = TableReader.fit(frame, dates="dmy").to_dict()
    assert reader_from_dict(stored).to_dict() == stored
    stored["columns"][0] |= change
    with pytest.raises(InputError, match=words):
        reader_from_dict(stored)


def test_a_reader_of_dates_in_no_order_is_refused():
    stored = TableReader.fit(pd.DataFrame({"day": ["18/11/2026", "03/04/2026", "1/2/2026"] * 10})).to_dict()
    stored["columns"][0]["order"] = "mmm"
    with pytest.raises(InputError, match="cannot be"):
        reader_from_dict(stored)


TEXT = "größe,farbe,label\n" + "1.5,röt,ja\n2.5,blau,nein\n" * 50
LATE = "size,colour,label\n" + "1.5,red,yes\n" * 2000 + "2.5,röd,no\n"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (TEXT, "WINDOWS-1252"),
        (LATE, "WINDOWS-1252"),
        (TEXT, "UTF-16"),
        (TEXT, "UTF-16LE"),
        (TEXT, "UTF-16BE"),
        (TEXT, "UTF-32"),
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_text_that_is_not_utf_8_is_told_how_to_become_it(tmp_path, name, text, encoding):
    content = text.encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(DamagedFileError) as caught:
        load(tmp_path / name, label="label")
    told = str(caught.value)
    assert "is not UTF-8 text" in told
    command = re.search(r"iconv -f (\S+) -t UTF-8", told)
    assert len(told) < 300 + len(str(tmp_path))
    # What it says to do works.
    (tmp_path / "new.csv").write_bytes(content.decode(command[1]).encode("utf-8"))
    assert load(tmp_path / "new.csv", label="label").classes == load_text(tmp_path, text).classes


def load_text(folder, text):
    (folder / "sound.csv").write_text(text, encoding="utf-8")
    return load(folder / "sound.csv", label="label")


def test_missing_file_folder_and_double_column(tmp_path):
    with pytest.raises(MissingDataError):
        read_table(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="found a folder"):
        read_table(tmp_path / "folder.csv")
    with pytest.raises(InputError, match="column 'a' twice"):
        TableReader.fit(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,2\n")
    assert list(read_table(tmp_path / "t.csv").columns) == ["a", "b"]


@pytest.mark.parametrize(
    ("ignore", "left"),
    [("note", ["u", "a,b"]), ("note, u", ["a,b"]), ("a,b", ["u", "note"]), (["a,b", "u"], ["note"])],
)
def test_columns_to_ignore_are_named_with_commas_between(ignore, left):
    frame = pd.DataFrame({"u": [1, 2], "y": list("ab"), "note": [5, 6], "a,b": [7, 8]})
    assert from_frame(frame, label="y", ignore=ignore).info["features"] == left


@pytest.mark.parametrize("ignore", ["notte", "u,notte", ["notte"]])
def test_a_column_to_ignore_that_is_not_there_is_refused(ignore):
    frame = pd.DataFrame({"u": [1, 2], "y": list("ab"), "note": [5, 6]})
    with pytest.raises(InputError, match="table has no column 'notte'; did you mean 'note'"):
        from_frame(frame, label="y", ignore=ignore)


def test_a_table_that_is_not_there_is_missing_whatever_its_name(tmp_path):
    for name in ("nothing", "nothing.xlsx", "nothing.csv"):
        with pytest.raises(MissingDataError, match=f"there is no file .*{name}"):
            read_table(tmp_path / name)


@pytest.mark.parametrize(
    ("column", "alone"),
    [
        (["true", "false", "maybe"], "true"),
        (["00501", "A12", "99999"], "00501"),
        (["1.10", "1.2", "beta"], "1.10"),
    ],
)
def test_a_row_is_read_the_same_whatever_stands_beside_it(tmp_path, column, alone):
    rows = [f"{column[i % 3]},{i},{i % 2}" for i in range(12)]
    (tmp_path / "train.csv").write_text("\n".join(["v,x,y", *rows]))
    reader = load_table(tmp_path / "train.csv", label="y").reader
    reader = TableReader.from_dict(json.loads(json.dumps(reader.to_dict())))
    (tmp_path / "one.csv").write_text(f"v,x\n{alone},5\n")
    (tmp_path / "two.csv").write_text(f"v,x\n{alone},5\n{column[2]},5\n")
    one, two = (reader.read(tmp_path / name) for name in ("one.csv", "two.csv"))
    assert one[0].tolist() == two[0].tolist()
    assert one[0, [name.startswith("v=") for name in reader.features]].sum() == 1


@pytest.mark.parametrize(
    ("labels", "values"),
    [
        (["001", "002"], ["001", "002"]),
        (["001", "1"], ["001", "1"]),
        (["1", "2"], [1, 2]),
        (["-1", "1"], [-1, 1]),
        (["1.0", "2.0"], [1, 2]),
        (["true", "false"], [False, True]),
        (["1.10.1", "1.2"], ["1.10.1", "1.2"]),
        (["12345678901234567890", "1"], ["1", "12345678901234567890"]),
    ],
)
def test_labels_of_a_file_are_those_that_stand_there(tmp_path, labels, values):
    rows = [f"{labels[i % 2]},{i}" for i in range(8)]
    (tmp_path / "t.csv").write_text("\n".join(["y,x", *rows]))
    data = load_table(tmp_path / "t.csv", label="y")
    assert data.info["label_values"] == values
    assert [type(v) for v in data.info["label_values"]] == [type(v) for v in values]
    # A second file may have one of them only.
    (tmp_path / "u.csv").write_text(f"y,x\n{labels[0]},1\n")
    data = load_table(tmp_path / "t.csv", label="y", test=tmp_path / "u.csv")
    assert data.test.y.tolist() == [data.train.y[0]]


def test_a_separator_at_the_end_of_each_row_moves_nothing(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("y,a,b\n" + "".join(f"{i % 2},{i},{i / 7:.3f},\n" for i in range(8)))
    data = load_table(path, label="y")
    assert data.info["features"] == ["a", "b"]
    assert data.train.y.tolist() == [0, 1] * 4
    path.write_text("y,a,b\n" + "".join(f"{i % 2},{i},{i / 7:.3f},9\n" for i in range(8)))
    with pytest.raises(DamagedFileError, match="more values than the header has names"):
        load_table(path, label="y")


def test_the_separator_is_known_by_the_end_of_the_name(tmp_path):
    (tmp_path / "my.tsv.csv").write_text("x,y\n1,a\n2,b\n3,a\n")
    assert load_table(tmp_path / "my.tsv.csv", label="y").classes == ("a", "b")


def test_times_in_a_csv_are_times_in_whatever_order_they_are_written(tmp_path):
    days = pd.date_range("2020-01-30", periods=6, freq="D")
    text = "".join(
        f"{day:%Y-%m-%d},{day:%Y-%m-%d %H:%M:%S},{day:%d.%m.%Y},{n % 2}\n" for n, day in enumerate(days)
    )
    (tmp_path / "t.csv").write_text("day,stamp,german,y\n" + text * 2)
    data = load_table(tmp_path / "t.csv", label="y")
    assert [column.kind for column in data.reader.columns] == ["time", "time", "time"]
    for column in (0, 1, 2):
        np.testing.assert_array_equal(data.train.x[:6, column], 86_400.0 * np.arange(6))
    # A file read later: the same numbers, whatever stands in it; what is no such time is named.
    frame = pd.DataFrame({"day": ["2020-02-01"], "stamp": ["2020-02-01T00:00:00Z"], "german": ["01.02.2020"]})
    assert data.reader.read(frame)[0].tolist() == [2 * 86_400.0] * 3
    with pytest.raises(
        InputError, match=r"'day' was a column of times in training, but row 0 has '01\.02\.2020'"
    ):
        data.reader.read(frame.assign(day="01.02.2020"))


def test_many_rare_texts_are_told_or_left_out(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "free": [f"text-{n % 1500}" for n in range(3000)],
            "some": np.where(rng.random(3000) < 0.5, "often", [f"seldom {n % 700}" for n in range(3000)]),
            "y": np.arange(3000) % 2,
        }
    )
    reader = TableReader.fit(frame, label="y")
    assert reader.dropped == {
        "free": "1,500 different single words, the 100 most frequent in 6.7% of the rows"
    }
    (column,) = reader.columns
    assert (column.categories[0], len(column.categories)) == ("often", 100)
    assert column.others == frame["some"].nunique() - 100
    assert TableReader.from_dict(reader.to_dict()) == reader


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz"])
@pytest.mark.parametrize("mark", [";", "|", "\t", ","])
def test_the_separator_is_seen_from_the_header(tmp_path, mark, suffix):
    path = tmp_path / f"t{suffix}"
    rows = [f'size{mark}"a;b,c|d,e;f|g"{mark}y', *(f'"1,{n}"{mark}x{n % 2}{mark}{n % 2}' for n in range(6))]
    opened = gzip.open if suffix.endswith("gz") else open
    with opened(path, "wt") as file:
        file.write("\n".join(rows))
    data = load_table(path, label="y")
    assert data.reader.features == ["size", "a;b,c|d,e;f|g=x0", "a;b,c|d,e;f|g=x1"]
    np.testing.assert_allclose(data.train.x[:, 0], [1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
    np.testing.assert_array_equal(data.reader.read(path), data.train.x)
    file = CsvFile(path, 6)
    assert file.header == ["size", "a;b,c|d,e;f|g", "y"]
    assert file.cells(5) == ["1,5", "x1", "1"]


def test_a_row_that_is_too_long_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,y\n1,2,0\n1,2,1\n1,2,3,0\n")
    with pytest.raises(DamagedFileError, match="line 4 has 4 values, and the header 3 names: mend the line"):
        load_table(path, label="y")


def test_values_that_read_alike_are_one_category():
    frame = pd.DataFrame(
        {"a": pd.Series([1, 1.0, "1", True, None, "x", np.float64(2)] * 2, dtype=object), "y": [0, 1] * 7}
    )
    reader = TableReader.fit(frame, label="y")
    assert reader.features == ["a=1", "a=2", "a=True", "a=x", "a is missing"]
    np.testing.assert_array_equal(reader.read(frame)[:7, 0], [1, 1, 1, 0, 0, 0, 0])
    again = reader.read(pd.DataFrame({"a": ["1", "2", "True", "x", None]}))
    np.testing.assert_array_equal(again, np.eye(5))
    for kind in ("category", object):
        again = reader.read(pd.DataFrame({"a": pd.Series([1.0, 2.0, None], dtype=kind)}))
        np.testing.assert_array_equal(again, np.eye(5)[[0, 1, 4]])
    texts = TableReader.fit(frame.assign(a=pd.Categorical(["01", "1"] * 7)), label="y").columns[0]
    assert texts.text
