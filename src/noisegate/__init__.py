"""noisegate: learning from labels that are partly wrong.

Names are imported when they are first used, so that `import noisegate` and `noisegate --help` stay
quick. The public names are listed once, in `__init__.pyi`: type checkers and editors read them
there, and so does this file.
"""

import ast
import importlib
from pathlib import Path
from typing import Any


def _public(stub: Path) -> dict[str, tuple[str, str | None]]:
    """Where each name of the stub comes from: its module, and its name there.

    None for the module itself.
    """
    found: dict[str, tuple[str, str | None]] = {}
    for statement in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ImportFrom) and statement.module == __name__:
            found |= {alias.name: (f"{__name__}.{alias.name}", None) for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            found |= {alias.name: (statement.module, alias.name) for alias in statement.names}
    return found


_PUBLIC = _public(Path(__file__).with_suffix(".pyi"))
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    value: Any = importlib.import_module(module)
    if attribute is not None:
        value = getattr(value, attribute)
        globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
