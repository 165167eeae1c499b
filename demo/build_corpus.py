"""Write Python's own help as a folder of plain-text documents: the corpus of the offline demo.

Usage: ``python demo/build_corpus.py --out .kbeval/demo/python_help``

Modules with a source are read with ``ast`` and never imported; those written in C are imported and read
through their docstrings. One Python version always gives the same bytes.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import importlib
import inspect
import re
import shutil
import sys
import sysconfig
import tempfile
import warnings
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

FOLDERS = ("builtins", "classes", "modules", "topics")
MIN_CHARS = {"topics": 150, "modules": 100, "classes": 200, "builtins": 150}
SKIPPED_TOPICS = {"else"}  # the same text as "if"
# Aliases of other modules, easter eggs, optional parts of an installation, and what Python 3.12/3.13 removed.
SKIPPED_MODULES = """
    aifc antigravity asynchat asyncore audioop builtins cgi cgitb chunk crypt curses distutils encodings
    ensurepip genericpath idlelib imghdr imp lib2to3 mailcap msilib msvcrt nis nntplib nt ntpath nturl2path
    opcode ossaudiodev pipes posix posixpath pydoc_data pyexpat readline smtpd sndhdr spwd sre_compile
    sre_constants sre_parse sunau telnetlib test this tkinter turtle turtledemo uu winreg winsound xdrlib
"""
SUBMODULES = """
    collections.abc concurrent.futures concurrent.futures.process concurrent.futures.thread dbm.dumb
    email.charset email.encoders email.generator email.header email.headerregistry email.message
    email.mime.base email.mime.multipart email.mime.text email.parser email.policy email.utils html.entities
    html.parser http.client http.cookiejar http.cookies http.server importlib.abc importlib.machinery
    importlib.metadata importlib.resources importlib.util json.decoder json.encoder json.tool logging.config
    logging.handlers multiprocessing.connection multiprocessing.context multiprocessing.managers
    multiprocessing.pool multiprocessing.process multiprocessing.queues multiprocessing.shared_memory
    multiprocessing.sharedctypes multiprocessing.synchronize os.path unittest.case unittest.loader
    unittest.mock unittest.runner unittest.suite urllib.error urllib.parse urllib.request urllib.response
    urllib.robotparser wsgiref.handlers wsgiref.headers wsgiref.simple_server wsgiref.util wsgiref.validate
    xml.dom.minidom xml.dom.pulldom xml.etree.ElementTree xml.sax.handler xml.sax.saxutils xml.sax.xmlreader
    xmlrpc.client xmlrpc.server
"""
SOURCE_OF = {"os.path": "posixpath"}
STDLIB = Path(sysconfig.get_path("stdlib"))


@dataclass(frozen=True)
class Member:
    """A function, method or class; ``origin`` names where it is defined, whatever re-exports it."""

    origin: str
    signature: str
    doc: str = ""
    methods: tuple[Member, ...] | None = None  # None for a function

    def entry(self) -> str:
        """Return the signature with the docstring indented below it."""
        body = "\n".join(f"    {line}" if line else "" for line in self.doc.splitlines())
        return f"{self.signature}\n{body}" if body else self.signature


@dataclass
class Module:
    """What one module offers: its docstring and its public members by name."""

    doc: str = ""
    members: dict[str, Member] = field(default_factory=dict)


def clean(text: object) -> str:
    """Return a docstring without its indentation, trailing blanks and memory addresses."""
    lines = inspect.cleandoc(text).splitlines() if isinstance(text, str) else []
    joined = "\n".join(line.rstrip() for line in lines).strip()
    return re.sub(r" at 0x[0-9a-fA-F]+", "", joined).replace("<unrepresentable>", "...")


def def_signature(node: ast.FunctionDef | ast.AsyncFunctionDef, *, method: bool = False) -> str:
    """Return the one-line signature of a definition in source, a method's without its first argument."""
    labels = [ast.unparse(item).split("(")[0].split(".")[-1] for item in node.decorator_list]
    if method and {"property", "cached_property"} & set(labels):
        return f"{node.name} (property)"
    arguments = ast.unparse(node.args)
    if method and "staticmethod" not in labels:
        arguments = re.sub(r"^\w+(: [\w.]+)?(, /)?(, |$)", "", arguments)
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{prefix}{node.name}({arguments})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")


