"""The probe that measures how well wrong labels are found."""

import numpy as np
import pytest
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.metrics import average_precision_score, f1_score, precision_score, recall_score, roc_auc_score

import noisegate as ng
from noisegate.errors import InputError, MissingDataError
from noisegate.fitted import Fitted
from noisegate.quality import judge
from noisegate.studies import probes


@pytest.fixture(scope="module")
def seen():
    """(data, probabilities, a signal): made up, of labels of which 30 % are wrong."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 4, 800)
    data = ng.data.load((rng.normal(size=(800, 2)).astype(np.float32), true)).corrupt(
        ng.noise.Symmetric(0.4), seed=0
    )
    logits = rng.normal(size=(800, 4))
    logits[np.arange(800), true] += 2.5
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return data, probs, data.train.wrong + rng.normal(size=800)


def probe(data, **extras):
    return probes.get("detection")(Fitted(None, ng.CrossEntropy(4), **extras), data)


def test_numbers_are_those_of_scikit_learn_and_cleanlab(seen):
    data, probs, signal = seen
    found = probe(data, probs=probs, signal_residual=signal)
    wrong, y = data.train.wrong, data.train.y
    ours = judge(probs, y)
    theirs = find_label_issues(y, probs, n_jobs=1)
    doubt = 1 - get_label_quality_scores(y, probs)
    n = int(ours.is_label_issue.sum())
    first = np.isin(np.arange(800), np.argsort(-signal, kind="stable")[:n])
    for rule, flags, suspicion in (
        ("look", ours.is_label_issue, ours.wrong),
        ("sure", ours.is_sure, ours.wrong),
        ("cleanlab", theirs, doubt),
        ("argmax", probs.argmax(1) != y, doubt),
        ("residual", first, signal),
    ):
        expected = {
            "precision": precision_score(wrong, flags),
            "recall": recall_score(wrong, flags),
            "f1": f1_score(wrong, flags),
            "auroc": roc_auc_score(wrong, suspicion),
            "average_precision": average_precision_score(wrong, suspicion),
        }
        assert {name: found[f"{rule}_{name}"] for name in expected} == pytest.approx(expected), rule
    assert found["wrong_share"] == wrong.mean()
    assert found["rate_estimate"] == pytest.approx(wrong.mean(), abs=0.05)


def test_what_was_said_in_training_comes_before_the_last_probabilities(seen):
    data, probs, _ = seen
    said = probe(data, said=probs, probs=np.full((800, 4), 0.25))
    assert said == probe(data, probs=probs)


def test_without_wrong_labels_there_is_no_recall(seen):
    data, probs, _ = seen
    clean = ng.data.load((data.train.x, data.train.clean), clean=data.train.clean)
    found = probe(clean, probs=probs)
    assert found["wrong_share"] == 0
    assert found["look_f1"] == 0
    assert "look_recall" not in found
    assert "look_auroc" not in found


def test_what_it_needs_is_said(seen):
    data, probs, _ = seen
    with pytest.raises(InputError, match="a method that leaves probabilities of the training rows"):
        probe(data)
    with pytest.raises(InputError, match="a method that leaves"):
        probe(data, probs=probs[:5])
    with pytest.raises(MissingDataError, match="needs the true labels"):
        probe(ng.data.load((data.train.x, data.train.y)), probs=probs)
