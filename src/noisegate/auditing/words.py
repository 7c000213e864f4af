"""An audit's findings in plain sentences."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np

from noisegate.auditing.stored import StoredAudit, called

#: Bidirectional classes of characters that do not affect the text around them: letters from left to right,
#: digits, marks, spaces.
_PLAIN = frozenset({"L", "EN", "ES", "ET", "CS", "NSM", "ON", "WS", "S", "B", "BN", ""})


def number(value: float) -> str:
    """A count for people.

    >>> number(1234.4), number(0.2), number(0)
    ('1,234', 'fewer than 1', '0')
    """
    if 0 < value < 0.5:
        return "fewer than 1"
    return f"{round(value):,}"


def share(value: float) -> str:
    """A share in per cent, with a digit if it is small; number and sign stay on one line.

    >>> share(0.4021) == "40" + chr(0xA0) + "%", share(0.0312) == "3.1" + chr(0xA0) + "%"
    (True, True)
    >>> share(0.0004) == "under 0.1" + chr(0xA0) + "%", share(0.0) == "0.0" + chr(0xA0) + "%"
    (True, True)
    """
    if 0 < value < 0.0005:
        return "under 0.1\u00a0%"
    return f"{100 * value:.1f}\u00a0%" if abs(value) < 0.1 else f"{100 * value:.0f}\u00a0%"


def _shares_between(entry: Mapping[str, Any]) -> str:
    """The interval of a share, in brackets."""
    if entry.get("low") is None or entry.get("high") is None:
        return ""
    return f" (95\u00a0% interval: {share(entry['low'])} to {share(entry['high'])})"


def _counts_between(entry: Mapping[str, Any]) -> str:
    """The interval of a count, in brackets, with whole ends that hold it."""
    if entry.get("low") is None or entry.get("high") is None:
        return ""
    # A hundredth of a row is rounding, or the tail of thousands of certain rows.
    low, high = math.floor(entry["low"] + 0.01), math.ceil(entry["high"] - 0.01)
    return f" (95\u00a0% interval: {low:,} to {high:,})"


def p_value(p: float) -> str:
    """A p-value with two digits.

    >>> p_value(0.0312), p_value(1e-9)
    ('p = 0.031', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def isolated(name: str) -> str:
    """Isolate a name within a sentence, so that right-to-left text in it does not affect the rest.

    >>> isolated("cat"), isolated(chr(0x5D0)) == chr(0x2068) + chr(0x5D0) + chr(0x2069)
    ('cat', True)
    """
    turns = any(unicodedata.bidirectional(sign) not in _PLAIN for sign in name)
    return f"\u2068{name}\u2069" if turns else name


def data_name(audit: StoredAudit) -> str:
    """What the audited data are called: the last part of their path."""
    return str(audit.source.get("path") or "data from memory").rstrip("/").rsplit("/", 1)[-1]


def summary(audit: StoredAudit) -> list[str]:
    """The findings of the audit, the most important first."""
    name = data_name(audit)
    first = (_images,) if audit.info.get("images") else (_size, _flags)
    parts = (*first, _decided, _curve, _confused, _dependence, _duplicates, _cleaning, _truth)
    return [sentence for part in parts for sentence in part(audit, name) if sentence]


def unit(audit: StoredAudit) -> str:
    """What the rows of an audit are: rows of the data, or regions of masks."""
    return str(audit.info.get("unit", "rows"))


def row_word(audit: StoredAudit) -> str:
    """The word before the name of one row: Row 17, File cat/5.png, Region street.png 3."""
    if unit(audit) == "regions":
        return "Region"
    return "File" if called(audit.source) == "file" else "Row"


def _images(audit: StoredAudit, name: str) -> list[str]:
    """Sentences of an audit of masks, whose rows are regions."""
    images, errors = audit.info["images"], audit.info.get("errors")
    pixels = int(((1 - audit.rows["quality"]) * audit.rows["pixels"]).sum())
    found = [
        f"{isolated(name)} holds {_counted(images['total'], 'masks')} in {len(audit.classes):,} classes."
    ]
    if len(audit):
        have = "has" if len(audit) == 1 else "have"
        found[0] += (
            f" {_counted(len(audit), 'regions')} in {images['flagged']:,} of them probably {have} another class: "
            f"about {number(pixels)} pixels."
        )
    else:
        found[0] += " No region of them seems to have another class."
    if errors:
        found.append(f"{_wrong(errors['value'], 'region')}{_counts_between(errors)}.")
    if "agreement" in images:
        found.append(repeated(images["agreement"], images["majority"]))
    return found


def repeated(agreement: float, majority: float) -> str:
    """How much the networks of an audit of masks have learnt, from `MaskAudit.agreement` and `.majority`."""
    text = (
        f"The networks predict {share(agreement)} of the given labels of pixels in images they have not seen; "
        f"always predicting the most frequent class gets {share(majority)}."
    )
    worthless = (
        " They have learnt nothing, so what they say about the masks means nothing: train them for longer"
    )
    return text if agreement > majority else f"{text}{worthless}, or with another learning rate."


def _size(audit: StoredAudit, name: str) -> list[str]:
    info, n = audit.info, len(audit)
    subject = isolated(name) if audit.source.get("path") else "The data set"
    first = f"{subject} holds {n:,} rows in {len(audit.classes):,} classes."
    errors, rate = info.get("errors"), info.get("noise_rate")
    if not errors:
        return [first]
    text = f"{_wrong(errors['value'], 'label')}{_counts_between(errors)}"
    return [f"{first} {text}" + (f", a noise rate of {share(rate['value'])}." if rate else ".")]


def _wrong(value: float, what: str) -> str:
    """How many are wrong: About 12 labels are wrong."""
    if value < 0.5:
        return f"Probably no {what} is wrong"
    return f"About {_counted(value, what + 's')} {'is' if round(value) == 1 else 'are'} wrong"


def _flags(audit: StoredAudit, name: str) -> list[str]:
    look, sure = (int(audit.rows[flag].sum()) for flag in ("is_label_issue", "is_sure"))
    expected = {name: entry for name, entry in (audit.info.get("precision") or {}).items() if entry}
    if not look:
        return ["No row is flagged for a look."]
    text = f"{look:,} {'row is' if look == 1 else 'rows are'} flagged for a look"
    # The precision of no rows is not known.
    if (entry := expected.get("look", {})).get("value") is not None:
        many = "its label is wrong with a probability of about {}{}"
        if look > 1:
            many = "about {} of them can be expected to be wrong{}"
        text += "; " + many.format(share(entry["value"]), _shares_between(entry))
    if not sure:
        return [f"{text}. None is surely wrong."]
    text += f". {sure:,} of these {'is' if sure == 1 else 'are'} surely wrong"
    if (entry := expected.get("sure", {})).get("value") is not None:
        text += f", with an expected precision of {share(entry['value'])}"
    return [text + "."]


def _decided(audit: StoredAudit, name: str) -> list[str]:
    """What people have decided, of an audit that was continued."""
    known = audit.info.get("decided") or {}
    if not known.get("rows") or known.get("wrong") is None:
        return []
    return [
        f"Decided so far: {_counted(len(known['rows']), unit(audit))}, {known['wrong']:,} with a wrong label."
    ]


def _curve(audit: StoredAudit, name: str) -> list[str]:
    curve, errors = audit.info.get("curve"), audit.info.get("errors")
    if not curve or not errors or not curve["looked"] or not curve["found"][-1] >= 0.5:
        return []
    looked, found = np.asarray(curve["looked"], float), np.asarray(curve["found"], float)
    flagged = int(audit.rows["is_label_issue"].sum())
    n = min(200, flagged or 200, int(looked[-1]))
    got = float(np.interp(n, np.r_[0.0, looked], np.r_[0.0, found]))
    half = float(np.interp(found[-1] / 2, found, looked))
    if got < 0.5:
        return []
    first = f"{n:,} {unit(audit)} hold" if n > 1 else f"{unit(audit).removesuffix('s')} holds"
    total = f"estimated {_counted(errors['value'], 'errors')}"
    if audit.info.get("decided"):
        total = f"{_counted(found[-1], 'errors')} estimated to be left"
    text = f"The first {first} about {number(got)} of the {total}"
    # With few errors, half of them is less than a row can hold.
    return [f"{text}; half of them lie in the first {number(half)}." if half >= 2 else f"{text}."]


def _counted(value: float, units: str) -> str:
    """A number with its unit: 1 row, 2 rows."""
    return f"{number(value)} {units.removesuffix('s') if round(value) == 1 else units}"


def _confused(audit: StoredAudit, name: str) -> list[str]:
    pairs = audit.info.get("confused") or []
    # Among many pairs that are equally rare none stands out.
    if not pairs or pairs[0].get("share", 1.0) < 0.01:
        return []
    first = pairs[0]
    true, given = (isolated(audit.classes[first[name]]) for name in ("true", "given"))
    return [f"Most often {true} is labelled {given}: about {_counted(first['count'], unit(audit))}."]


def _dependence(audit: StoredAudit, name: str) -> list[str]:
    found = audit.info.get("instance_dependence")
    if not found:
        return []
    first, *rest = str(found["conclusion"]).rstrip(".").split(". ")
    # Without a statistic there were too few rows to test.
    said = f"{first} ({p_value(found['p_value'])})" if found.get("statistic", 1.0) else first
    return [". ".join([said, *rest]) + "."]


def _duplicates(audit: StoredAudit, name: str) -> list[str]:
    total = audit.info.get("duplicates_total") or len(audit.info.get("duplicates") or [])
    if not total:
        return []
    there = "There is 1 group" if total == 1 else f"There are {total:,} groups"
    return [f"{there} of near duplicates with different labels."]


def _cleaning(audit: StoredAudit, name: str) -> list[str]:
    done = audit.info.get("cleaning")
    if not done:
        return []
    change = 100 * done["difference"]
    return [
        f"Retrained on the cleaned data ({done['how']}), accuracy goes from {share(done['accuracy_before'])} to "
        f"{share(done['accuracy_after'])} ({change:+.1f} points), judged by {done['judged_by']}."
    ]


def _truth(audit: StoredAudit, name: str) -> list[str]:
    known = audit.info.get("truth")
    if not known or "true_label" not in audit.rows.columns:
        return []
    wrong = (audit.rows["true_label"] != audit.rows["given_label"]).to_numpy()
    look = audit.rows["is_label_issue"].to_numpy()
    hit = int((wrong & look).sum())
    return [
        f"The true labels are known: {_counted(int(wrong.sum()), 'given labels')} "
        f"{'is' if wrong.sum() == 1 else 'are'} wrong, {hit:,} of them among the {int(look.sum()):,} flagged."
    ]
