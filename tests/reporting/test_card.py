"""The model card says what is in the folder, and leaves a README of the user's own alone."""

import numpy as np
import pandas as pd
import pytest

import noisegate as ng
from noisegate.reporting.card import model_card


@pytest.fixture(scope="module")
def fitted():
    frame = pd.DataFrame(
        {"a|b": np.arange(20) % 7, "same": 1, "price": ["1,50 €", "2,25 €"] * 10, "y": ["no", "yes"] * 10}
    )
    data = ng.data.load(frame, label="y")
    fitted = ng.train(data, "ce", "linear", {"epochs": 1}, device="cpu", progress=False)
    fitted.extras |= {
        "probs": np.tile([0.8, 0.2], (20, 1)),
        "given": np.arange(20) % 4 // 3,
        "noise_rate": 0.125,
        "is_label_issue": np.arange(20) == 3,
    }
    return fitted


def test_data_columns_noise_method_metrics_and_versions(fitted, tmp_path):
    fitted.save(tmp_path)
    card = (tmp_path / "README.md").read_text()
    for line in (
        "| column of labels | y |",
        "| classes | 2: no, yes |",
        "| a\\|b | number |",
        "| same | not used: constant |",
        "| price | number (decimal comma, €) |",
        "| rows | 20 training |",
        f"| noisegate | {ng.__version__} |",
        "| estimated share of wrong labels | 12.5% |",
        "| labels that look wrong | 1 of 20 |",
        "| accuracy on given labels of unseen rows | 0.7500 |",
        "| accuracy on true labels, estimated | about 0.83 |",  # (.75 - .125) / (1 - .25)
        "| network | linear |",
        "| seed | 0 |",
    ):
        assert line in card
    assert "## Versions" in card


def test_a_readme_of_the_users_own_stays(fitted, tmp_path):
    (tmp_path / "README.md").write_text("# mine\n")
    fitted.save(tmp_path)
    assert (tmp_path / "README.md").read_text() == "# mine\n"
    (tmp_path / "README.md").unlink()
    fitted.save(tmp_path)
    fitted.save(tmp_path)
    assert (tmp_path / "README.md").read_text().startswith("---\nlibrary_name: noisegate\n")


def test_what_is_not_known_is_not_said():
    card = model_card({"classes": [0, 1]}, {})
    assert "Noise found" not in card
    assert "Metrics" not in card


def test_a_model_of_masks_is_called_one():
    card = model_card({"classes": ["sky", "road"], "reader": {"kind": "maps"}}, {})
    assert "- image-segmentation\n" in card
    assert "# A segmentation network trained on labels" in card
