"""The project's own files, for tests about its shape."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "edge", "pipeline", "sinks", "compose")
_TEXT = {
    ".py",
    ".md",
    ".toml",
    ".sql",
    ".yaml",
    ".yml",
    ".json",
    ".avsc",
    ".lock",
    ".conf",
    ".html",
    ".js",
    ".mjs",
    ".css",
    "",
}
_HIDDEN_BUT_OURS = {".ci"}
_NOT_OURS = {"__pycache__", "node_modules"}


def python_files(*folders):
    """Give the Python files below the folders as paths from the root; all our packages where none is named."""
    found = (path for folder in folders or PACKAGES for path in (ROOT / folder).rglob("*.py"))
    return sorted(path.relative_to(ROOT) for path in found)


def text_files():
    """Give every text file of ours, without what git ignores: hidden folders, caches, the virtual environment."""
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        hidden = any(part.startswith(".") and part not in _HIDDEN_BUT_OURS for part in parts)
        if not hidden and _NOT_OURS.isdisjoint(parts) and path.is_file() and path.suffix in _TEXT:
            yield path.relative_to(ROOT)


def imported(source):
    """Give the dotted names that a module imports anywhere: at the top, in functions, for type checking only."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute: a relative one hides where it leads"
            names.add(str(node.module))
    return names