def from_source(module: str, node: ast.stmt) -> Member | None:
    """Return the member that a top-level statement of a module defines, if any."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return Member(f"{module}.{node.name}", def_signature(node), clean(ast.get_docstring(node)))
    if not isinstance(node, ast.ClassDef):
        return None
    methods: dict[str, Member] = {}
    arguments = ""
    for item in node.body:
        if not isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        member = Member(item.name, def_signature(item, method=True), clean(ast.get_docstring(item)))
        if item.name == "__init__" or (item.name == "__new__" and not arguments):
            arguments = member.signature.removeprefix(item.name).split(" -> ")[0]
        if item.name[0] != "_" or (item.name == "__init__" and member.doc):
            methods.setdefault(item.name, member)
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    signature = f"{node.name}{arguments}" + (f"\nBases: {bases}" if bases else "")
    doc = clean(ast.get_docstring(node))
    return Member(f"{module}.{node.name}", signature, doc, tuple(methods.values()))


def from_object(name: str, value: object, *, method: bool = False) -> Member | None:
    """Return the member that a live object of a C module or class is, if it is a function or a class."""
    doc = clean(getattr(value, "__doc__", None))
    origin = f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', name)}"
    if method and inspect.isdatadescriptor(value):
        return Member(origin, f"{name} (attribute)", doc) if doc else None
    text = getattr(value, "__text_signature__", None)
    signature = re.sub(r"\(\$?(self|module|type)(, /)?(, )?", "(", clean(text)) if text else ""
    if inspect.isclass(value) and not method:
        public = sorted((item for item in vars(value).items() if item[0][0] != "_"), key=itemgetter(0))
        methods = [from_object(key, item, method=True) for key, item in public]
        return Member(origin, name + signature, doc, tuple(item for item in methods if item))
    if not (inspect.isroutine(value) or isinstance(value, staticmethod | classmethod)):
        return None
    first, _, rest = doc.partition("\n")  # older C docstrings open with the signature
    if not signature and re.match(rf"([\w.]+\.)?{re.escape(name)}\(", first):
        return Member(origin, first, rest.strip("\n"))
    return Member(origin, name + (signature or "(...)"), doc)


def source_path(module: str) -> Path | None:
    """Return the source file of a standard-library module, None when it has none."""
    base = STDLIB.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return a module's statements in order, those within its ``if`` and ``try`` blocks included."""
    found: list[ast.stmt] = []
    for node in body:
        blocks: list[ast.stmt] = []
        if isinstance(node, ast.If | ast.Try):
            blocks = [*node.body, *node.orelse]
        if isinstance(node, ast.Try):
            blocks += [item for handler in node.handlers for item in handler.body]
        found += statements(blocks) if blocks else [node]
    return found


