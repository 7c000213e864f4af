"""Section 5.2 of the temperature paper: segmentation; and CamVid, which can be run without a cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from noisegate.studies.laptop import Laptop, reduced
from noisegate.studies.settings import RunSettings
from noisegate.studies.study import Cell, Figure, Number, Selection, Smoke, Study, Value

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

    from noisegate.studies.results import Results

PAPER = "Collier et al. 2020, Softmax Approximation"
CHOSEN = 0.05
TEMPERATURES = (0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
HOMOSCEDASTIC, SAMPLED = "Homoscedastic", "Heteroscedastic"
SCALES = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)

#: Stage 3 of DeepLab's training: what the paper says, and the rest as in DeepLab's public code.
RECIPE: Mapping[str, Any] = {
    **{"epochs": None, "steps": 30_000, "batch_size": 8, "optimizer": "sgd", "lr": 1e-3, "momentum": 0.9},
    **{"schedule": "poly", "power": 0.9, "weight_decay": 4e-5, "scales": SCALES, "flip": True},
}
DATASETS: Mapping[str, tuple[str, Mapping[str, Any], int]] = {
    "Cityscapes": ("cityscapes", {}, 769),
    "PASCAL VOC": ("voc2012", {"train": "train_aug"}, 513),
}
#: Table 2: validation and test server, of τ*, τ = 1 and the homoscedastic model.
TABLE2: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "Ours τ = τ*": {"Cityscapes": (75.32, 77.35), "PASCAL VOC": (85.89, 84.65)},
    "τ = 1.0": {"Cityscapes": (74.22, 76.36), "PASCAL VOC": (84.55, 83.93)},
    HOMOSCEDASTIC: {"Cityscapes": (74.24, 76.61), "PASCAL VOC": (84.89, 84.01)},
}
VALUES = (
    Value(name="test_mean_iou", title="mIoU, validation"),
    Value(name="server_mean_iou", title="mIoU, test server"),
)


def het(temperature: float, samples: int = 1000) -> tuple[str, dict[str, Any]]:
    """The heteroscedastic model."""
    return "het-tau", {"temperature": temperature, "n_samples": samples, "n_samples_eval": samples}


def settings(dataset: str, method: str, params: Mapping[str, Any]) -> RunSettings:
    """A run of the paper's third stage."""
    name, options, crop = DATASETS[dataset]
    return RunSettings(
        data={"name": name, **options},
        method=method,
        params=params,
        network="deeplab-xception65",
        recipe={**RECIPE, "crop_to": crop},
        validation=None,
        evaluate_every=0,
    )


def table_cells() -> tuple[Cell, ...]:
    """Table 2; the marks are those of its paired t-tests."""
    methods = {"Ours τ = τ*": het(CHOSEN), "τ = 1.0": het(1.0), HOMOSCEDASTIC: ("ce", {})}
    cells = []
    for row, (method, params) in methods.items():
        for dataset, (ours, server) in TABLE2[row].items():
            mark = "bold" if row.startswith("Ours") else "‡"
            cells.append(
                Cell(
                    row=row,
                    column=f"paper's τ* = {CHOSEN:g}",
                    group=dataset,
                    settings=settings(dataset, method, params),
                    paper={
                        "test_mean_iou": Number(ours, mark=mark),
                        "server_mean_iou": Number(server, mark="bold" if mark == "bold" else ""),
                    },
                )
            )
    return tuple(cells)


def curve_cells() -> tuple[Cell, ...]:
    """Figure 2: every temperature, and the homoscedastic model beside them."""
    cells = []
    for dataset in DATASETS:
        plain = settings(dataset, "ce", {})
        cells.append(Cell(row=HOMOSCEDASTIC, column="no τ", group=dataset, settings=plain))
        for temperature in TEMPERATURES:
            run = settings(dataset, *het(temperature))
            cells.append(Cell(row=SAMPLED, column=f"τ = {temperature:g}", group=dataset, settings=run))
    return tuple(cells)


def picture_cells() -> tuple[Cell, ...]:
    """Figures 3 and 4: the three models on PASCAL VOC, with pictures of what they predict."""
    rows = {"τ = 1.0": het(1.0), "τ = τ*": het(CHOSEN), HOMOSCEDASTIC: ("ce", {})}
    probes = ({"name": "maps", "examples": 3, "rows": 100},)
    return tuple(
        Cell(
            row=row,
            column=f"τ* = {CHOSEN:g}",
            group="PASCAL VOC",
            settings=settings("PASCAL VOC", method, params).replace(probes=probes),
        )
        for row, (method, params) in rows.items()
    )


# -- CamVid ----------------------------------------------------------------------------------------

