"""Each layer imports only from those below it."""

import ast
from collections.abc import Iterator
from pathlib import Path

from keystead.stores import TABLE

PACKAGE = Path(__file__).parents[1] / "src" / "keystead"

# What each room of the package may import besides itself. The empty name is the package's own face
# (`import keystead`), which every layer above the stores may use.
STORES = {"catalogue", "deprecation", "errors", "extras"}
SCHEMA = STORES | {"stores", ""}
PARTS = SCHEMA | {"schema"}
HTTP = PARTS | {"parts"}
KITS = HTTP | {"http"}
DEMO = KITS | {"kits"}
SERVER = DEMO | {"demo"}
TOP = SERVER | {"server", "gateway"}
MAY_IMPORT = {
    "": SCHEMA | {"schema", "parts"},
    "catalogue": set[str](),
    "deprecation": set[str](),
    "errors": {"deprecation"},
    "extras": {"deprecation", "errors"},
    "stores": STORES,
    "schema": SCHEMA,
    "parts": PARTS,
    "http": HTTP,
    "kits": KITS,
    "demo": DEMO,
    "server": SERVER,
    "gateway": DEMO,  # beside the server: neither imports the other
    "cli": TOP | {"console"},
    "__main__": {"cli", "deprecation", "errors", "extras"},
    "console": TOP,
    "integrations": TOP,
    "testing": SCHEMA | {"schema"},
}


def room(dotted: str) -> str:
    """`keystead.stores.sqlite` -> `stores`; the package itself -> the empty name."""
    return dotted.split(".")[1] if "." in dotted else ""


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path: Path) -> Iterator[str]:
    """The modules of Keystead that a file imports, wherever in the file it does so."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(), path.name)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "keystead")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join((*parents, base)).rstrip(".")
            if base == "keystead":
                # `from keystead import stores` names a room, `... import connect` a thing of the face.
                yield from (f"keystead.{a.name}" if is_room(a.name) else "keystead" for a in node.names)
            elif base.startswith("keystead."):
                yield base


def is_room(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def test_modules_import_only_from_the_layers_below_them() -> None:
    modules = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    homeless = [name for name in modules if room(name) not in MAY_IMPORT]
    assert homeless == [], "these are in no layer of the design; add the layer to MAY_IMPORT with what it may import"
    upward = {
        name: found
        for name, path in modules.items()
        if (found := [one for one in imports(path) if room(one) not in MAY_IMPORT[room(name)] | {room(name)}])
    }
    assert upward == {}


# --- services know no HTTP -----------------------------------------------------------------------------------

HTTP_MODULES = ("keystead.http", "fastapi", "starlette")


def test_services_and_parts_know_no_http() -> None:
    below = {path: module_name(path).split(".") for path in sorted(PACKAGE.rglob("*.py"))}
    services = [path for path, name in below.items() if name[1:2] == ["parts"] or "service" in name]
    assert len(services) > 50
    found = {
        module_name(path): [
            node.module
            for node in ast.walk(ast.parse(path.read_text(), path.name))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(HTTP_MODULES)
        ]
        for path in services
    }
    assert {name: modules for name, modules in found.items() if modules} == {}, "translate HTTP in the routes"


# --- nothing above the schema talks to a store ---------------------------------------------------------------

# Not `gateway`: it translates the commands of other languages' clients, which are its data. What it writes itself, its
# tokens, it writes by typed verbs.
ABOVE_SCHEMA = ("parts", "http", "kits", "demo", "server", "cli", "integrations", "console")
# `MeteredStore` is a store itself: it passes on what it is asked.
STORES_THEMSELVES = {"keystead.server.metered_store"}
VERBS_OF_STORES = {"run", "atomically", "prepared"}
STEPS = {
    *("Step", "Command", "TimedCommand", "Call", "Required", "Holds", "FieldHolds", "Absent", "AtMost", "MoreThan"),
    *("Still", "required", "holds", "field_holds", "absent", "at_most", "more_than", "still"),
}


def raw_access(path: Path) -> Iterator[str]:
    """Where a file bypasses the schema: a command as a tuple, a verb of a store, what a store can do at once."""
    for node in ast.walk(ast.parse(path.read_text(), path.name)):
        match node:
            case ast.Tuple(elts=[ast.Constant(value=str(name)), second, *_]) if name in TABLE and not _is_word(second):
                yield f"line {node.lineno}: the command {name}"
            case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=verb) if (
                verb in VERBS_OF_STORES and owner.lstrip("_") in ("store", "source", "target")
            ):
                yield f"line {node.lineno}: {owner}.{verb}"
            case ast.Attribute(value=ast.Attribute(attr="guarantees") | ast.Name(id="guarantees"), attr="atomic"):
                yield f"line {node.lineno}: guarantees.atomic"
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[:2] in (
                ["keystead"],
                ["keystead", "stores"],
            ):
                yield from (f"line {node.lineno}: imports {one.name}" for one in names if one.name in STEPS)


def _is_word(node: ast.expr) -> bool:
    """A literal in capitals, as in ("GET", "HEAD"): methods of HTTP. The key of a command is no such thing."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isupper()


def test_nothing_above_the_schema_bypasses_it() -> None:
    found = {
        module_name(path): [*raw_access(path)]
        for path in sorted(PACKAGE.rglob("*.py"))
        if room(module_name(path)) in ABOVE_SCHEMA and module_name(path) not in STORES_THEMSELVES
    }
    assert {name: where for name, where in found.items() if where} == {}, "use typed verbs, and procedures"