def exported(nodes: list[ast.stmt]) -> set[str] | None:
    """Return the names of ``__all__``, or None where it is absent or computed."""
    names: set[str] | None = None
    for node in nodes:
        value: ast.expr | None = None
        if isinstance(node, ast.Assign | ast.AugAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            value = node.value if ast.unparse(target) == "__all__" else None
        elif isinstance(node, ast.Expr) and ast.unparse(node.value).startswith("__all__.extend("):
            value = node.value.args[0] if isinstance(node.value, ast.Call) else None
        if value is not None:
            try:
                names = (names or set()) | set(ast.literal_eval(value))
            except ValueError:
                return None
    return names


def read_module(name: str, known: dict[str, Module | None]) -> Module | None:
    """Return what a module offers, None where this installation lacks it."""
    if name not in known:
        known[name] = None  # ends a circle of imports
        path = source_path(SOURCE_OF.get(name, name))
        known[name] = read_c_module(name) if path is None else read_source(name, path, known)
    return known[name]


def read_c_module(name: str) -> Module | None:
    """Import a module without a source and read its docstrings."""
    try:
        with warnings.catch_warnings(action="ignore"):
            module = importlib.import_module(name)
    except ImportError:
        return None
    read = Module(clean(module.__doc__))
    for key, value in sorted(vars(module).items()):
        foreign = inspect.isfunction(value) and value.__module__ != name  # a hook that another package set
        member = None if foreign or key[0] == "_" else from_object(key, value)
        if member:
            read.members[key] = member
    return read


def read_source(name: str, path: Path, known: dict[str, Module | None]) -> Module:
    """Read a module's source, following what it re-exports from its package and from private modules."""
    tree = ast.parse(path.read_bytes())
    nodes = statements(tree.body)
    names, is_package = exported(nodes), path.name == "__init__.py"
    package = name if is_package else name.rpartition(".")[0]
    module = Module(clean(ast.get_docstring(tree)))
    for node in nodes:
        member = from_source(name, node)
        if member and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            module.members.setdefault(node.name, member)
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            parent = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            target = ".".join([*parent, *filter(None, [node.module])])
            star = node.names[0].name == "*"
            inside = f"{target}.".startswith(f"{name.partition('.')[0]}.") and (is_package or names)
            private = target[0] == "_" and (names or target.startswith(f"_{name}"))
            if target != name and (star or inside or private):
                wanted = {item.name: item.asname or item.name for item in node.names}
                if star or names is None or names & set(wanted.values()):
                    source = read_module(target, known)
                    for key, member in source.members.items() if source else ():
                        if star or key in wanted:
                            module.members.setdefault(wanted.get(key, key), member)
    for key in list(module.members):
        if key[0] == "_" or key in ("main", "test") or (names is not None and key not in names):
            del module.members[key]
    return module


def topic_documents() -> dict[str, str]:
    """Return the language reference by topic, each without the sections that are topics themselves."""
    from pydoc_data.topics import topics  # noqa: PLC0415 - a large module that only this function needs

    texts = {key: text.strip() + "\n" for key, text in topics.items() if key not in SKIPPED_TOPICS}
    # The same section is underlined with another character where it is nested: compare without that.
    flat = {
        key: re.sub(r"^([*=\-~^])\1+$", lambda hit: "=" * len(hit[0]), text, flags=re.M)
        for key, text in texts.items()
    }
    documents = {}
    for key, text in texts.items():
        kept, plain = text, flat[key]
        for other in sorted(flat, key=lambda item: (-len(flat[item]), item)):
            start = plain.find(flat[other]) if len(flat[other]) < len(flat[key]) else -1
            if start >= 0:
                end = start + len(flat[other])
                kept, plain = kept[:start] + kept[end:], plain[:start] + plain[end:]
        documents[f"topics/{key}.txt"] = re.sub(r"\n{3,}", "\n\n", kept)
    return documents


def builtin_documents() -> dict[str, Member]:
    """Return the functions and classes of ``builtins`` by name, exceptions included."""
    members = {}
    for name, value in sorted(vars(builtins).items()):
        member = from_object(name, value) if isinstance(value, type | type(len)) else None
        if member and name[0] != "_" and name == value.__name__:  # not IOError, another name of OSError
            members[name] = member
    return members


def class_text(title: str, member: Member) -> str:
    """Return the document of one class, or of one built-in function."""
    signature = "" if f".{title}".partition(" - ")[0].endswith(f".{member.signature}") else member.signature
    parts = [title, signature, member.doc, *(item.entry() for item in member.methods or ())]
    return "\n\n".join(part for part in parts if part) + "\n"


def module_text(name: str, module: Module, functions: list[Member], classes: list[str]) -> str:
    """Return the document of one module: its docstring, its functions in full, its classes by name."""
    parts = [f"{name} - module", module.doc, *(["Functions"] if functions else [])]
    parts += [item.entry() for item in functions]
    parts += [f"Classes\n\n    {', '.join(classes)}"] if classes else []
    return "\n\n".join(part for part in parts if part) + "\n"


def documents() -> dict[str, bytes]:
    """Return every document's bytes by its path relative to the corpus folder."""
    texts = topic_documents()
    known: dict[str, Module | None] = {}
    seen = set()
    for name, member in builtin_documents().items():
        seen.add(member.origin)
        texts[f"builtins/{name}.txt"] = class_text(f"{name} - built-in", member)
    public = {name for name in sys.stdlib_module_names if name[0] != "_"} - set(SKIPPED_MODULES.split())
    for name in sorted(public | set(SUBMODULES.split()), key=lambda item: (item.count("."), item)):
        module = read_module(name, known)
        if module is None:
            continue
        functions, classes = [], []
        own = {key: item.origin.endswith(f".{key}") for key, item in module.members.items()}
        for key, item in sorted(module.members.items(), key=lambda pair: not own[pair[0]]):
            classes += [key] if item.methods is not None else []
            if item.origin in seen:  # told under the name that came first: its own, in the outermost module
                continue
            seen.add(item.origin)
            if item.methods is None:
                functions.append(item)
            elif sum(len(part.doc) for part in (item, *item.methods)) >= MIN_CHARS["classes"]:
                texts[f"classes/{name}.{key}.txt"] = class_text(f"{name}.{key} - class", item)
        texts[f"modules/{name}.txt"] = module_text(name, module, functions, classes)
    kept: dict[str, bytes] = {}
    used: set[str] = set()
    for name, text in sorted(texts.items()):
        folder, content = name.partition("/")[0], text.partition("\n")[2].strip()
        path = re.sub(r"[^A-Za-z0-9_./-]", "_", name)
        if len(content) >= MIN_CHARS[folder] and not {path.casefold(), content} & used:
            used |= {path.casefold(), content}
            kept[path] = text.encode("utf-8", "backslashreplace")
    return kept


def write(corpus: dict[str, bytes], out: Path) -> bool:
    """Bring the folder to exactly these documents; return whether anything had to change.

    Raises:
        SystemExit: The folder holds other files, which a replacement would lose.
    """
    old = {path.relative_to(out).as_posix(): path for path in out.rglob("*") if path.is_file()}
    if out.is_file() or any(path.split("/")[0] not in FOLDERS for path in old):
        raise SystemExit(f"{out} is or holds something other than this corpus: choose another folder")
    same = {path for path, file in old.items() if corpus.get(path) == file.read_bytes()}
    if same == set(corpus) == set(old):
        return False
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as temporary:
        fresh = Path(temporary, "new")
        for path, content in corpus.items():
            file = fresh / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if path in same:
                shutil.copy2(old[path], file)  # keeps its time of change
            else:
                file.write_bytes(content)
        if out.exists():
            out.rename(Path(temporary, "old"))
        fresh.rename(out)
    return True


def main() -> None:
    """Build the corpus and say what was done."""
    parser = argparse.ArgumentParser(description="Write Python's own help as a folder of text documents.")
    parser.add_argument("--out", type=Path, default=Path(".kbeval/demo/python_help"), help="folder to write")
    out = parser.parse_args().out.absolute()
    corpus = documents()
    changed = write(corpus, out)
    print(f"{len(corpus)} documents {'written to' if changed else 'unchanged in'} {out.name}")


if __name__ == "__main__":
    main()
