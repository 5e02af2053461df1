"""Soft actor-critic: learns from any stored step, for worlds whose steps are dear.

Source: Haarnoja et al. 2018, arXiv:1812.05905, with a temperature that tunes itself; for discrete actions Christodoulou 2019,
arXiv:1910.07207, which takes expectations instead of drawing. Twin critics: Fujimoto et al. 2018, arXiv:1802.09477.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxrl_long.algorithms.protocol import Decision, Report, Rollout
from jaxrl_long.config import AlgorithmSettings, ReplaySettings
from jaxrl_long.learning.distributions import Categorical, Distribution
from jaxrl_long.learning.moments import Moments, moments_like, moved, normalize, observe
from jaxrl_long.learning.networks import MLP, entry
from jaxrl_long.learning.returns import lookahead_discount
from jaxrl_long.replay import priority
from jaxrl_long.replay.hindsight import Goals, relabelled
from jaxrl_long.replay.ring import Ring
from jaxrl_long.replay.sampling import Place, Transition, View
from jaxrl_long.typing import Array, Bool, Float, Key, PyTree

CRITICS = 2
"""Their minimum is believed: what only one of them promises is mostly an error."""


@struct.dataclass
class SACLearner:
    """Everything SAC knows; the policy handed over is `params["policy"]` with `moments`."""

    params: dict[str, PyTree]
    """`policy`, `critic` (leaves [2, ...]) and `temperature` (log α, [])."""
    target: PyTree
    """A moving average of the critics."""
    optimizer: PyTree
    moments: PyTree
    """Running moments of each entry of the observation."""
    reward: Moments
    """Running moments of the reward [1]: the critics work in its root mean square."""


@dataclass(frozen=True)
class SAC:
    """Soft actor-critic with the given settings, for one kind of action. A static part of the fused program."""

    settings: AlgorithmSettings
    replay: ReplaySettings
    distribution: Distribution
    samples_per_update: int
    """Environment steps of an update, over all devices."""
    lent_share: float = 0.0
    """Share of a batch that is drawn from what the archive on disk lends."""
    goals: Goals | None = None
    """Of a world that has goals: a share of what is drawn is learnt from as if what was reached later had been the goal."""

    @property
    def discount(self) -> float:
        """γ, from `lookahead` where it is given."""
        return lookahead_discount(float(self.settings.lookahead), self.settings.discount)

    @property
    def discrete(self) -> bool:
        """Whether critics name a value for each action, instead of reading one."""
        return isinstance(self.distribution, Categorical)

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of an update."""
        return max(1, round(self.settings.update_ratio * self.samples_per_update))

    @property
    def policy(self) -> MLP:
        """Observation -> parameters of the distribution."""
        return MLP(tuple(self.settings.policy_layers), self.distribution.num_params, self.settings.activation, out_scale=0.01)

    @property
    def critic(self) -> MLP:
        """Observation and action -> value, or observation -> value of each action."""
        outputs = self.distribution.num_params if self.discrete else 1
        return MLP(tuple(self.settings.value_layers), outputs, self.settings.activation, layer_norm=self.settings.layer_norm)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam for everything."""
        return optax.chain(optax.clip_by_global_norm(self.settings.max_grad_norm), optax.scale_by_adam(eps=1e-8))

    @property
    def target_entropy(self) -> float:
        """Nats that the temperature aims at."""
        if self.discrete:
            return self.settings.target_entropy * math.log(self.distribution.num_params)
        return -self.settings.target_entropy * self.distribution.num_params / 2

    def init(self, key: Key[Array, ""], obs: PyTree) -> SACLearner:
        """An untrained learner for observations of these shapes."""
        policy_key, critic_key = jax.random.split(key)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), obs)
        seen = self._critic_input(zeros, jnp.zeros(0 if self.discrete else self.distribution.num_params // 2))
        params = {
            "policy": self.policy.init(policy_key, entry(zeros, "policy")),
            # One after the other: a batch of orthogonal matrices is shared out over threads that wait for one another (`devices.prepare`).
            "critic": jax.lax.map(lambda key: self.critic.init(key, seen), jax.random.split(critic_key, CRITICS)),
            "temperature": jnp.log(jnp.float32(self.settings.temperature)),
        }
        target = jax.tree.map(jnp.copy, params["critic"])
        return SACLearner(params, target, self.optimizer.init(params), moments_like(zeros), Moments.zeros((1,)))

    def initial_memory(self, number: int) -> PyTree:
        """Nothing: the networks look at the present only."""
        del number
        return ()

    def act(self, learner: SACLearner, obs: PyTree, memory: PyTree, restarted: Bool[Array, " N"], keys: Key[Array, " N"] | None) -> Decision:
        """Draw an action per observation [N, ...], or take the most likely one where no keys are given."""
        del restarted
        seen = normalize(learner.moments, obs, self.settings.clip_obs)
        params: Any = self.policy.apply(learner.params["policy"], entry(seen, "policy"))
        choice = self.distribution.mode(params) if keys is None else self.distribution.sample(params, keys)
        return Decision(choice, self.distribution.action(choice), self.distribution.log_prob(params, choice), memory)

    def ring_fields(self, learner: SACLearner, rollout: Rollout) -> dict[str, PyTree]:
        """What a later update needs of these steps."""
        del learner
        return {"obs": rollout.obs, "action": self.distribution.action(rollout.choice), "reward": rollout.reward}

    def action(self, fields: dict[str, PyTree]) -> Array:
        """What the environments got in rows of the ring."""
        return fields["action"]

    def observe(self, learner: SACLearner, rollout: Rollout, axis: str | None) -> SACLearner:
        """The learner whose moments have seen the rollout."""
        rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rollout.obs)
        return replace(learner, moments=observe(learner.moments, rows, axis), reward=moved(learner.reward, rollout.reward.reshape(-1, 1), axis))

    def improve(
        self, learner: SACLearner, rollout: Rollout, replay: View, key: Key[Array, ""], progress: Float[Array, ""], axis: str | None
    ) -> tuple[SACLearner, Ring, Report]:
        """Gradient steps on transitions drawn from the ring; none before it holds `replay.begin` of them."""
        del rollout
        rate = jnp.float32(self.settings.learning_rate) * (jnp.maximum(1.0 - progress, 0.0) if self.settings.schedule == "linear" else 1.0)
        # Devices draw from their own shares of the ring.
        key = jax.random.fold_in(key, jax.lax.axis_index(axis)) if axis else key

        def step(carry: tuple[SACLearner, Ring], key: Key[Array, ""]) -> tuple[tuple[SACLearner, Ring], Report]:
            learner, ring = carry
            learner, ring, report = self._step(learner, replace(replay, ring=ring), key, rate, axis)
            return (learner, ring), report

        def steps() -> tuple[tuple[SACLearner, Ring], Report]:
            return jax.lax.scan(step, (learner, replay.ring), jax.random.split(key, self.gradient_steps))

        shapes = jax.eval_shape(steps)[1]

        def waiting() -> tuple[tuple[SACLearner, Ring], Report]:
            return (learner, replay.ring), jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        (learner, ring), reports = jax.lax.cond(replay.ready, steps, waiting)
        report = {name: jnp.sum(x) if name.endswith("_count") else jnp.mean(x) for name, x in reports.items()}
        return learner, ring, _mean(report, axis) | {"learning_rate": rate, "reward_rms": self._reward_unit(learner)}

    def _step(self, learner: SACLearner, replay: View, key: Key[Array, ""], rate: Array, axis: str | None) -> tuple[SACLearner, Ring, Report]:
        """One gradient step of critics, policy and temperature together."""
        draw_key, next_key, policy_key, goal_key = jax.random.split(key, 4)
        number = self.settings.batch // (jax.lax.axis_size(axis) if axis else 1)
        place, probability = replay.draw(draw_key, number)
        importance = priority.importance(probability, replay.ring.filled * replay.ring.end.shape[1], self.replay.importance)
        batch = replay.transitions(place, self.settings.n_step, self.discount)
        if self.goals is not None:
            batch = relabelled(replay, place, batch, self.goals, goal_key, self.replay.hindsight, self.replay.hindsight_discount)
        lent = round(self.lent_share * number) if isinstance(replay.lent, Transition) else 0
        if lent:
            old = _some(replay.lent, jax.random.fold_in(draw_key, 1), lent)
            batch, importance = _exchanged(batch, old), importance.at[:lent].set(jnp.where(old.usable, 1.0, importance[:lent]))
        target = self._target(learner, batch, next_key)
        weight = importance * batch.usable

        gradient, (report, error) = jax.grad(lambda params: self._loss(params, learner, batch, target, weight, policy_key), has_aux=True)(learner.params)
        gradient = _mean(gradient, axis)
        norm = optax.tree.norm(gradient)
        usable = jnp.isfinite(norm)

        def changed() -> tuple[PyTree, PyTree, PyTree]:
            direction, optimizer = self.optimizer.update(gradient, learner.optimizer)
            params: Any = optax.apply_updates(learner.params, optax.tree.scale(-rate, direction))
            return params, optimizer, optax.incremental_update(params["critic"], learner.target, self.settings.target_rate)

        params, optimizer, averaged = jax.lax.cond(usable, changed, lambda: (learner.params, learner.optimizer, learner.target))
        finite = {name: jnp.where(usable, number, 0.0) for name, number in report.items()}
        report = {**finite, "grad_norm": jnp.where(usable, norm, 0.0), "skipped_count": 1.0 - usable, "unusable_count": jnp.sum(1.0 - batch.usable)}
        return replace(learner, params=params, optimizer=optimizer, target=averaged), self._prioritised(replay.ring, place.after(lent), error[lent:]), report

    def _prioritised(self, ring: Ring, place: Place, error: Array) -> Ring:
        """The ring with new priorities of the steps just learnt from: their errors, raised to the power of `prioritise`."""
        if not self.replay.prioritise:
            return ring
        usable = jnp.where(jnp.isfinite(error), error, 0.0) + 1e-6
        return replace(ring, priorities=priority.changed(ring.priorities, place.row, place.env, usable**self.replay.prioritise))

    def _reward_unit(self, learner: SACLearner) -> Array:
        """The root mean square of rewards so far: rewards need no hand scaling."""
        if not self.settings.normalize_reward:
            return jnp.float32(1.0)
        return jnp.where(learner.reward.count.as_float() > 0, jnp.sqrt(learner.reward.variance[0] + learner.reward.mean[0] ** 2 + 1e-12), 1.0)

    def _target(self, learner: SACLearner, batch: Transition, key: Key[Array, ""]) -> Array:
        """Y = R / unit + γᵐ (min Q′(s′, a′) − α log π(a′ | s′)), a′ ~ π."""
        seen = normalize(learner.moments, batch.next_obs, self.settings.clip_obs)
        alpha = jnp.exp(learner.params["temperature"])
        value = self._soft_value(learner.params["policy"], learner.target, seen, alpha, key)[0]
        return jax.lax.stop_gradient(batch.reward / self._reward_unit(learner) + batch.weight * value)

    def _soft_value(self, policy: PyTree, critic: PyTree, seen: PyTree, alpha: Array, key: Key[Array, ""]) -> tuple[Array, Array]:
        """E[min Q − α log π] under the policy, and its entropy, of observations [B, ...]: exact for discrete actions, of one draw otherwise."""
        logits: Any = self.policy.apply(policy, entry(seen, "policy"))
        if self.discrete:
            log_p = jax.nn.log_softmax(logits)
            least = jnp.min(self._values(critic, seen, None), axis=0)
            probability = jnp.exp(log_p)
            return jnp.sum(probability * (least - alpha * log_p), axis=-1), -jnp.sum(probability * log_p, axis=-1)
        choice = self.distribution.sample(logits, key)
        log_p = self.distribution.log_prob(logits, choice)
        least = jnp.min(self._values(critic, seen, self.distribution.action(choice)), axis=0)[..., 0]
        return least - alpha * log_p, -log_p

    def _loss(
        self, params: dict[str, PyTree], learner: SACLearner, batch: Transition, target: Array, weight: Array, key: Key[Array, ""]
    ) -> tuple[Array, tuple[Report, Array]]:
        """The critics' error, the policy's value and the temperature's balance; each moves its own parameters only."""
        seen = normalize(learner.moments, batch.fields["obs"], self.settings.clip_obs)
        action = batch.fields["action"]
        if self.discrete:
            values = self._values(params["critic"], seen, None)
            values = jnp.take_along_axis(values, jnp.broadcast_to(action, values.shape[:-1])[..., None], axis=-1)[..., 0]
        else:
            values = self._values(params["critic"], seen, action)[..., 0]
        error = values - target
        critic_loss = 0.5 * jnp.mean(weight * jnp.sum(error**2, axis=0))

        held = jax.lax.stop_gradient
        alpha = jnp.exp(held(params["temperature"]))
        value, entropy = self._soft_value(params["policy"], held(params["critic"]), seen, alpha, key)
        policy_loss = -jnp.mean(weight * value)
        temperature_loss = jnp.exp(params["temperature"]) * jnp.mean(weight * held(entropy - self.target_entropy))
        loss = critic_loss + policy_loss + temperature_loss
        report = {"value_loss": critic_loss, "policy_loss": policy_loss, "entropy": jnp.mean(entropy), "temperature": alpha, "value_mean": jnp.mean(values)}
        return loss, (report, jnp.max(jnp.abs(held(error)), axis=0))

    def _values(self, critic: PyTree, seen: PyTree, action: Array | None) -> Array:
        """Every critic's outputs [2, B, ...]."""
        read = self._critic_input(seen, action)
        return jax.vmap(lambda one: jnp.asarray(self.critic.apply(one, read)))(critic)

    def _critic_input(self, seen: PyTree, action: Array | None) -> Array:
        obs = entry(seen, "critic")
        return obs if self.discrete or action is None else jnp.concatenate([obs, action], axis=-1)


def _some(transitions: Transition, key: Key[Array, ""], number: int) -> Transition:
    """Any of them, each as likely as another."""
    pick = jax.random.randint(key, (number,), 0, transitions.usable.shape[0])
    return jax.tree.map(lambda leaf: leaf[pick], transitions)


def _exchanged(batch: Transition, old: Transition) -> Transition:
    """The batch with its first rows exchanged for those of `old` that are usable."""

    def first(new: Array, lent: Array) -> Array:
        number = lent.shape[0]
        usable = old.usable.reshape(-1, *[1] * (new.ndim - 1))
        return new.at[:number].set(jnp.where(usable, lent, new[:number]))

    return jax.tree.map(first, batch, old)


def _mean(tree: PyTree, axis: str | None) -> PyTree:
    """The mean over devices."""
    return jax.lax.pmean(tree, axis) if axis else tree
