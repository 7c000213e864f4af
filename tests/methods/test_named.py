import json

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

import noisegate as ng
from noisegate.errors import InputError, UnknownNameError
from noisegate.methods import METHODS
from noisegate.methods.base import Method
from noisegate.methods.named import symmetric_transition

NAMES = ("ce", "ls", "fc", "bc", "gce", "bi-tempered", "nan", "bootstrap", "het", "het-tau", "het-full", "ln")


@pytest.fixture(scope="module")
def blobs():
    """Three Gaussian blobs, a fifth of their labels wrong: inputs, given labels, clean labels."""
    x, clean = make_blobs(240, centers=[[0, 3], [3, -2], [-3, -2]], cluster_std=0.7, random_state=0)
    given = ng.noise.Symmetric(0.3).corrupt(clean, n_classes=3, seed=0)
    return x, given, clean


def fit(blobs, name, epochs=2, **params):
    x, given, _ = blobs
    clf = ng.NoisyLabelClassifier(method=name, network="mlp-64", random_state=0, device="cpu")
    clf.set_params(recipe={"epochs": epochs, "batch_size": 40, "lr": 0.02, "schedule": "constant"})
    return clf.set_params(**{f"method__{key}": value for key, value in params.items()}).fit(x, given)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_trains(name, blobs):
    x, given, clean = blobs
    assert (given != clean).mean() > 0.15
    quick = {"n_samples": 100} if name.startswith("het") else {}
    assert (fit(blobs, name, epochs=25, **quick).predict(x) == clean).mean() > 0.95


PARAMETERS = {
    "ls": ({"alpha": 0.4}, ng.LabelSmoothing),
    "gce": ({"q": 0.3}, ng.GCE),
    "bi-tempered": ({"t1": 0.5, "t2": 2.0}, ng.BiTempered),
    "nan": ({"sigma": 0.2}, ng.NoiseAgainstNoise),
    "bootstrap": ({"beta": 0.6, "kind": "soft"}, ng.Bootstrap),
    "het": ({"n_samples": 50, "n_samples_eval": 60}, ng.Heteroscedastic),
    "het-tau": ({"temperature": 3.0, "n_samples": 50}, ng.Heteroscedastic),
    "het-full": ({"rank": 2, "temperature": 5.0, "n_samples": 50}, ng.Heteroscedastic),
    "ln": ({"temperature": 0.5, "min_scale": 1.0}, ng.LogisticNormal),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_reach_the_objective(name, blobs):
    params, kind = PARAMETERS[name]
    objective = fit(blobs, name, **params).fitted_.objective
    assert type(objective) is kind
    assert {key: getattr(objective, key) for key in params} == params


def test_the_three_heteroscedastic_names_differ():
    chosen = {name: METHODS[name].defaults for name in ("het", "het-tau", "het-full")}
    kept = ("temperature", "covariance", "rank")
    assert {name: tuple(d[k] for k in kept) for name, d in chosen.items()} == {
        "het": (1.0, "diagonal", None),
        "het-tau": (10.0, "diagonal", None),
        "het-full": (10.0, "low-rank", 1),
    }
    assert len({METHODS[name].summary for name in NAMES}) == len(NAMES)


def test_the_symmetric_transition_redraws_over_all_classes():
    expected = ng.noise.Symmetric(0.3, include_self=True).transition(4)
    np.testing.assert_allclose(symmetric_transition(4, 0.3).numpy(), expected, atol=1e-15)


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_fc_and_bc_correct_by_the_symmetric_matrix_of_the_datas_classes(alpha, blobs):
    outputs, y = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    log_p = outputs.log_softmax(1)
    forward = fit(blobs, "fc", alpha=alpha).fitted_
    mixed = (1 - alpha) * log_p.exp()[range(6), y] + alpha / 3
    torch.testing.assert_close(forward.objective(outputs, y, reduction="none"), -mixed.log())
    backward = fit(blobs, "bc", alpha=alpha).fitted_
    # Table 1 of the label-smoothing paper.
    matrix = (torch.eye(3) - alpha / 3) / (1 - alpha)
    torch.testing.assert_close(
        backward.objective(outputs, y, reduction="none"), -(matrix.double()[y] * log_p).sum(1)
    )
    for fitted in (forward, backward):
        torch.testing.assert_close(fitted.extras["transition"], symmetric_transition(3, alpha))


def test_fc_and_bc_over_another_base(blobs):
    forward = fit(blobs, "fc", base="BiTempered").fitted_.objective
    assert isinstance(forward.base, ng.BiTempered)
    backward = fit(blobs, "bc", base="GCE", alpha=0.2).fitted_.objective
    outputs = torch.randn(4, 3)
    mixed = ng.GCE(3).costs(outputs) @ torch.linalg.inv(symmetric_transition(3, 0.2)).float().T
    torch.testing.assert_close(backward.costs(outputs), mixed)


def test_bases_and_rates_that_make_no_sense_are_refused(blobs):
    with pytest.raises(
        InputError, match="SymmetricForward does not go with LogisticNormal: it corrects prob"
    ):
        fit(blobs, "fc", base="LogisticNormal")
    with pytest.raises(InputError, match="SymmetricBackward does not go with LogisticNormal: it subtracts"):
        fit(blobs, "bc", base="LogisticNormal")
    with pytest.raises(UnknownNameError, match="unknown objective 'GEC'"):
        fit(blobs, "bc", base="GEC")
    for alpha in (-0.1, 1.0):
        with pytest.raises(InputError, match=r"alpha must lie in \[0, 1\)"):
            fit(blobs, "fc", alpha=alpha)


@pytest.mark.parametrize("name", [*NAMES, "mixup", "distillation", "elr", "dividemix"])
def test_settings_survive_json(name):
    method = ng.methods.get(name)
    again = Method.from_settings(json.loads(json.dumps(method.settings())))
    assert again.settings() == method.settings()
    assert again.get_params() == method.get_params()
