"""Training where every pixel has a label: augmentation, void, the best epoch by mean IoU, streamed images."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.data.dataset import Dataset, Split
from noisegate.errors import InputError
from noisegate.evaluation.maps import metrics
from noisegate.training.augment import BEYOND, random_scale_and_crop

VOID = -100


def scenes(n=24, side=24, seed=0):
    """Bright squares of two colours before dark ground; the right column is void."""
    rng = np.random.default_rng(seed)
    y = np.zeros((n, side, side), np.int8)
    for image in range(n):
        for label in (1, 2):
            top, left = rng.integers(0, side - 8, 2)
            y[image, top : top + 8, left : left + 8] = label
    colours = np.array([[40, 40, 40], [200, 60, 40], [40, 60, 200]])
    x = colours[y].transpose(0, 3, 1, 2) + rng.integers(-30, 31, (n, 3, side, side))
    y[:, :, -1] = VOID
    return np.clip(x, 0, 255).astype(np.uint8), y


def data_of(n=24, seed=0):
    return Dataset(
        "scenes",
        Split(*scenes(n, seed=seed)),
        Split(*scenes(8, seed=seed + 1)),
        Split(*scenes(8, seed=seed + 2)),
        classes=("ground", "red", "blue"),
    )


def tiny(input_shape, n_outputs):
    """Maps at half the height and width."""
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 12, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(12, n_outputs, 1)
    )


RECIPE = {"epochs": 12, "batch_size": 6, "lr": 0.02, "optimizer": "adam", "schedule": "poly"}


@pytest.mark.parametrize("method", ["ce", "het", "gce", "fc", "ln"])
def test_methods_learn_maps(method):
    params = {"n_samples": 8, "n_samples_eval": 32} if method == "het" else {}
    recipe = RECIPE | {"clip_norm": 1.0}
    fitted = ng.train(data_of(), ng.methods.get(method, **params), tiny, recipe, device="cpu")
    assert fitted.metrics["test_mean_iou"] > (0.4 if method == "ln" else 0.6)
    assert fitted.metrics["test_interior_accuracy"] >= fitted.metrics["test_boundary_accuracy"] - 0.05
    assert {"validation_mean_iou", "validation_accuracy"} <= fitted.history[0][-1].keys()
    assert set(fitted.metrics) >= {"test_iou_0", "test_iou_1", "test_iou_2", "test_ece", "test_brier"}


def test_predictions_are_maps_of_any_size_and_survive_saving(tmp_path):
    data = data_of()
    fitted = ng.train(data, "ce", tiny, RECIPE | {"epochs": 3}, device="cpu")
    probs = fitted.predict_proba(data.test.x)
    assert probs.shape == (8, 3, 24, 24)
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-6)
    found = metrics(probs, data.test.y)
    assert found["mean_iou"] == pytest.approx(fitted.metrics["test_mean_iou"])
    assert found["log_likelihood"] == pytest.approx(fitted.metrics["test_log_likelihood"], rel=1e-5)
    assert fitted.predict_proba(np.zeros((1, 3, 30, 18), np.uint8)).shape == (1, 3, 30, 18)
    fitted.save(tmp_path / "model")
    again = ng.Fitted.load(tmp_path / "model", network=tiny)
    np.testing.assert_array_equal(again.predict_proba(data.test.x), probs)


def test_streamed_images_train_like_resident_ones():
    class Lazy:
        def __init__(self, x):
            self.x = x
            self.shape, self.dtype = x.shape[1:], x.dtype

        def __len__(self):
            return len(self.x)

        def fetch(self, index):
            return self.x[index]

        def take(self, index):
            return Lazy(self.x[index])

    data = data_of()
    lazy = dataclasses.replace(data, train=Split(Lazy(data.train.x), data.train.y))
    recipe = RECIPE | {"epochs": 2, "flip": True, "scales": (0.5, 1.0, 1.5)}
    runs = [ng.train(each, "ce", tiny, recipe, device="cpu") for each in (data, lazy)]
    assert runs[0].metrics["test_log_likelihood"] == runs[1].metrics["test_log_likelihood"]


def test_the_best_epoch_by_mean_iou_is_kept():
    recipe = RECIPE | {"keep": "best", "monitor": "mean_iou", "lr": 0.3}
    fitted = ng.train(data_of(), "ce", tiny, recipe, device="cpu")
    scores = [epoch["validation_mean_iou"] for epoch in fitted.history[0]]
    tested = [epoch["test_mean_iou"] for epoch in fitted.history[0]]
    assert fitted.metrics["test_mean_iou"] == tested[int(np.argmax(scores))]


def test_void_pixels_teach_nothing():
    data = data_of()
    x = data.train.x.copy()
    y = data.train.y.copy()
    y[:, :12] = VOID
    changed = data.train.y.copy()
    changed[:, :12] = VOID
    runs = []
    for labels in (y, changed):
        part = dataclasses.replace(data, train=Split(x, labels))
        runs.append(ng.train(part, "ce", tiny, RECIPE | {"epochs": 1}, device="cpu").metrics)
    assert runs[0]["test_log_likelihood"] == runs[1]["test_log_likelihood"]
    whole = ng.train(data, "ce", tiny, RECIPE | {"epochs": 1}, device="cpu").metrics
    assert whole["test_log_likelihood"] != runs[0]["test_log_likelihood"]


def test_noise_on_masks_and_what_is_learnt_of_it():
    noise = ng.noise.MapSegments(0.3, "swap")
    noisy = dataclasses.replace(data_of(), validation=None).corrupt(noise, seed=0)
    assert noisy.noise_report().rate > 0.02
    fitted = ng.train(noisy.hold_out(4), "ce", tiny, RECIPE, device="cpu")
    assert fitted.metrics["train_memorised"] + fitted.metrics["train_recovered"] <= 1
    assert fitted.metrics["train_clean_accuracy"] > 0.7
    assert "validation_clean_mean_iou" in fitted.metrics


def test_methods_for_single_labels_are_refused():
    for method in ("co-teaching", "mixup", "causalnl"):
        with pytest.raises(InputError, match="not one for every pixel"):
            ng.train(data_of(), method, tiny, RECIPE, device="cpu")


def test_labels_outside_the_classes_are_refused():
    data = data_of()
    y = data.train.y.copy()
    y[0, 0, 0] = 3
    with pytest.raises(InputError, match=r"training labels must lie in 0\.\.2, got 0\.\.3"):
        ng.train(dataclasses.replace(data, train=Split(data.train.x, y)), "ce", tiny, RECIPE, device="cpu")


# Augmentation.


def test_images_and_masks_are_scaled_and_cut_alike():
    torch.manual_seed(0)
    y = torch.from_numpy(scenes(40, 32)[1]).long().clamp_min(0)
    x = (y.unsqueeze(1).expand(-1, 3, -1, -1) * 100).to(torch.uint8)
    for scales in ((1.0,), (2.0,), (0.5, 0.75, 1.25, 2.0)):
        pixels, labels = random_scale_and_crop(x, y, scales, (20, 28))
        assert pixels.shape == (40, 3, 20, 28)
        assert labels.shape == (40, 20, 28)
        seen = labels != VOID
        assert (pixels[:, 0][~seen] == BEYOND).all()
        said = (pixels[:, 0] * 255 / 100).round().long()
        # Between two classes colours are mixed: there the nearest label need not be the rounded colour.
        assert (said == labels)[seen].double().mean() > 0.93
        if scales == (1.0,):
            assert torch.equal(said, labels)
            assert seen.all()
        if scales == (2.0,):
            assert seen.all()


def test_a_window_of_scale_one_is_a_window():
    torch.manual_seed(1)
    x = torch.randint(0, 256, (30, 3, 16, 18), dtype=torch.uint8)
    y = torch.randint(0, 5, (30, 16, 18), dtype=torch.int8)
    pixels, labels = random_scale_and_crop(x, y, (1.0,), (10, 10))
    assert labels.dtype == torch.int8
    for image in range(30):
        found = [
            (top, left)
            for top in range(7)
            for left in range(9)
            if torch.equal(y[image, top : top + 10, left : left + 10], labels[image])
        ]
        assert found
        top, left = found[0]
        expected = x[image, :, top : top + 10, left : left + 10] / 255
        torch.testing.assert_close(pixels[image], expected)


def test_scaling_up_by_two_is_torchs_interpolation():
    x = torch.rand(1, 1, 8, 8)
    y = torch.zeros(1, 8, 8, dtype=torch.int64)
    pixels, _ = random_scale_and_crop(x, y, (2.0,), (16, 16))
    expected = nn.functional.interpolate(x, (16, 16), mode="bilinear", align_corners=False)
    torch.testing.assert_close(pixels, expected, rtol=0, atol=1e-5)


def test_a_step_on_maps_can_be_captured(capture_guard):
    x, y = (torch.from_numpy(each) for each in scenes(4))
    with capture_guard() as guard:
        random_scale_and_crop(x, y, (0.5, 1.0, 2.0), (16, 16))
    assert len(guard.seen) > 10


def test_the_poly_schedule_and_the_names_of_stored_runs():
    recipe = ng.Recipe(epochs=None, steps=10, lr=2.0, schedule="poly", power=0.5)
    rates = recipe.learning_rates(3)
    assert rates == pytest.approx([2 * (1 - step / 10) ** 0.5 for step in range(10)])
    assert ng.Recipe.from_dict(recipe.to_dict()) == recipe
    # Fields that came later are written only where they are used: keys of stored runs stay what they were.
    assert {"power", "scales"} & ng.Recipe().to_dict().keys() == set()
    with pytest.raises(InputError, match="scales must be positive"):
        ng.Recipe(scales=(0.5, 0))


# Networks of other libraries.


class Wrapped(nn.Module):
    """A network that returns a mapping, as torchvision's segmentation networks do."""

    def __init__(self, input_shape, n_outputs):
        super().__init__()
        self.body = tiny(input_shape, n_outputs)

    def forward(self, x):
        maps = self.body(x)
        return {"out": maps, "aux": maps.mean()}


