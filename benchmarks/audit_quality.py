"""How well wrong labels are found, as one readable table of what the study audit-quality has stored.

    noisegate study run audit-quality --scale laptop --out RESULTS
    python benchmarks/audit_quality.py RESULTS/reports/audit-quality-laptop/runs.csv

writes results/audit_quality.md. The study's own report has the same numbers, with deviations over seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

RESULTS = Path(__file__).parent / "results"
NUMBERS = {
    "look_precision": "precision",
    "look_recall": "recall",
    "look_f1": "F1",
    "look_auroc": "AUROC",
    "look_average_precision": "average precision",
    "cleanlab_f1": "cleanlab F1",
    "cleanlab_auroc": "cleanlab AUROC",
    "cleanlab_average_precision": "cleanlab average precision",
    "argmax_f1": "argmax F1",
}
WORDS = """\
In per cent. precision to average precision are of noisegate: flags "look", ranking by the probability that the
label is wrong. cleanlab: its default flags (prune_by_noise_rate) and self-confidence, from the same probabilities;
in the row "logistic regression, 5 folds" that is CleanLearning() as it comes. argmax: labels that are not the most
probable class. Who says that nothing is wrong has an F1 of 0, an AUROC of 50 and an average precision equal to the
share of wrong labels. seconds: of the run's process, on a machine with other work."""


def table(runs: pd.DataFrame) -> list[str]:
    """Lines of a Markdown table, the best F1 first."""
    lines = [
        f"| detector | runs | {' | '.join(NUMBERS.values())} | seconds |",
        "|---|" + "---|" * (len(NUMBERS) + 2),
    ]
    for name, part in sorted(runs.groupby("row"), key=lambda item: -item[1]["look_f1"].mean()):
        cells = [f"{100 * part[column].mean():.1f}" for column in NUMBERS]
        lines.append(f"| {name} | {len(part)} | {' | '.join(cells)} | {part['seconds'].mean():.0f} |")
    return lines


def page(runs: pd.DataFrame, planned: int) -> str:
    """The whole page: means over what every detector has done, then every data set."""
    runs = runs.assign(place=runs["group"] + ", " + runs["column"])
    versions = ", ".join(f"{name} {runs[name].iloc[0]}" for name in ("noisegate", "python", "torch", "numpy"))
    text = [
        "# How well audits find wrong labels",
        "",
        "`noisegate study run audit-quality --scale laptop`, then ",
    ]
    text[-1] += f"`python benchmarks/audit_quality.py`: {len(runs)} of {planned} runs, one seed, "
    text[-1] += f"{', '.join(sorted(set(runs['hardware'])))} cpu; {versions}."
    trained = runs[runs["row"] != "published probabilities"]
    done = trained.groupby("row")["place"].agg(set)
    most = [row for row, places in done.items() if len(places) >= 6]
    shared = set.intersection(*(done[row] for row in most)) if most else set()
    text += [
        "",
        WORDS,
        "",
        f"## Means over the {len(shared)} data sets and noises that these detectors have all done",
        "",
    ]
    text += table(trained[trained["row"].isin(most) & trained["place"].isin(shared)])
    for place, part in runs.groupby("place", sort=False):
        text += ["", f"## {place}: {100 * part['wrong_share'].mean():.1f} % wrong", "", *table(part)]
    return "\n".join(text) + "\n"


def main() -> None:
    from noisegate.studies import papers

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", type=Path, help="runs.csv of the study's report")
    runs = pd.read_csv(parser.parse_args().runs)
    planned = len(list(papers.get("audit-quality").at_scale("laptop")))
    (RESULTS / "audit_quality.md").write_text(page(runs[runs["status"] == "finished"], planned))


if __name__ == "__main__":
    main()
