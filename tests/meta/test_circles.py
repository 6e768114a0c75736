"""Which files know each other in a circle: two, and each has a reason."""

import ast

from tests.support.sources import ROOT, python_files

KNOWN = [
    {  # a generation and its attempts decide together: each is told of the other by name
        "edge.driver",
        "edge.admission.holdings",
        "edge.attempts.announcing",
        "edge.attempts.attempt",
        "edge.attempts.attempt_result",
        "edge.attempts.judging",
        "edge.attempts.race",
        "edge.attempts.stopping",
        "edge.driving.ending",
    },
    {  # what the service hands itself to, so that a generation is born in one place
        "edge.service",
        "edge.driving.successor",
        "edge.driving.tools",
        "edge.idempotency.once",
    },
]


def circles(imports):
    """Give the sets of modules that reach one another, largest first."""

    def reached(module):
        seen, left = set(), [module]
        while left:
            fresh = imports[left.pop()] - seen
            seen |= fresh
            left += fresh
        return seen

    reach = {module: reached(module) for module in imports}
    found = {frozenset(other for other in reach[m] if m in reach[other]) for m in imports if m in reach[m]}
    return sorted(found, key=len, reverse=True)


def imports_of_ours():
    """Give what each module of ours imports of ours, for type checking too; a module taken from its package is itself."""
    sources = {}
    for path in python_files():
        if "clients" not in path.parts:
            dotted = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
            sources[dotted] = (ROOT / path).read_text()
    return {module: taken(source, sources) - {module} for module, source in sources.items()}


def taken(source, ours):
    """Give the modules among ours that a source imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside & ours.keys() or {node.module}
    return found & ours.keys()


def test_no_other_circle():
    """A file is understood with what stands below it; where that cannot be, the circle is small and stands here."""
    assert circles(imports_of_ours()) == KNOWN


def test_the_check_itself():
    """Two circles are two, what only leads into one is none of it, and a file by itself is none."""
    imports = {"a": {"b"}, "b": {"a"}, "c": {"a", "d"}, "d": {"e"}, "e": {"f"}, "f": {"d"}, "g": set()}
    assert circles(imports) == [{"d", "e", "f"}, {"a", "b"}]
