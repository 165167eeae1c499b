"""The base of every model of the project file: unknown keys are refused with the nearest known one."""

import difflib
import re
from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

NAME_PATTERN = r"^[A-Za-z0-9_.-]+$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Flag = Annotated[bool, Field(strict=True)]
PositiveInt = Annotated[int, Field(strict=True, ge=1)]
Seed = Annotated[int, Field(strict=True, ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known names there are, and which one was probably meant.

    Args:
        word: the name that was given.
        known: the names that would have been right.

    Returns:
        A clause for the end of a message, such as `did you mean "top_k"? (known: llm, top_k)`.
    """
    names = sorted(known)
    listed = f"known: {', '.join(names)}" if names else "none is defined"
    lowered = {name.lower(): name for name in names}
    match = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.5)
    return f'did you mean "{lowered[match[0]]}"? ({listed})' if match else f"({listed})"


class Settings(BaseModel):
    """A frozen model that refuses unknown keys and names the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, hide_input_in_errors=True)

    @model_validator(mode="wrap")
    @classmethod
    def _name_nearest_key(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            known = {field.alias or name for name, field in cls.model_fields.items()}
            details: list[InitErrorDetails] = []
            for item in error.errors(include_url=False):
                kind: str | PydanticCustomError = item["type"]
                if kind == "extra_forbidden" and len(item["loc"]) == 1:
                    hint = nearest(str(item["loc"][0]), known)
                    kind = PydanticCustomError("unknown_key", "unknown key, {hint}", {"hint": hint})
                else:
                    kind = PydanticCustomError("invalid", "{message}", {"message": item["msg"]})
                details.append(InitErrorDetails(type=kind, loc=item["loc"], input=None))
            raise ValidationError.from_exception_data(cls.__name__, details) from None


_PART = re.compile(r'"((?:[^"]|"")+)"|`([^`]+)`|([^."`\s][^."`]*)')


class TableName(BaseModel):
    """A table of a data source: `datasource.table` or `datasource.schema.table`.

    Parts may be quoted with double quotes or back-ticks.
    """

    model_config = ConfigDict(frozen=True)

    data_source: str
    schema_name: str | None = None
    table: str

    @classmethod
    def parse(cls, text: str) -> "TableName":
        """Read a dotted name.

        Args:
            text: the name as written in the project file or a statement.

        Returns:
            The parts of the name, unquoted.

        Raises:
            ValueError: when a part is missing; the message names it.
        """
        parts: list[str] = []
        position = 0
        while match := _PART.match(text, position):
            double, back, bare = match.groups()
            parts.append(double.replace('""', '"') if double else (back or bare.strip()))
            position = match.end()
            if position == len(text):
                break
            if text[position] != ".":
                position = -1
                break
            position += 1
        if position != len(text) or not parts:
            raise ValueError(f'"{text}" is not a table name, expected datasource.table')
        if len(parts) == 1:
            raise ValueError(f'"{text}" lacks the data source, expected datasource.table')
        if len(parts) > 3:
            raise ValueError(f'"{text}" has too many parts, expected datasource.schema.table at most')
        return cls(data_source=parts[0], schema_name=parts[1] if len(parts) == 3 else None, table=parts[-1])

    @property
    def local_name(self) -> str:
        """The name inside the data source, for messages."""
        return f"{self.schema_name}.{self.table}" if self.schema_name else self.table

    def __str__(self) -> str:
        """The dotted name, without quotes."""
        return f"{self.data_source}.{self.local_name}"


def _check_table_name(text: str) -> str:
    TableName.parse(text)
    return text


TableReference = Annotated[str, AfterValidator(_check_table_name)]
