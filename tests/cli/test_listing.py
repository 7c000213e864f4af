"""`noisegate list`."""

import pytest

from noisegate.methods import METHODS
from noisegate.networks import NETWORKS
from noisegate.noise import NOISES
from noisegate.objectives import OBJECTIVES


@pytest.mark.parametrize(
    ("what", "names", "words"),
    [
        ("methods", METHODS, ["min_scale=0.5", "Englesson"]),
        ("objectives", OBJECTIVES, ["temperature=1.0", "Logistic-Normal Likelihoods for"]),
        ("noises", NOISES, ["include_self=True", "Xia et al."]),
        ("networks", NETWORKS, ["nine 3x3 convolutions"]),
    ],
)
def test_every_entry_has_its_line_and_nothing_is_cut_off(call, what, names, words):
    code, out, err = call("list", what)
    assert (code, err) == (0, "")
    first_words = {line.split()[0] for line in out.splitlines() if line.split()}
    assert set(names) <= first_words
    for word in words:
        assert word in out
    assert "…" not in out
