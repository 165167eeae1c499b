"""What the project resource hands out: the LLM by fallback order, evaluations by name, no secrets."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kbeval_pipeline.errors import UserError
from kbeval_pipeline.resources.project import ProjectResource

LLM = {"provider": "openai", "model_name": "m", "api_key": "sk-very-secret"}


@pytest.fixture
def resource(write_project: Callable[..., Path]) -> Callable[..., ProjectResource]:
    def build(*, own: str | None, base: str | None, default: str | None) -> ProjectResource:
        knowledge_base = {"documents": {"files": "docs"}, **({"reranking_model": base} if base else {})}
        evaluation = {
            "knowledge_base": "docs", "test_table": "tables.questions", **({"llm": own} if own else {}),
        }  # fmt: skip
        project_file = write_project(
            llms={name: {**LLM, "model_name": name} for name in ("own", "base", "default")},
            default_llm=default,
            knowledge_bases={"docs": knowledge_base},
            evaluations={"nightly": evaluation},
        )
        return ProjectResource(project_file=str(project_file))

    return build


@pytest.mark.parametrize(
    ("own", "base", "default", "expected"),
    [
        ("own", "base", "default", "own"),
        (None, "base", "default", "base"),
        (None, None, "default", "default"),
    ],
)
def test_the_llm_is_the_evaluations_then_the_knowledge_bases_then_the_projects(
    resource: Callable[..., ProjectResource], own: str, base: str, default: str, expected: str
) -> None:
    project = resource(own=own, base=base, default=default)
    assert project.llm(project.evaluation("nightly")).model_name == expected


def test_no_llm_at_all_says_where_to_set_one(resource: Callable[..., ProjectResource]) -> None:
    project = resource(own=None, base=None, default=None)
    with pytest.raises(UserError, match="set `llm` in the evaluation, `reranking_model`"):
        project.llm(project.evaluation("nightly"))


def test_an_unknown_evaluation_names_the_nearest(resource: Callable[..., ProjectResource]) -> None:
    with pytest.raises(UserError, match='did you mean "nightly"'):
        resource(own=None, base=None, default=None).evaluation("nightyl")


def test_nothing_shows_the_key(resource: Callable[..., ProjectResource]) -> None:
    project = resource(own="own", base=None, default=None)
    shown = (
        repr(project)
        + str(project)
        + repr(project.project)
        + repr(project.llm(project.evaluation("nightly")))
    )
    assert "sk-very-secret" not in shown
