"""`tools/audit_pins.py`: pins that could not be compared are no pins without vulnerabilities."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "audit_pins.py"
SAFE = {"name": "safe", "version": "1.0", "vulns": []}
WEAK = {"name": "weak", "version": "2.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1", "3.0"]}]}
LOST = {"name": "lost", "skip_reason": "Dependency not found on PyPI"}


@pytest.fixture
def audit(tmp_path):
    """Run the tool with a stand-in for pip-audit."""

    def audit(body):
        program = tmp_path / "pip-audit"
        program.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
        program.chmod(0o755)
        command = [sys.executable, TOOL, program, tmp_path / "constraints.txt"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr

    return audit


def prints(*pins):
    return f"print({json.dumps({'dependencies': pins})!r})"


def test_pins_without_known_vulnerabilities(audit):
    assert audit(prints(SAFE, SAFE)) == (
        0,
        "audit-pins: 2 pins compared with the advisories: none has a known vulnerability\n",
        "",
    )


def test_a_vulnerability_is_named_with_its_remedy(audit):
    code, _, errors = audit(prints(SAFE, WEAK) + "; sys.exit(1)")
    assert (code, errors) == (1, "audit-pins: weak 2.0: PYSEC-1, mended in 2.1, 3.0\n")


def test_pins_that_were_not_found_are_an_error(audit):
    """pip-audit ends with 0 and "No known vulnerabilities found" where its index has no advisories."""
    code, output, errors = audit(prints(SAFE, LOST))
    assert (code, output) == (2, "")
    assert "1 of 2 pins could not be compared with the advisories: lost (Dependency not found" in errors
    code, _, errors = audit(prints(LOST, WEAK))
    assert code == 1
    assert "weak 2.0: PYSEC-1" in errors
    assert "1 of 2 pins could not be compared" in errors
    assert audit(prints())[0] == 2


def test_a_service_that_cannot_be_reached_is_one_line(audit):
    code, output, errors = audit("raise ConnectionError('Failed to resolve pypi.org')")
    assert (code, output) == (2, "")
    assert errors.startswith(
        "audit-pins: the pins could not be compared with the advisories: ConnectionError"
    )
    assert len(errors.splitlines()) == 1


def test_a_missing_program_is_one_line(tmp_path):
    command = [sys.executable, TOOL, tmp_path / "none", tmp_path / "constraints.txt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"audit-pins: {tmp_path / 'none'} could not be started: No such file or directory\n"
