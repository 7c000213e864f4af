"""Figures 2 to 4 of the softmax-temperature paper, and the same for CamVid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from noisegate.data.masks import voc_palette
from noisegate.errors import InputError
from noisegate.noise.base import VOID
from noisegate.reporting.plots import INK
from noisegate.studies.papers.temperature.figures import against_temperature

if TYPE_CHECKING:
    from noisegate.studies.results import Results
    from noisegate.studies.study import Cell

#: Rows of the pictures: the models by how they are called in the studies.
SHOWN = ("τ = 1.0", "τ = 1", "τ = τ*", "τ = 0.05")


def mean_iou(results: Results) -> Figure:
    """Figure 2: mean intersection over union, with bootstrapped 95 % intervals."""
    return against_temperature(results, "test_mean_iou", "mean IoU", bootstrap=True, percent=True)


def stored(results: Results) -> dict[str, dict[str, Any]]:
    """What the probe kept of the first finished run of every model, by its name."""
    found = {}
    for cell in results.study:
        arrays = next((a for a in results.arrays(cell) if "map_image" in a), None)
        if arrays is not None:
            values = list(results.values(cell, "boundary_variance_ratio").values())
            found[_name(cell)] = dict(arrays) | {"ratio": float(np.mean(values)) if values else None}
    if not found:
        raise InputError(f"{results.study.name}: there is no finished run with pictures yet")
    return found


def _name(cell: Cell) -> str:
    return cell.row if not cell.column.startswith("τ =") else cell.column


def colours(results: Results) -> Any:
    """A colour for every class, and grey for void: the palette of the dataset, or VOC's."""
    from noisegate.data.named import segmentation

    name = str(next(iter(results.study)).settings.data["name"])
    known = {"camvid": segmentation.CAMVID_CLASSES, "cityscapes": segmentation.CITYSCAPES_CLASSES}
    if name in known:
        return np.array([entry[-1] for entry in known[name]], np.uint8)
    return np.array(voc_palette(256), np.uint8)


def coloured(labels: Any, palette: Any) -> Any:
    """Maps of labels as pictures."""
    picture = palette[np.maximum(labels, 0)]
    return np.where((labels == VOID)[..., None], np.uint8(230), picture)


def segmentations(results: Results) -> Figure:
    """Figure 3: images, labels and the predictions of the models, a row an image."""
    models = stored(results)
    first, palette = next(iter(models.values())), colours(results)
    columns = [
        ("image", first["map_image"].transpose(0, 2, 3, 1)),
        ("label", coloured(first["map_label"], palette)),
    ]
    columns += [(name, coloured(each["map_prediction"], palette)) for name, each in models.items()]
    return _grid(
        [[picture[row] for _, picture in columns] for row in range(len(first["map_image"]))],
        [[title for title, _ in columns]],
    )


def variances(results: Results) -> Figure:
    """Figure 4: image, label, prediction and variance, τ = 1 above τ*.

    Each variance has a scale of its own: a small temperature has much more of it, and what is asked is where.
    """
    models = {name: each for name, each in stored(results).items() if name in SHOWN}
    models = dict(sorted(models.items(), key=lambda item: SHOWN.index(item[0])))
    if not models:
        raise InputError(f"{results.study.name}: there is no finished heteroscedastic run with pictures yet")
    palette, rows, titles = colours(results), [], []
    for name, each in models.items():
        variance = each["map_variance"][0].astype(np.float32)
        top = float(variance.max())
        rows.append(
            [
                each["map_image"][0].transpose(1, 2, 0),
                coloured(each["map_label"][0], palette),
                coloured(each["map_prediction"][0], palette),
                variance / max(top, 1e-12),
            ]
        )
        ratio = "" if each["ratio"] is None else f", boundaries / inside {each['ratio']:.1f}"
        titles.append(["image", "label", f"prediction, {name}", f"variance up to {top:.2g}{ratio}"])
    return _grid(rows, titles)


def _grid(rows: list[list[Any]], titles: list[list[str]]) -> Figure:
    """Pictures beside each other; numbers in [0, 1] as a heat map."""
    figure = Figure(figsize=(2.6 * len(rows[0]), 2.1 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), len(rows[0]), squeeze=False)
    for row, pictures in enumerate(rows):
        for column, picture in enumerate(pictures):
            ax = axes[row, column]
            ax.imshow(
                picture, cmap="magma", vmin=0, vmax=1 if picture.ndim == 2 else None, interpolation="nearest"
            )
            ax.set_axis_off()
            if row < len(titles):
                ax.set_title(titles[row][column], fontsize=8, color=INK)
    return figure
