"""Several annotators: against Dawid and Skene's own algorithm, cleanlab, and answers drawn from the model."""

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from cleanlab.multiannotator import get_label_quality_multiannotator

from noisegate.errors import InputError
from noisegate.quality import consensus, read_answers

N, A, K, EACH = 600, 60, 4, 4


def drawn(seed=0):
    """True labels, answers (N, A) with -1 for none, and how often each annotator knows the label."""
    rng = np.random.default_rng(seed)
    y, knows = rng.integers(K, size=N), rng.uniform(0.2, 0.95, A)
    answers = np.full((N, A), -1)
    for row in range(N):
        for person in rng.choice(A, EACH, replace=False):
            answers[row, person] = y[row] if rng.random() < knows[person] else rng.integers(K)
    return y, answers, knows


def dawid_skene(answers):
    """The algorithm of 1979, written with a one-hot tensor: posteriors (N, K)."""
    hot = (answers[:, :, None] == np.arange(K)).astype(float)
    posterior = hot.sum(1) / hot.sum((1, 2))[:, None]
    for _ in range(300):
        confusion = np.einsum("nk,nal->akl", posterior, hot) + 1e-6
        confusion /= confusion.sum(2, keepdims=True)
        joint = np.log(posterior.mean(0)) + np.einsum("nal,akl->nk", hot, np.log(confusion))
        posterior = np.exp(joint - joint.max(1, keepdims=True))
        posterior /= posterior.sum(1, keepdims=True)
    return posterior


def test_at_least_as_accurate_as_dawid_and_skene_and_the_majority():
    ours, theirs, votes = [], [], []
    for seed in range(4):
        y, answers, _ = drawn(seed)
        ours.append((consensus(answers).labels == y).mean())
        theirs.append((dawid_skene(answers).argmax(1) == y).mean())
        counts = (answers[:, :, None] == np.arange(K)).sum(1)
        votes.append((counts.argmax(1) == y).mean())
    assert np.mean(ours) >= max(np.mean(theirs), np.mean(votes))


def test_many_answers_an_annotator_give_dawid_and_skenes_posteriors():
    rng = np.random.default_rng(0)
    y = rng.integers(K, size=3000)
    answers = np.stack(
        [np.where(rng.random(3000) < q, y, rng.integers(K, size=3000)) for q in (0.9, 0.7, 0.5)], 1
    )
    found = consensus(answers)
    apart = np.abs(found.probs - dawid_skene(answers))
    assert apart.mean() < 0.01
    assert (found.labels == dawid_skene(answers).argmax(1)).mean() > 0.98
    true = [[np.mean(answers[y == i, a] == i) for i in range(K)] for a in range(3)]
    np.testing.assert_allclose(found.confusion[:, range(K), range(K)], true, atol=0.04)
    np.testing.assert_allclose(found.accuracy, np.mean(true, axis=1), atol=0.03)
    np.testing.assert_allclose(found.confusion.sum(2), 1)


def test_quality_is_a_probability_that_means_something():
    y, answers, knows = drawn()
    found = consensus(answers)
    right = found.labels == y
    assert found.quality.mean() == pytest.approx(right.mean(), abs=0.06)
    assert right[found.quality > 0.95].mean() > 0.93
    assert np.corrcoef(found.accuracy, knows)[0, 1] > 0.7
    np.testing.assert_array_equal(found.n_answers, (answers >= 0).sum(0))


def test_a_classifiers_probabilities_help_as_in_cleanlab():
    y, answers, _ = drawn()
    rng = np.random.default_rng(1)
    guess = np.where(rng.random(N) < 0.8, y, rng.integers(K, size=N))
    probs = np.full((N, K), 0.1) + np.eye(K)[guess] * 0.6
    ours = consensus(answers, probs=probs)
    theirs = get_label_quality_multiannotator(
        pd.DataFrame(np.where(answers < 0, np.nan, answers)), probs, verbose=False
    )["label_quality"]["consensus_label"]
    accuracy = (ours.labels == y).mean()
    assert accuracy > (consensus(answers).labels == y).mean()
    assert accuracy >= (theirs.to_numpy() == y).mean()
    # Probabilities that say nothing change nothing.
    flat = consensus(answers, probs=np.full((N, K), 1 / K))
    np.testing.assert_allclose(flat.probs, consensus(answers).probs, atol=1e-6)


def test_tables_and_arrays_say_the_same():
    _, answers, _ = drawn()
    row, person = np.nonzero(answers >= 0)
    names = np.array(["ant", "bee", "cat", "dog"])
    long = pd.DataFrame({"row": row, "worker": person, "label": names[answers[row, person]]}).sample(
        frac=1, random_state=0
    )
    expected = consensus(answers)
    for table in (
        long,
        polars.from_pandas(long),
        pa.Table.from_pandas(long),
        long.set_axis(list("abc"), axis=1),
    ):
        found = consensus(table)
        np.testing.assert_allclose(found.probs, expected.probs, atol=1e-8)
        np.testing.assert_array_equal(found.labels, names[expected.labels])
    wide = np.where(answers < 0, None, names[answers])
    np.testing.assert_allclose(consensus(wide).probs, expected.probs, atol=1e-12)


def test_rows_without_an_answer_have_the_class_frequencies():
    answers = np.array([[0, 0], [1, 1], [1, 1], [np.nan, np.nan]])
    found = consensus(answers)
    np.testing.assert_allclose(found.probs[3], found.probs.mean(0), atol=1e-4)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([1, 2], r"an array \(rows, annotators\) or a table, got an array of shape \(2,\)"),
        ([[None, None]], "there are no answers"),
        ([["a", "a"], ["a", None]], "at least two different labels among the answers, found only 'a'"),
        (
            pd.DataFrame({"row": [0, 0, 1], "annotator": [7, 7, 7], "label": ["a", "b", "a"]}),
            "annotator 7 has answered row 0 more than once",
        ),
        (
            pd.DataFrame({"row": [0], "label": ["a"]}),
            "expected a table with the columns row, annotator and label",
        ),
    ],
)
def test_answers_that_cannot_be_used(answers, message):
    with pytest.raises(InputError, match=message):
        consensus(answers)


def test_rows_classes_and_probabilities_are_checked():
    table = pd.DataFrame({"row": [0, 5], "annotator": [0, 0], "label": ["a", "b"]})
    with pytest.raises(InputError, match="rows of the answers must be whole numbers from 0 to 2, got 5"):
        read_answers(table, n_rows=3)
    with pytest.raises(InputError, match="unknown label 'b' in an answer to row 5"):
        consensus(table, classes=["a", "c"])
    with pytest.raises(InputError, match=r"\(2, 2\), got \(2, 3\)"):
        consensus(table, probs=np.full((2, 3), 1 / 3))
