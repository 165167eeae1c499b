"""One partition for each evaluation of the project file and each saved statement."""

from dagster import StaticPartitionsDefinition

from kbeval_pipeline.project import Evaluation, Project
from kbeval_pipeline.statements import saved_evaluations


def all_evaluations(project: Project) -> dict[str, Evaluation]:
    """List the evaluations: the project file's, then those of earlier statements under other names.

    Args:
        project: the checked project.
    """
    return {**project.evaluations, **saved_evaluations(project), **project.evaluations}


def evaluation_partitions(project: Project) -> StaticPartitionsDefinition:
    """Make the partitions of all evaluation assets.

    Args:
        project: the checked project.
    """
    return StaticPartitionsDefinition(list(all_evaluations(project)))
