"""A schedule for each evaluation of the project file."""

from collections.abc import Callable

from dagster import DefaultScheduleStatus, RunRequest, ScheduleDefinition, ScheduleEvaluationContext

from kbeval_pipeline.jobs import EVALUATE, GENERATE_TEST_DATA
from kbeval_pipeline.project import Project


def evaluation_schedules(project: Project) -> list[ScheduleDefinition]:
    """Make the schedules: each requests one run, of the evaluation's partition.

    Args:
        project: the checked project.
    """
    schedules = []
    for name, evaluation in project.evaluations.items():
        schedule = evaluation.schedule or project.schedule
        schedules.append(
            ScheduleDefinition(
                name=schedule_name(name),
                job_name=EVALUATE if evaluation.evaluate else GENERATE_TEST_DATA,
                cron_schedule=schedule.cron,
                execution_timezone=schedule.timezone,
                default_status=DefaultScheduleStatus.RUNNING
                if schedule.enabled
                else DefaultScheduleStatus.STOPPED,
                execution_fn=_request(name),
                description=f"Runs the evaluation {name}.",
            )
        )
    return schedules


def schedule_name(evaluation: str) -> str:
    """Name the schedule of an evaluation: Dagster allows only letters, digits and underscores."""
    return "nightly_" + "".join(c if c.isalnum() and c.isascii() else f"_{ord(c):x}_" for c in evaluation)


def _request(evaluation: str) -> Callable[[ScheduleEvaluationContext], RunRequest]:
    def request(context: ScheduleEvaluationContext) -> RunRequest:
        return RunRequest(
            run_key=f"{evaluation}:{context.scheduled_execution_time.isoformat()}", partition_key=evaluation
        )

    return request
