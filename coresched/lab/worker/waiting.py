"""The waiting queue of a worker whose clients may leave."""

from coresched.core.prefix import RoutingPrefixPolicy, Waiting
from coresched.lab.simulator.twin.waiting import WaitingQueue


class LiveQueue(WaitingQueue):
    """`WaitingQueue` with the compiled policy, from which a request may also leave unanswered."""

    prefix_policy_class = RoutingPrefixPolicy
    queued_class = Waiting

    def withdraw(self, number: int) -> bool:
        """Take the request out. Returns False where it does not wait."""
        for place in range(len(self.requests)):
            if self.at(place) == number:
                del self.requests[place]
                return True
        return False

    def forget(self, number: int) -> None:
        """The request is over."""
        del self.turn_of[number]