CAMVID_TEMPERATURES = (0.05, 0.1, 0.2, 0.5, 1.0)
#: Half the height of CamVid's images, at which they are given out.
CAMVID_RECIPE: Mapping[str, Any] = {
    **{"epochs": 30, "batch_size": 8, "optimizer": "adam", "lr": 1e-3, "schedule": "poly", "power": 0.9},
    **{"clip_norm": 1.0, "scales": SCALES, "crop_to": 160, "flip": True, "precision": "tf32"},
    **{"weight_decay": 0.0},
}
CAMVID_SAMPLES = {"n_samples": 32, "n_samples_eval": 128}
CAMVID_VALUES = (
    Value(name="test_mean_iou", title="mIoU"),
    Value(name="validation_mean_iou", title="mIoU, validation"),
    Value(name="test_accuracy", title="pixel accuracy"),
    Value(name="test_boundary_accuracy", title="accuracy at boundaries"),
    Value(name="test_log_likelihood", title="LL", percent=False, digits=3),
    Value(name="test_ece", title="ECE", digits=2, higher_is_better=False),
    Value(name="boundary_variance_ratio", title="variance at boundaries / inside", percent=False, digits=1),
)


def camvid_settings(method: str, params: Mapping[str, Any]) -> RunSettings:
    """A run on CamVid: DeepLabv3+ with a ResNet-18 from scratch."""
    own = {**params, **CAMVID_SAMPLES} if method == "het-tau" else params
    return RunSettings(
        data={"name": "camvid"},
        method=method,
        params=own,
        network="deeplab-resnet18",
        recipe=CAMVID_RECIPE,
        validation="own",
        # Looked at when training is over: 1000 samples of 233 images take as long as an epoch.
        evaluate_every=1000,
        probes=({"name": "maps", "examples": 3, "rows": 40},),
    )


def camvid_small(run: RunSettings) -> RunSettings:
    """A run on CamVid that a core does in minutes."""
    recipe = {"epochs": 10, "crop_to": 128, "precision": "fp32"}
    return reduced(run, recipe=recipe, params={"n_samples": 8})


def on_camvid(run: RunSettings) -> RunSettings:
    """The small run on CamVid of the same model, for one on a dataset of the paper."""
    return camvid_small(camvid_settings(run.method, run.params))


def camvid_cells() -> tuple[Cell, ...]:
    """The homoscedastic model, τ = 1 and smaller ones."""
    plain = Cell(row=HOMOSCEDASTIC, column="no τ", group="CamVid", settings=camvid_settings("ce", {}))
    found = [plain]
    for temperature in CAMVID_TEMPERATURES:
        run = camvid_settings("het-tau", {"temperature": temperature})
        found.append(Cell(row=SAMPLED, column=f"τ = {temperature:g}", group="CamVid", settings=run))
    return tuple(found)


# -- studies ---------------------------------------------------------------------------------------


def smoke_change(run: RunSettings) -> RunSettings:
    """Few samples, and the probes of the study."""
    less = {"n_samples": 4, "n_samples_eval": 8}
    return run.replace(params={**run.params, **{k: v for k, v in less.items() if k in run.params}})


SMOKE = Smoke(
    data={"name": "scenes", "n": 16, "n_test": 8},
    network="deeplab-resnet18-os32",
    rows=None,
    epochs=1,
    recipe={"batch_size": 8, "schedule": "poly", "scales": (0.75, 1.0, 1.5)},
    change=smoke_change,
)

#: What the paper leaves open, and what was chosen.
NOTES = (
    "The paper warm-starts from JFT and MS-COCO, which cannot be had: training starts from scratch, or from the "
    "weights of an encoder by --set weights=FILE (timm's xception65). Its numbers are not to be expected without.",
    "What the paper leaves to DeepLab is as in DeepLab's public code: momentum 0.9, poly schedule of power 0.9, "
    "weight decay 4e-5, scales 0.5 to 2 in steps of 0.25, crops of 513 (VOC) and 769 (Cityscapes), flips.",
    "Chosen, since paper and code leave it open or cannot be followed: batches of 8; weight decay on every "
    "parameter; normalisations that are trained, with torch's momentum of 0.1 (DeepLab's last stage freezes "
    "them, which needs the warm start); on VOC the 10,582 images of train_aug, on Cityscapes the 2,975 fine "
    "ones; output stride 16; single precision; the network after the last step; a diagonal covariance.",
    "S = 1000 in training and at prediction, as the paper says of Figure 2; Table 2 is taken to have it too.",
    "The validation columns are measured on the val images, which are the test rows here: whole images at one "
    "scale, unflipped. Those of the test server (output stride 8) are the paper's alone.",
    "Smaller images of VOC are padded with grey, and their masks with void; DeepLab pads with the mean colour.",
    "Bilinear upsampling aligns pixel centres as torch does; DeepLab's code aligns corners.",
    "Seed i of one model is paired with seed i of the other in the t-tests, as in the paper; here such runs share "
    "the order of the images, not the crops. Intervals are percentiles of 9,999 bootstrapped means of the seeds.",
)


