"""The generated pages say what the code says."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["project_file", "tables"])
def test_generated_pages_are_current(generator: ModuleType, page: str) -> None:
    written = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    assert written == getattr(generator, f"{page}_page")(), "run python docs/generate.py"