def test_a_network_may_return_a_mapping():
    torch.manual_seed(0)
    recipe = RECIPE | {"epochs": 1}
    plain, wrapped = (ng.train(data_of(), "ce", each, recipe, device="cpu") for each in (tiny, Wrapped))
    expected = plain.metrics["test_log_likelihood"]
    assert wrapped.metrics["test_log_likelihood"] == pytest.approx(expected, rel=1e-5)


def test_a_network_that_returns_no_tensor_is_refused():
    class Pair(Wrapped):
        def forward(self, x):
            return (self.body(x), None)

    with pytest.raises(InputError, match="the network returned tuple; expected a tensor"):
        ng.train(data_of(), "ce", Pair, RECIPE | {"epochs": 1}, device="cpu")


def segformer(input_shape, n_outputs):
    """A SegFormer of random weights, its decoder at a quarter of the height and width."""
    transformers = pytest.importorskip("transformers")
    config = transformers.SegformerConfig(
        num_channels=input_shape[0],
        num_labels=n_outputs,
        depths=[1, 1, 1, 1],
        hidden_sizes=[16, 24, 32, 48],
        decoder_hidden_size=32,
        num_attention_heads=[1, 1, 2, 2],
        sr_ratios=[2, 2, 1, 1],  # the usual 8, 4, 2, 1 need larger images
        classifier_dropout_prob=0.0,
    )
    return transformers.SegformerForSemanticSegmentation(config)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["ce", "het"])
def test_a_segformer_of_transformers(method, tmp_path):
    pytest.importorskip("transformers")
    params = {"n_samples": 8, "n_samples_eval": 32} if method == "het" else {}
    recipe = RECIPE | {"epochs": 25, "lr": 3e-3, "clip_norm": 1.0}
    fitted = ng.train(data_of(), ng.methods.get(method, **params), segformer, recipe, device="cpu")
    assert fitted.metrics["test_mean_iou"] > 0.5
    x = data_of().test.x
    assert fitted.predict_proba(x).shape == (8, 3, 24, 24)
    fitted.save(tmp_path / "model")
    again = ng.Fitted.load(tmp_path / "model", network=segformer)
    np.testing.assert_array_equal(again.predict_proba(x), fitted.predict_proba(x))
