"""Draw and photograph the pictures of README.md and of the page "Five minutes".

    python docs/_images/write.py                  all of them, about two minutes on two cores
    python docs/_images/write.py digits           the picture of README.md alone

digits.png: scikit-learn's digits, 40 % of the labels redrawn (36 % wrong), one seed, on a CPU. Left: accuracy
on clean test labels after every epoch of one network. Right: the labels that `auto` finds least credible.
report.png, review.png: the pages that the commands of docs/five-minutes.md make, in a Chromium (the
environment variable CHROMIUM names another one) driven by Playwright.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NOISEGATE = [sys.executable, "-m", "noisegate"]
#: For containers, where the browser has neither a user of its own nor a graphics card.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def digits() -> None:
    """What wrong labels do to a network, and the wrong labels themselves."""
    import matplotlib.pyplot as plt

    import noisegate as ng

    data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4), seed=0)
    clf = ng.NoisyLabelClassifier(random_state=0, device="cpu").fit(data.train.x, data.train.y)
    figure = plt.figure(figsize=(9.6, 3.3), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.15])
    ax = left.subplots()
    for method, label in (("ce", "cross-entropy"), ("gce", "GCE")):
        ax.plot(range(1, 41), [100 * value for value in _curve(data, method)], label=label)
    ax.axhline(100 * clf.score(data.test.x, data.test.y), linestyle="--", color="black", label="auto")
    ax.set(xlabel="epoch", title="36 % wrong labels: test accuracy, per cent")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    right.suptitle("the least credible labels")
    for ax, (_, issue) in zip(right.subplots(2, 5).flat, clf.label_issues_.head(10).iterrows(), strict=True):
        ax.imshow(data.train.x[issue["row"]].reshape(8, 8), cmap="gray_r")
        ax.set_title(f"given {issue['given_label']},\nrather {issue['suggested_label']}", fontsize=9)
        ax.set_axis_off()
    figure.savefig(HERE / "digits.png", dpi=150, facecolor="white")


def _curve(data, method: str) -> list[float]:
    import noisegate as ng

    recipe, seen = {"epochs": 40}, []
    ng.train(data, method, "mlp-128", recipe, device="cpu", on_epoch=seen.append, progress=False)
    return [epoch.metrics["test_accuracy"] for epoch in seen]


def pages() -> None:
    """The report and the review page of the table of docs/five-minutes.md."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        runpy.run_path(str(ROOT / "examples" / "shop.py"))["main"](folder)
        audit = [*NOISEGATE, "audit", "shop.csv", "--label", "category", "--out", "AUDIT"]
        subprocess.run(audit, cwd=folder, check=True)
        browser = playwright.chromium.launch(executable_path=_chromium(), args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 800, "height": 900})
        page.goto(Path(folder, "AUDIT", "report.html").as_uri())
        page.screenshot(path=HERE / "report.png")
        review = [*NOISEGATE, "review", "AUDIT", "--no-browser", "--reviewer", "ana"]
        with subprocess.Popen(review, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
            try:
                page = browser.new_page(viewport={"width": 1000, "height": 840})
                page.goto(
                    next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
                )
                page.get_by_text(re.compile(r"\d+ left")).wait_for()
                page.screenshot(path=HERE / "review.png")
            finally:
                server.terminate()
        browser.close()


def _chromium() -> str | None:
    """Debian's chromium where there is one; else Playwright's own."""
    return shutil.which(os.environ.get("CHROMIUM", "chromium"))


def _smaller(name: str) -> None:
    """Store a picture in 256 colours, which is a third of the bytes."""
    from PIL import Image

    path = HERE / name
    Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    wanted = sys.argv[1:] or ["digits", "pages"]
    if "digits" in wanted:
        digits()
        _smaller("digits.png")
    if "pages" in wanted:
        pages()
        _smaller("report.png")
        _smaller("review.png")


if __name__ == "__main__":
    main()
