"""Compare pinned versions with the published advisories: `python tools/audit_pins.py PIP-AUDIT CONSTRAINTS`.

Exit code 1: a pin has a known vulnerability. 2: pins could not be compared, which pip-audit by itself takes
for "no known vulnerabilities" where an index does not answer with advisories.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

VULNERABLE, UNKNOWN = 1, 2
_MOST = 5


def verdict(found: Mapping[str, Any]) -> tuple[int, list[str]]:
    """The exit code and the lines to print for what `pip-audit --format json` has found.

    >>> verdict({"dependencies": [{"name": "a", "version": "1", "vulns": []}]})
    (0, ['1 pins compared with the advisories: none has a known vulnerability'])
    """
    pins = found["dependencies"]
    skipped = [pin for pin in pins if "vulns" not in pin]
    lines = [
        f"{pin['name']} {pin['version']}: {bug['id']}, "
        f"mended in {', '.join(bug.get('fix_versions') or ['no version'])}"
        for pin in pins
        for bug in pin.get("vulns", ())
    ]
    code = VULNERABLE if lines else 0
    if skipped or not pins:
        names = ", ".join(pin["name"] for pin in skipped[:_MOST]) + (", ..." if len(skipped) > _MOST else "")
        why = f": {names} ({skipped[0].get('skip_reason')})" if skipped else ""
        lines.append(
            f"{len(skipped)} of {len(pins)} pins could not be compared with the advisories{why}; "
            "is the Python Package Index (https://pypi.org) reachable from this machine?"
        )
        code = code or UNKNOWN
    if not lines:
        lines.append(f"{len(pins)} pins compared with the advisories: none has a known vulnerability")
    return code, lines


def main(program: str, constraints: str) -> int:
    """Run pip-audit on a file of pins, print the verdict and return the exit code."""
    options = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    try:
        done = subprocess.run(
            [program, *options, "--requirement", constraints], capture_output=True, text=True, check=False
        )
        code, lines = verdict(json.loads(done.stdout))
    except OSError as error:
        code, lines = UNKNOWN, [f"{program} could not be started: {error.strerror}"]
    except (ValueError, KeyError):  # it ended in a traceback
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        code, lines = UNKNOWN, [f"the pins could not be compared with the advisories: {last[:300]}"]
    print("\n".join(f"audit-pins: {line}" for line in lines), file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