def _draw_curve(results: Results) -> Picture:
    from noisegate.studies.papers.temperature.map_figures import mean_iou

    return mean_iou(results)


def _draw_segmentations(results: Results) -> Picture:
    from noisegate.studies.papers.temperature.map_figures import segmentations

    return segmentations(results)


def _draw_variances(results: Results) -> Picture:
    from noisegate.studies.papers.temperature.map_figures import variances

    return variances(results)


CURVE = Figure(
    name="figure2",
    draw=_draw_curve,
    caption="Mean intersection over union against temperature; mean over the seeds, with a bootstrapped 95 % "
    "interval.",
    paper="Panels for PASCAL VOC and Cityscapes: best at τ = 0.05, falling to both sides; at τ = 1 slightly below "
    "the homoscedastic model.",
)
SEGMENTATIONS = Figure(
    name="figure3",
    draw=_draw_segmentations,
    caption="Test images, their labels, and what the models predict.",
    paper="One image from outside of the dataset: the segmentation at τ* is better than those of the others.",
)
VARIANCES = Figure(
    name="figure4",
    draw=_draw_variances,
    caption="Variance of the predictive distribution, summed over the classes, τ = 1 above τ*; image, label and "
    "prediction beside it. Each has a scale of its own; the title has its maximum, and the mean variance at "
    "boundaries (within 2 pixels of another class) over that inside.",
    paper="Heat maps per class: highest at the boundaries of objects, finer at τ* = 0.05 than at τ = 1.",
)

#: Street scenes stand for both datasets.
STREETS = Laptop(change=on_camvid, keep=lambda cell: cell.group == "Cityscapes", seeds=2)

TABLE_STUDY = Study(
    name="temperature-table2",
    title="Segmentation: mean intersection over union",
    reference=f"{PAPER}, Table 2",
    cells=table_cells(),
    values=VALUES,
    seeds=25,
    bold="best",
    stars_against="Ours τ = τ*",
    notes=NOTES,
    smoke=SMOKE,
    laptop=STREETS,
)
CAMVID_STUDY = Study(
    name="temperature-camvid",
    title="Segmentation of CamVid: mean intersection over union against temperature",
    reference=f"the question of {PAPER}, section 5.2, on CamVid",
    cells=camvid_cells(),
    values=CAMVID_VALUES,
    seeds=3,
    bold="best",
    select=Selection(metric="validation_mean_iou", seeds="all"),
    notes=(
        "Not a dataset of the paper: 367 street scenes of 180 x 240 pixels in 11 classes, a ResNet-18 encoder from "
        "scratch, Adam, 30 epochs of 45 steps. 32 samples in training and 128 at prediction; the paper takes 1000.",
        "Validation images are CamVid's own 101, test images its 233.",
    ),
    figures=(dataclasses.replace(CURVE, name="camvid"), SEGMENTATIONS, VARIANCES),
    smoke=dataclasses.replace(SMOKE, data={"name": "scenes", "n": 16, "n_test": 8}),
    laptop=Laptop(change=camvid_small),
)

STUDIES: tuple[Study, ...] = (
    TABLE_STUDY,
    Study(
        name="temperature-figure2",
        title="Segmentation: mean intersection over union against temperature",
        reference=f"{PAPER}, Figure 2",
        cells=curve_cells(),
        values=VALUES[:1],
        seeds=25,
        bold="none",
        notes=("The temperatures of the curves are ours but for 0.05 and 1.", *NOTES),
        figures=(CURVE,),
        smoke=SMOKE,
        laptop=STREETS,
    ),
    *(
        Study(
            name=f"temperature-{figure.name}",
            title=title,
            reference=f"{PAPER}, {figure.name.replace('figure', 'Figure ')}",
            cells=picture_cells(),
            values=(
                *VALUES[:1],
                Value(
                    name="boundary_variance_ratio",
                    title="variance at boundaries / inside",
                    percent=False,
                    digits=1,
                ),
            ),
            seeds=1,
            bold="none",
            notes=(
                "Three images of VOC's val set, at 0, 1/3 and 2/3 of its list: the paper's are not given. The "
                "variance is summed over the classes, where the paper has a map for each class it shows.",
                *NOTES,
            ),
            figures=(figure,),
            smoke=SMOKE,
            laptop=Laptop(change=on_camvid),
        )
        for figure, title in ((SEGMENTATIONS, "Segmentations"), (VARIANCES, "Aleatoric uncertainty"))
    ),
    CAMVID_STUDY,
)
