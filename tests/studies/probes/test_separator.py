import numpy as np
import pytest

import noisegate as ng
from noisegate.errors import InputError
from noisegate.studies import probes


@pytest.fixture(scope="module")
def data():
    return ng.data.load("gaussians", n=60, n_test=20).corrupt(ng.noise.Asymmetric(0.2, {0: 1}), seed=0)


@pytest.mark.parametrize("normalize", ["auto", "none"])
def test_the_classifier_is_undecided_on_the_line(data, normalize):
    fitted = ng.train(data, "ce", "linear", {"epochs": 5, "normalize": normalize}, seed=0, device="cpu")
    found = probes.get("separator")(fitted, data, points=30)
    w, b, t = found["separator_normal"], found["separator_constant"][0], found["separator_offset"]
    foot = -b * w / (w @ w)
    line = np.array([foot, foot + np.array([-w[1], w[0]]), [t, t]])
    np.testing.assert_allclose(fitted.predict_proba(line), 0.5, atol=1e-6)
    # Class 1 is where the normal points to.
    assert fitted.predict_proba(foot[None] + w)[0, 1] > 0.5
    assert (found["separator_points"] == data.train.x[:30]).all()
    assert (found["separator_given"] == data.train.y[:30]).all()
    assert (found["separator_clean"] == data.train.clean[:30]).all()


@pytest.mark.parametrize(("name", "network"), [("gaussians", "mlp-4"), ("digits", "linear")])
def test_it_needs_a_line(name, network):
    data = ng.data.load(name)
    fitted = ng.train(data, "ce", network, {"epochs": 1}, seed=0, device="cpu")
    with pytest.raises(InputError, match="the probe 'separator' needs"):
        probes.get("separator")(fitted, data)
