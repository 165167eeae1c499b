"""What was spent, and how much may be."""

from dataclasses import dataclass

from kbeval_pipeline.resources.llms.errors import BudgetExceeded
from kbeval_pipeline.resources.llms.requests import Reply


@dataclass
class Usage:
    """Totals of one client; replies from the store cost nothing and are counted apart.

    Attributes:
        calls: calls that were answered.
        stored_replies: replies that needed no call.
        retries: calls made again after throttling or a passing fault.
        failed_calls: requests that failed for good.
        input_tokens: tokens sent.
        cached_tokens: those of them that the provider had in its cache.
        output_tokens: tokens received.
        known_cost: cost of the calls whose cost is known.
        calls_of_unknown_cost: the others.
        seconds: durations of the answered calls, added up.
    """

    calls: int = 0
    stored_replies: int = 0
    retries: int = 0
    failed_calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    known_cost: float = 0.0
    calls_of_unknown_cost: int = 0
    seconds: float = 0.0

    @property
    def cost(self) -> float | None:
        """Cost of all calls; None when that of any is unknown."""
        return None if self.calls_of_unknown_cost else self.known_cost

    def add(self, reply: Reply) -> None:
        """Count a reply.

        Args:
            reply: a new or a stored one.
        """
        if reply.stored:
            self.stored_replies += 1
            return
        self.calls += 1
        self.input_tokens += reply.input_tokens or 0
        self.cached_tokens += reply.cached_tokens or 0
        self.output_tokens += reply.output_tokens or 0
        self.seconds += reply.seconds
        if reply.cost is None:
            self.calls_of_unknown_cost += 1
        else:
            self.known_cost += reply.cost


class Budget:
    """A limit on what a run may cost; several clients of one event loop may share it.

    What a call will cost is an estimate, so the limit can be passed by the error of the calls in flight.

    Args:
        max_cost: the limit, in the currency of the prices.
    """

    def __init__(self, max_cost: float) -> None:
        self.max_cost = max_cost
        self.spent = 0.0
        self._reserved = 0.0

    def reserve(self, estimate: float) -> None:
        """Set money aside for a call.

        Args:
            estimate: what it will cost, roughly.

        Raises:
            BudgetExceeded: when it would pass the limit.
        """
        if self.spent + self._reserved + estimate > self.max_cost:
            raise BudgetExceeded(
                f"stopped before max_cost {self.max_cost:g} is passed: {self.spent:.6g} is spent; the "
                "replies so far are stored, run again with a higher max_cost to go on"
            )
        self._reserved += estimate

    def settle(self, estimate: float, cost: float | None) -> None:
        """Take back what was set aside, and book what was spent.

        Args:
            estimate: what was set aside.
            cost: what the call cost; None books the estimate.
        """
        self._reserved -= estimate
        self.spent += estimate if cost is None else cost
