import numpy as np
import pytest
import torch

import noisegate as ng
from noisegate.data import Dataset, Split
from noisegate.errors import InputError, MissingDataError
from noisegate.studies import probes
from noisegate.studies.probes.logit_gaps import LABELS, PARTS


@pytest.fixture(scope="module", params=["ce", "fc"])
def case(request):
    data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.3, include_self=False), seed=0)
    fitted = ng.train(data, request.param, "mlp-16", {"epochs": 3}, seed=0, device="cpu")
    return data, fitted, probes.get("logit_gaps")(fitted, data, bins=50)


def gaps(fitted, data, part, label):
    """From the outputs themselves: for these objectives they are the logits."""
    with torch.no_grad():
        logits = fitted.network(torch.from_numpy(data.train.x)).double().numpy()
    columns = {"maximum": logits.argmax(1), "true": data.train.clean, "noisy": data.train.y}[label]
    wrong = data.train.y != data.train.clean
    rows = {"full": wrong | True, "clean": ~wrong, "mislabelled": wrong}[part]
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    picked = [np.take_along_axis(a, columns[:, None], 1)[:, 0] - a.mean(1) for a in (logits, probs)]
    return [values[rows] for values in picked]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("label", LABELS)
def test_histograms_are_those_of_logits_and_probabilities(case, part, label):
    data, fitted, found = case
    place = PARTS.index(part), LABELS.index(label)
    for kind, values in zip(("logit", "prob"), gaps(fitted, data, part, label), strict=True):
        counts, edges = found[f"gap_{kind}_counts"][place], found[f"gap_{kind}_edges"]
        assert counts.sum() == len(values)
        # Rounding may move a value over an edge.
        assert np.abs(np.cumsum(counts) - np.cumsum(np.histogram(values, edges)[0])).max() <= 2
        assert (counts > 0).sum() > 5


def test_parts_add_up_and_edges_reach_all(case):
    _, _, found = case
    for kind in ("logit", "prob"):
        full, clean, wrong = found[f"gap_{kind}_counts"]
        assert (full == clean + wrong).all()
        assert (clean[LABELS.index("true")] == clean[LABELS.index("noisy")]).all()
        assert (wrong[LABELS.index("true")] != wrong[LABELS.index("noisy")]).any()
        assert found[f"gap_{kind}_edges"].shape == (51,)
    assert found["gap_prob_edges"][[0, -1]] == pytest.approx([-0.1, 0.9])


def test_what_it_needs(case):
    data, fitted, _ = case
    with pytest.raises(InputError, match="at least one bin"):
        probes.get("logit_gaps")(fitted, data, bins=0)
    unknown = Dataset("digits", Split(data.train.x, data.train.y), data.test, classes=data.classes)
    with pytest.raises(MissingDataError, match="true labels"):
        probes.get("logit_gaps")(fitted, unknown)
