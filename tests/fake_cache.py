"""A LangChain cache in a folder, one file for each reply."""

import hashlib
from pathlib import Path
from typing import Any

from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.outputs import Generation


class FileCache(BaseCache):
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)

    def _file(self, prompt: str, llm_string: str) -> Path:
        return self.folder / hashlib.sha256(f"{prompt}{llm_string}".encode()).hexdigest()

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        file = self._file(prompt, llm_string)
        return [Generation(text=file.read_text(encoding="utf-8"))] if file.exists() else None

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        self._file(prompt, llm_string).write_text(return_val[0].text, encoding="utf-8")

    def clear(self, **kwargs: Any) -> None:
        for file in self.folder.iterdir():
            file.unlink()
