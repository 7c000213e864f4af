"""Columns of texts: what they become, that labels are not needed, and that it survives being stored."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.sparse.linalg import svds
from sklearn.linear_model import LogisticRegression

from noisegate.data import TableReader, reader_from_dict
from noisegate.data.tables import text as module
from noisegate.data.tables.frames import as_frame
from noisegate.data.tables.text import TextColumn
from noisegate.errors import InputError

GOOD, BAD = ["lovely", "great", "fine", "superb", "moving"], ["dull", "poor", "bad", "weak", "tired"]
FILLERS = ["the", "film", "a", "story", "of", "with", "cast", "and", "plot", "scene"]


@pytest.fixture(scope="module")
def reviews():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    texts = [
        " ".join([*rng.choice(FILLERS, 8), *rng.choice(GOOD if label else BAD, 2)]) + f" {n}"
        for n, label in enumerate(y)
    ]
    return pd.DataFrame({"review": texts}), y


def test_numbers_that_tell_the_texts_apart(reviews):
    frame, y = reviews
    reader = TableReader.fit(frame[:200])
    (column,) = reader.columns
    assert column.kind == "text"
    assert len(reader.features) == column.size <= 200
    x = reader.read(frame)
    assert x.dtype == np.float32
    assert LogisticRegression(max_iter=500).fit(x[:200], y[:200]).score(x[200:], y[200:]) > 0.95


def test_the_space_is_that_of_the_leading_singular_vectors(reviews):
    frame, _ = reviews
    table = as_frame(frame)
    column = TextColumn.learn("review", table.column("review"), size=20)
    counts = module._counts(frame["review"].tolist())[:, column.buckets]
    weighted = module._weighted(counts, column.idf, column.buckets)
    # Every text has length one, half of it from its words.
    np.testing.assert_allclose(weighted.multiply(weighted).sum(axis=1), 1, rtol=1e-5)
    _, _, exact = svds(weighted.astype(np.float64), k=20, random_state=0)
    ours = column.projection * column.step
    # A rotation of an orthonormal basis: the singular values of the products are ones.
    agreement = np.linalg.svd(exact @ ours, compute_uv=False)
    assert agreement[:-1].min() > 0.97  # the last one is hardly longer than those that are left out


def test_the_same_texts_teach_the_same_numbers_and_no_label_is_seen(reviews):
    frame, y = reviews
    one = TableReader.fit(frame.assign(y=y), label="y").read(frame)
    two = TableReader.fit(frame.assign(y=1 - y), label="y").read(frame)
    np.testing.assert_array_equal(one, two)


def test_what_was_learnt_survives_json_and_arrays(reviews):
    frame, _ = reviews
    reader = TableReader.fit(frame)
    stored = json.loads(json.dumps(reader.to_dict(), allow_nan=False))
    assert len(json.dumps(stored)) < 1000
    again = reader_from_dict(stored, reader.arrays())
    np.testing.assert_array_equal(again.read(frame), reader.read(frame))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("idf", lambda a: a[:-1]),
        ("projection", lambda a: a[:, :-1]),
        ("step", lambda a: a * np.nan),
        ("buckets", lambda a: a + 2**20),
        ("buckets", lambda a: -1 - a),
    ],
)
def test_arrays_that_do_not_fit_each_other_are_refused(reviews, name, change):
    reader = TableReader.fit(reviews[0])
    arrays = reader.arrays()
    arrays[f"0.{name}"] = change(arrays[f"0.{name}"])
    with pytest.raises(InputError, match=name):
        reader_from_dict(reader.to_dict(), arrays)


def test_gaps_empty_texts_and_new_words(reviews):
    frame, _ = reviews
    reader = TableReader.fit(frame.assign(review=frame["review"].where(frame.index % 7 != 0, None)))
    assert reader.features[-1] == "review is missing"
    x = reader.read(pd.DataFrame({"review": ["ŋŋŋ ʘʘʘ", None, "", "great film"]}))
    assert np.abs(x[:3, :-1]).max() == 0
    assert np.abs(x[3, :-1]).max() > 0.01
    assert x[:, -1].tolist() == [0, 1, 1, 0]


def test_blocks_of_rows_change_nothing(reviews, monkeypatch):
    frame, _ = reviews
    reader = TableReader.fit(frame)
    whole = reader.read(frame)
    monkeypatch.setattr(module, "_ROWS", 37)
    np.testing.assert_allclose(reader.read(frame), whole, atol=1e-7)


def test_more_texts_become_more_numbers(monkeypatch):
    monkeypatch.setattr("noisegate.data.tables.text.LEAST_SIZE", 20)
    monkeypatch.setattr("noisegate.data.tables.text.MOST_SIZE", 40)
    rng = np.random.default_rng(0)
    words = np.array([f"word{n}" for n in range(200)])
    texts = pa.array([" ".join(rng.choice(words, 8)) for _ in range(300)])
    sizes = [TextColumn.learn("t", pa.chunked_array([texts[:n]])).size for n in (60, 150, 300)]
    assert sizes == [20, 30, 40]
    assert TextColumn.learn("t", pa.chunked_array([texts]), size=7).size == 7
