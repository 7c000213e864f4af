"""The report shows what its JSON twin says, whole, without scripts from the data and without other hosts."""

import base64
import hashlib
import html.parser
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from noisegate.auditing import charts, report, stored, words
from noisegate.errors import InputError


class Reader(html.parser.HTMLParser):
    """Elements, attributes and text, as a browser would see them."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.texts, self.attributes, self.open = [], [], [], []
        self.feed(page)

    VOID = ("meta", "img", "input", "link", "br")

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)


@pytest.fixture
def written(table_audit):
    folder, _ = table_audit(120)
    page = report.write_report(folder, worst=20)
    return page.read_text(encoding="utf-8"), json.loads((folder / "report.json").read_text())


def test_all_elements_are_closed_and_the_file_stands_alone(written):
    page, _ = written
    read = Reader(page)
    assert read.open == []
    assert "link" not in read.tags
    sources = [value for _, name, value in read.attributes if name in ("src", "href", "action", "data")]
    assert all(value.startswith(("data:image/", "#")) for value in sources)
    assert not [name for _, name, _ in read.attributes if name.startswith("on") or name == "style"]
    assert not re.search(r"https?://", page)


def test_the_policy_names_the_script_and_style_by_their_hash(written):
    page, _ = written
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    for tag in ("script", "style"):
        content = re.search(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_twin_has_what_the_page_shows(written):
    page, twin = written
    text = " ".join(Reader(page).texts)
    assert [row["rank"] for row in twin["rows"]] == list(range(1, 21))
    for row in twin["rows"]:
        assert row["id"] in text
        assert f"{row['quality']:.3f}" in text
        for _, cell in row["cells"]:
            assert cell in text
        for other in row["neighbours"]:
            assert f"{other['similarity']:.2f}" in text
    for sentence in twin["summary"]:
        assert sentence in text
    for value in np.ravel(twin["transition"]["value"]):
        assert f"{value:.3f}" in text
    for n in twin["curve"]["looked"]:
        assert f"{n:,}" in text
    for bar in twin["quality"]:
        assert f"{bar['flagged']:,}" in text


def test_the_twin_agrees_with_the_audit(table_audit):
    folder, _ = table_audit(120)
    audit = stored.read(folder)
    told = report.document(audit, worst=5)
    assert sum(bar["flagged"] + bar["others"] for bar in told["quality"]) == 120
    assert sum(bar["flagged"] for bar in told["quality"]) == audit.rows["is_label_issue"].sum()
    for row, line in zip(told["rows"], audit.rows.head(5).to_dict("records"), strict=True):
        assert row["row"] == line["row"]
        assert row["given_label"] == audit.classes[line["given_label"]]
        assert [near["row"] for near in row["neighbours"]] == [(line["row"] + i) % 120 for i in (1, 2, 3)]
        for near in row["neighbours"]:
            assert near["disagrees"] == (near["given_label"] != row["given_label"])


def test_pictures_every_picture_has_a_text_and_a_table(written):
    page, _ = written
    assert page.count("<svg") == 3
    assert page.count('role="img"') == 3
    assert page.count("<summary>As a table</summary>") == 3
    for label in re.findall(r'<svg[^>]*aria-labelledby="([^"]+)"', page):
        assert f'id="{label}"' in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_images_lie_inside_the_file(folder_audit):
    folder, _ = folder_audit(20)
    page = report.write_report(folder, worst=4).read_text()
    images = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="([^"]+)"', page)
    assert len(images) == 4 * (1 + 3) + 2  # rows with their neighbours, and a pair of duplicates
    assert all(base64.b64decode(data).startswith(b"\x89PNG") and alt for data, alt in images)


def test_text_from_the_data_is_only_text(table_audit, nasty):
    folder, _ = table_audit(140, classes=nasty, cells=nasty)
    info = dict(stored.read(folder).info)
    audit = stored.read(folder)
    info["notes"] = list(nasty)
    info["settings"] = {name: name for name in nasty}
    page = report.render(
        report.document(stored.StoredAudit(info, audit.rows, audit.probs, audit.neighbours, folder))
    )
    read = Reader(page)
    assert read.open == []
    assert read.tags.count("script") == 1
    assert read.tags.count("style") == 1
    assert "b" not in read.tags
    assert not [
        value for tag, name, value in read.attributes if tag == "img" and name == "src" and value == "x"
    ]
    assert not [name for _, name, _ in read.attributes if name.startswith("on")]
    text = "".join(read.texts)
    for word in nasty:
        assert word.replace("\r\n", "\n") in text.replace("\r\n", "\n")


def test_an_audit_that_knows_little_still_has_a_report(table_audit):
    folder, _ = table_audit(60)
    audit = stored.read(folder)
    info = {key: audit.info[key] for key in ("audit_id", "classes", "label_values")}
    info["source"] = stored.source_of("memory", None, 60)
    bare = stored.StoredAudit(info, audit.rows)
    read = Reader(report.render(report.document(bare, worst=500)))
    assert read.open == []
    assert "Cannot be shown" in " ".join(read.texts)
    with pytest.raises(InputError, match="at least one"):
        report.document(bare, worst=0)


def test_true_labels_are_shown_where_they_are_known(table_audit):
    folder, _ = table_audit(60)
    audit = stored.read(folder)
    rows = audit.rows.assign(true_label=audit.rows["suggested_label"])
    info = dict(audit.info) | {"truth": {"errors": 1}}
    told = report.document(stored.StoredAudit(info, rows))
    assert told["rows"][0]["true_label"] == told["rows"][0]["suggested_label"]
    assert "True" in Reader(report.render(told)).texts
    wrong = int((rows["true_label"] != rows["given_label"]).sum())
    assert any(f"{wrong} given labels are wrong" in sentence for sentence in told["summary"])


def test_many_classes_show_those_most_confused():
    rng = np.random.default_rng(0)
    matrix = np.eye(200) * 0.9 + rng.random((200, 200)) * 1e-4
    matrix[150, 30] = 0.1
    chosen = charts.chosen_classes(matrix, [{"true": 150, "given": 30}])
    assert len(chosen) == charts.MOST_CLASSES
    assert {30, 150} <= set(chosen)
    assert chosen == sorted(chosen)


def test_a_report_of_1000_classes_stays_small():
    rng = np.random.default_rng(0)
    names = [f"class {i:03d}" for i in range(1500)]
    rows = table(1500, rng.random(1500), rng.random(1500) < 0.2, np.zeros(1500, bool)).rows
    matrix = rng.dirichlet(np.ones(1500), 1500)
    info = {
        "audit_id": "0", "source": stored.source_of("memory", None, 1500), "classes": names,
        "label_values": names, "transition": {"value": matrix, "low": 0.5 * matrix, "high": matrix},
        "confused": [{"true": 7, "given": 5, "count": 2.0, "share": 0.0001}],
    }  # fmt: skip
    told = report.document(stored.StoredAudit(info, rows))
    page = report.render(told)
    assert "Of 1,500 classes the 24 most confused" in page
    assert len(page) < 500_000
    # A pair with a ten thousandth of the errors is listed, but does not stand out.
    assert "under 0.1\xa0%" in page
    assert not any("Most often" in sentence for sentence in told["summary"])


def test_charts_stay_in_their_frame():
    picture = charts.curve(
        {"looked": [1, 50, 100], "found": [1.0, 30.0, 40.0], "low": [0, 20, 30], "high": [2, 40, 55]}
    )
    points = [float(number) for number in re.split("[ ,]", picture["band"])]
    assert 0 <= min(points)
    assert max(points[::2]) <= picture["right"]
    assert max(points[1::2]) <= picture["bottom"]
    bars = charts.histogram([(0.0, 0.5, 4, 0), (0.5, 1.0, 0, 100)])["bars"]
    # Heights are square roots: 4 beside 100 is 2 beside 10.
    assert bars[1]["others"]["height"] / bars[0]["flagged"]["height"] == pytest.approx(5, rel=0.01)
    shades = charts.heatmap(np.array([[0.9, 0.1], [0.05, 0.95]]), ["a", "b"])["cells"]
    assert shades[1]["shade"] == 2 * shades[2]["shade"] > 0


def test_sentences_keep_their_numbers(table_audit):
    folder, _ = table_audit(1000)
    audit = stored.read(folder)
    text = " ".join(words.summary(audit))
    assert "1,000 rows in 3 classes" in text
    assert f"{int(audit.rows['is_label_issue'].sum()):,} rows are flagged" in text
    first = np.cumsum(audit.rows["p_wrong"].to_numpy(float))[199]
    told = int(re.search(r"first 200 rows hold about (\d+)", text)[1])
    assert told == pytest.approx(first, abs=1.5)


def summary_of(n, *, errors, look, sure, precision=0.9):
    """The summary of n rows of which the first `look` are flagged and hold all errors."""
    p = np.where(np.arange(n) < look, errors / max(look, 1), 0.0)
    audit = table(n, p, np.arange(n) < look, np.arange(n) < sure)
    entry = {"value": precision if look else None, "low": 0.8, "high": 0.95}
    low, high = 0.9 * errors, 1.1 * errors
    info = {
        "errors": {"value": errors, "low": low, "high": high},
        "noise_rate": {"value": errors / n},
        "precision": {"look": entry, "sure": {"value": precision if sure else None}},
        "curve": {"looked": list(range(n + 1)), "found": [0.0, *np.cumsum(p).tolist()]},
    }
    return [s.replace("\xa0", " ") for s in words.summary(replace(audit, info=dict(audit.info) | info))]


def table(n, p, look, sure):
    rows = pd.DataFrame(
        {
            "row": np.arange(n), "id": [str(i) for i in range(n)], "given_label": 0, "suggested_label": 1,
            "suggested_probability": 0.5, "quality": 1 - p, "p_wrong": p, "is_label_issue": look,
            "is_sure": sure,
        }
    )  # fmt: skip
    source = stored.source_of("memory", None, n)
    info = {"audit_id": "0", "source": source, "classes": ["a", "b"], "label_values": ["a", "b"]}
    return stored.StoredAudit(info, rows)


def test_small_numbers_are_said_as_people_say_them():
    nothing = summary_of(400, errors=0.001, look=0, sure=0)
    assert nothing == [
        "The data set holds 400 rows in 2 classes. Probably no label is wrong (95 % interval: 0 to 0), a noise "
        "rate of under 0.1 %.",
        "No row is flagged for a look.",
    ]
    one = summary_of(10, errors=1.0, look=1, sure=0)
    assert one[0].endswith("About 1 label is wrong (95 % interval: 0 to 2), a noise rate of 10 %.")
    assert one[1:] == [
        "1 row is flagged for a look; its label is wrong with a probability of about 90 % (95 % interval: 80 % to "
        "95 %). None is surely wrong.",
        "The first row holds about 1 of the estimated 1 error.",
    ]
    many = summary_of(1000, errors=300.0, look=300, sure=1)
    assert many[1].endswith("1 of these is surely wrong, with an expected precision of 90 %.")
    assert many[2] == (
        "The first 200 rows hold about 200 of the estimated 300 errors; half of them lie in the first 150."
    )
    few = summary_of(1000, errors=50.0, look=60, sure=0)
    assert few[2] == (
        "The first 60 rows hold about 50 of the estimated 50 errors; half of them lie in the first 30."
    )


@pytest.mark.parametrize(
    ("n", "said"),
    [
        (0, "No region of them seems to have another class."),
        (1, "1 region in 1 of them probably has another class: about 8 pixels."),
        (3, "3 regions in 1 of them probably have another class: about 24 pixels."),
    ],
)
def test_regions_are_counted(n, said):
    audit = table(n, np.full(n, 0.8), np.ones(n, bool), np.zeros(n, bool))
    info = dict(audit.info) | {"unit": "regions", "images": {"total": 16, "flagged": min(n, 1)}}
    text = words.summary(replace(audit, info=info, rows=audit.rows.assign(pixels=10)))[0]
    assert text == f"data from memory holds 16 masks in 2 classes. {said}"


@pytest.mark.parametrize(
    ("statistic", "p_value", "said"), [(0.0, 1.0, "B. A."), (3.1, 0.0004, "B (p < 0.001). A.")]
)
def test_the_test_of_dependence_is_told_with_its_p_value(statistic, p_value, said):
    audit = table(10, np.zeros(10), np.zeros(10, bool), np.zeros(10, bool))
    info = {"instance_dependence": {"statistic": statistic, "p_value": p_value, "conclusion": "B. A."}}
    assert words.summary(replace(audit, info=dict(audit.info) | info))[-1] == said
