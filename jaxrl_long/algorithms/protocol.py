"""What every algorithm provides, and the data that it and the trainer hand to each other."""

from typing import Any, Protocol

from flax import struct

from jaxrl_long.replay.ring import Ring
from jaxrl_long.replay.sampling import View
from jaxrl_long.typing import Array, Bool, Float, Int, Key, PyTree


@struct.dataclass
class Decision:
    """What a policy does with N observations."""

    choice: Array
    """What was drawn, [N, A] or [N]: probabilities are computed from it."""
    action: Array
    """What the environments get, made from the choice."""
    log_prob: Float[Array, " N"]
    """Log probability (density) of the action when it was drawn."""
    memory: PyTree
    """What the policy remembers until the next step, leaves [N, ...]; () without recurrence."""


@struct.dataclass
class Rollout:
    """T steps of N environments, leaves [T, N, ...] unless said otherwise."""

    obs: PyTree
    """What the policy saw, not normalised."""
    choice: Array
    log_prob: Float[Array, "T N"]
    reward: Float[Array, "T N"]
    terminated: Bool[Array, "T N"]
    truncated: Bool[Array, "T N"]
    age: Int[Array, "T N"]
    """Steps of the episode before this one."""
    final_obs: PyTree
    """The observation after the step, before any restart."""
    last_obs: PyTree
    """[N, ...]: what the policy will see next."""
    memory: PyTree
    """[N, ...]: the policy's memory at the first row."""

    @property
    def ended(self) -> Bool[Array, "T N"]:
        """The episode ended with this step, for whatever reason."""
        return self.terminated | self.truncated


Report = dict[str, Array]
"""Numbers [] about one update, float32, or int32 >= 0; the trainer averages them over a chunk, except those that end in `_count`, which it adds up."""


class Algorithm(Protocol):
    """A learner as pure functions; one file per algorithm. `axis` names the mesh axis the environments are split over, if any."""

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of an update."""
        ...

    def init(self, key: Key[Array, ""], obs: PyTree) -> Any:
        """The untrained learner; `obs` is one observation's shapes."""
        ...

    def initial_memory(self, number: int) -> PyTree:
        """The policy's memory of `number` environments at the start of an episode."""
        ...

    def act(self, learner: Any, obs: PyTree, memory: PyTree, restarted: Bool[Array, " N"], keys: Key[Array, " N"] | None) -> Decision:
        """Decide for N observations; without keys deterministically. The one path of training, evaluation and restored policies."""
        ...

    def ring_fields(self, learner: Any, rollout: Rollout) -> dict[str, PyTree]:
        """What of a rollout the ring keeps, leaves [T, N, ...]."""
        ...

    def action(self, fields: dict[str, PyTree]) -> Array:
        """What the environments got in rows of the ring."""
        ...

    def improve(
        self, learner: Any, rollout: Rollout, replay: View, key: Key[Array, ""], progress: Float[Array, ""], axis: str | None
    ) -> tuple[Any, Ring, Report]:
        """Learn from the rollout and the ring, whose latest rollout it already is. `progress` is the share of the run that is done.

        The ring is handed back, with new priorities where the algorithm gives them.
        """
        ...

    def observe(self, learner: Any, rollout: Rollout, axis: str | None) -> Any:
        """The learner whose observation moments have seen the rollout."""
        ...
