"""Proximal policy optimisation that bootstraps exactly at every cut and needs no hand-scaled rewards.

Source: Schulman et al. 2017, arXiv:1707.06347.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax.flatten_util import ravel_pytree

from jaxrl_long.algorithms.batches import minibatches, values_after
from jaxrl_long.algorithms.protocol import Decision, Report, Rollout
from jaxrl_long.config import AlgorithmSettings
from jaxrl_long.learning import value_scale
from jaxrl_long.learning.distributions import Distribution
from jaxrl_long.learning.moments import moments_like, normalize, observe
from jaxrl_long.learning.networks import MLP, entry
from jaxrl_long.learning.returns import gae, growing_discount, lookahead_discount
from jaxrl_long.learning.value_scale import ValueScale
from jaxrl_long.replay.ring import Ring, earlier
from jaxrl_long.replay.sampling import View
from jaxrl_long.typing import Array, Bool, Float, Key, PyTree


@struct.dataclass
class PPOLearner:
    """Everything PPO knows; the policy handed over is `params["policy"]` with `moments`, never one without the other."""

    params: dict[str, PyTree]
    """`policy` and `value` networks."""
    optimizer: PyTree
    """Adam's moments, over the parameters as one vector."""
    moments: PyTree
    """Running moments of each entry of the observation."""
    scale: ValueScale
    """What the critic's outputs are measured in."""
    learning_rate: Float[Array, ""]
    """The rate of the latest update."""
    averaged: PyTree
    """Moving average of the policy's parameters, which acts where nothing is drawn; () where there is none, and the latest acts."""


@struct.dataclass
class Batch:
    """What the loss reads of each step; leaves [T, N, ...], in minibatches [B, ...]."""

    obs: PyTree
    """Normalised."""
    choice: Array
    log_prob: Array
    """Under the policy at the start of this update, around which the ratio is clipped."""
    advantage: Array
    """Normalised, and weighted by `min(1, π/μ)` where an earlier policy μ took the step."""
    target: Array
    """What the critic should say, in its own units."""
    weight: Array
    """0 where there is no such step yet, else min(1, π/μ)."""


@dataclass(frozen=True)
class PPO:
    """PPO with the given settings, for one kind of action. A static part of the fused program."""

    settings: AlgorithmSettings
    distribution: Distribution

    def discount(self, progress: Float[Array, ""]) -> float | Float[Array, ""]:
        """γ, from `lookahead` where it is given, and on its way to `lookahead_end` where that is."""
        first = lookahead_discount(float(self.settings.lookahead), self.settings.discount)
        last = lookahead_discount(float(self.settings.lookahead_end), first)
        return first if last == first else growing_discount(first, last, progress)

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of an update."""
        return self.settings.epochs * self.settings.minibatches

    @property
    def policy(self) -> MLP:
        """Observation -> parameters of the distribution."""
        return MLP(tuple(self.settings.policy_layers), self.distribution.num_params, self.settings.activation, out_scale=0.01)

    @property
    def critic(self) -> MLP:
        """Observation -> value, in the units of `ValueScale`."""
        return MLP(tuple(self.settings.value_layers), 1, self.settings.activation)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam without a rate, which `improve` applies."""
        return optax.scale_by_adam(eps=1e-5)

    def init(self, key: Key[Array, ""], obs: PyTree) -> PPOLearner:
        """An untrained learner for observations of these shapes."""
        policy_key, critic_key = jax.random.split(key)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), obs)
        params = {
            "policy": self.policy.init(policy_key, entry(zeros, "policy")),
            "value": self.critic.init(critic_key, entry(zeros, "critic")),
        }
        return PPOLearner(
            params=params,
            optimizer=self.optimizer.init(ravel_pytree(params)[0]),
            moments=moments_like(zeros),
            scale=value_scale.initial(),
            learning_rate=jnp.float32(self.settings.learning_rate),
            # A copy: a donated state must not hold one buffer twice.
            averaged=jax.tree.map(jnp.copy, params["policy"]) if self.settings.average else (),
        )

    def initial_memory(self, number: int) -> PyTree:
        """Nothing: the networks look at the present only."""
        del number
        return ()

    def act(self, learner: PPOLearner, obs: PyTree, memory: PyTree, restarted: Bool[Array, " N"], keys: Key[Array, " N"] | None) -> Decision:
        """Draw an action per observation [N, ...], or take the most likely one of the policy handed over where no keys are given."""
        del restarted
        seen = normalize(learner.moments, obs, self.settings.clip_obs)
        handed_over = learner.averaged if self.settings.average else learner.params["policy"]
        params: Any = self.policy.apply(handed_over if keys is None else learner.params["policy"], entry(seen, "policy"))
        choice = self.distribution.mode(params) if keys is None else self.distribution.sample(params, keys)
        return Decision(choice, self.distribution.action(choice), self.distribution.log_prob(params, choice), memory)

    def ring_fields(self, learner: PPOLearner, rollout: Rollout) -> dict[str, PyTree]:
        """What a later update needs of these steps: final observations are kept as the critic's value of them."""
        value = self._critic_of(learner)
        cut = values_after(value, jnp.zeros_like(rollout.reward), jnp.zeros_like(rollout.reward[0]), rollout)
        return {
            "obs": rollout.obs,
            "choice": rollout.choice,
            "log_prob": rollout.log_prob,
            "reward": rollout.reward,
            "cut_value": jnp.where(rollout.truncated, cut, 0.0),
        }

    def action(self, fields: dict[str, PyTree]) -> Array:
        """What the environments got in rows of the ring."""
        return self.distribution.action(fields["choice"])

    def observe(self, learner: PPOLearner, rollout: Rollout, axis: str | None) -> PPOLearner:
        """Observation moments move last: `improve` must see the inputs that `act` saw."""
        rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rollout.obs)
        return replace(learner, moments=observe(learner.moments, rows, axis))

    def improve(
        self, learner: PPOLearner, rollout: Rollout, replay: View, key: Key[Array, ""], progress: Float[Array, ""], axis: str | None
    ) -> tuple[PPOLearner, Ring, Report]:
        """`epochs` passes over the rollout (and the `reuse` segments before it) in `minibatches` of samples."""
        batch, scale, explained = self._batch(learner, rollout, replay, self.discount(progress), axis)
        params = {**learner.params, "value": value_scale.rescaled(learner.params["value"], learner.scale, scale)}
        rate, bonus = self._rate(learner, progress), self._bonus(progress)
        flat, unravel = ravel_pytree(params)

        def learn(carry: tuple[Array, PyTree], rows: Batch) -> tuple[tuple[Array, PyTree], Report]:
            gradient, report = jax.grad(lambda vector: self._loss(unravel(vector), rows, bonus), has_aux=True)(carry[0])
            gradient = _mean(gradient, axis)
            norm = jnp.linalg.norm(gradient)
            usable = jnp.isfinite(norm)
            clipped = gradient * jnp.minimum(1.0, self.settings.max_grad_norm / norm)

            def moved(carry: tuple[Any, PyTree]) -> tuple[Any, PyTree]:
                direction, stepped = self.optimizer.update(clipped, carry[1])
                return optax.apply_updates(carry[0], optax.tree.scale(-rate, direction)), stepped

            # A branch, not a choice: choosing between old and new costs as much again as Adam.
            kept = jax.lax.cond(usable, moved, lambda carry: carry, carry)
            finite = {name: jnp.where(usable, number, 0.0) for name, number in report.items()}
            return kept, {**finite, "grad_norm": jnp.where(usable, norm, 0.0), "skipped_count": 1.0 - usable}

        slices = minibatches(batch, key, self.settings.epochs, self.settings.minibatches, axis)
        (flat, optimizer), reports = jax.lax.scan(lambda carry, rows: learn(carry, slices.take(rows)), (flat, learner.optimizer), slices.rows)
        report = {name: jnp.sum(x) if name.endswith("_count") else jnp.mean(x) for name, x in reports.items()}
        # Averaged here and not in every step: each reduction makes all devices wait for one another.
        report = _mean(report, axis)
        report |= {"learning_rate": rate, "explained_variance": explained, "value_std": scale.std}
        params = unravel(flat)
        averaged = optax.incremental_update(params["policy"], learner.averaged, 1 - self.settings.average) if self.settings.average else ()
        rate = self._adapted(rate, report["kl"])
        return replace(learner, params=params, optimizer=optimizer, scale=scale, learning_rate=rate, averaged=averaged), replay.ring, report

    def _loss(self, params: dict[str, PyTree], rows: Batch, bonus: float | Array) -> tuple[Array, Report]:
        """Clipped surrogate, value error and entropy, weighted with `bonus`, of one minibatch."""
        logits: Any = self.policy.apply(params["policy"], entry(rows.obs, "policy"))
        value = self._out(params["value"], rows.obs)
        log_ratio = self.distribution.log_prob(logits, rows.choice) - rows.log_prob
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1 - self.settings.clip, 1 + self.settings.clip)
        policy_loss = -jnp.mean(jnp.minimum(ratio * rows.advantage, clipped * rows.advantage))
        value_loss = 0.5 * jnp.mean(rows.weight * (value - rows.target) ** 2)
        entropy = jnp.mean(self.distribution.entropy(logits, rows.choice))
        loss = policy_loss + self.settings.value_weight * value_loss - bonus * entropy
        report = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            # E[r − 1 − log r] under the old policy: never negative, little noise. Source: Schulman 2020, "Approximating KL divergence".
            "kl": jnp.mean(rows.weight * (ratio - 1 - log_ratio)),
            "clip_fraction": jnp.mean(jnp.abs(ratio - 1) > self.settings.clip),
        }
        return loss, report

    def _batch(self, learner: PPOLearner, rollout: Rollout, replay: View, discount: float | Array, axis: str | None) -> tuple[Batch, ValueScale, Array]:
        """Advantages and targets of the fresh rollout, and beside it (as further columns) those of the segments reused."""
        value = self._critic_of(learner)
        values = value(rollout.obs)
        after = values_after(value, values, value(rollout.last_obs), rollout)
        cost = self.settings.failure_cost * _mean(jnp.mean(jnp.abs(rollout.reward)), axis)
        reward = rollout.reward - cost * rollout.terminated
        advantage = gae(reward, values, after, rollout.terminated, rollout.ended, discount=discount, trace=self.settings.trace)
        seen = normalize(learner.moments, rollout.obs, self.settings.clip_obs)
        batch = Batch(seen, rollout.choice, rollout.log_prob, advantage, advantage + values, jnp.ones_like(advantage))
        parts, first_obs = [batch], jax.tree.map(lambda leaf: leaf[0], rollout.obs)
        for back in range(1, self.settings.reuse + 1):
            old = earlier(replay.ring, replay.layout, back)
            old["reward"] = old["reward"] - cost * old["terminated"]
            parts.append(self._reused(learner, old, first_obs, replay.ring.filled >= (back + 1) * replay.layout.length, discount))
            first_obs = jax.tree.map(lambda leaf: leaf[0], old["obs"])
        batch = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *parts)

        mean, variance = _moments(advantage, axis)
        advantage = (batch.advantage - mean * batch.weight) * jax.lax.rsqrt(variance + 1e-12) if self.settings.normalize_advantage else batch.advantage
        scale = value_scale.moved(learner.scale, *_moments(parts[0].target, axis)) if self.settings.normalize_reward else learner.scale
        _, spread = _moments(parts[0].target, axis)
        # An outlier whose square overflows leaves nothing to explain.
        explained = jnp.where(jnp.isfinite(spread), 1 - variance / jnp.maximum(spread, 1e-12), 0.0)
        return replace(batch, advantage=advantage, target=(batch.target - scale.mean) / scale.std), scale, explained

    def _reused(self, learner: PPOLearner, old: dict[str, PyTree], next_obs: PyTree, stored: Array, discount: float | Array) -> Batch:
        """An earlier segment [T, N], corrected for the policy having moved since. `next_obs` [N, ...] followed its last row."""
        value = self._critic_of(learner)
        seen = normalize(learner.moments, old["obs"], self.settings.clip_obs)
        logits: Any = self.policy.apply(learner.params["policy"], entry(seen, "policy"))
        log_prob = self.distribution.log_prob(logits, old["choice"])
        weight = jnp.where(stored, jnp.minimum(1.0, jnp.exp(log_prob - old["log_prob"])), 0.0)
        values = value(old["obs"])
        following = jnp.concatenate([values[1:], value(next_obs)[None]])
        after = jnp.where(old["truncated"], old["cut_value"], following)
        ended = old["terminated"] | old["truncated"]
        advantage = gae(old["reward"], values, after, old["terminated"], ended, discount=discount, trace=self.settings.trace, weight=weight)
        return Batch(seen, old["choice"], log_prob, advantage, advantage + values, weight)

    def _critic_of(self, learner: PPOLearner) -> Any:
        """The critic as a function of observations [..., O], in reward units."""

        def value(obs: PyTree) -> Array:
            seen = normalize(learner.moments, obs, self.settings.clip_obs)
            return self._out(learner.params["value"], seen) * learner.scale.std + learner.scale.mean

        return value

    def _out(self, params: PyTree, seen: PyTree) -> Array:
        """The critic's outputs for normalised observations [..., O], in its own unit."""
        values: Any = self.critic.apply(params, entry(seen, "critic"))
        return values[..., 0]

    def _rate(self, learner: PPOLearner, progress: Float[Array, ""]) -> Array:
        """The learning rate of this update."""
        if self.settings.schedule == "linear":
            return jnp.float32(self.settings.learning_rate) * jnp.maximum(1.0 - progress, 0.0)
        return learner.learning_rate

    def _bonus(self, progress: Float[Array, ""]) -> float | Array:
        """The weight of the entropy in this update."""
        left = jnp.maximum(1.0 - progress, 0.0) if self.settings.entropy_schedule == "linear" else 1.0
        return self.settings.entropy * left

    def _adapted(self, rate: Array, kl: Array) -> Array:
        """The next rate: with `schedule=kl`, moved by half where the policy moved twice too far, or half as far as it may."""
        if self.settings.schedule != "kl":
            return rate
        target = self.settings.target_kl
        moved = jnp.where(kl > 2 * target, rate / 1.5, jnp.where(kl < target / 2, rate * 1.5, rate))
        return jnp.clip(moved, self.settings.learning_rate / 100, self.settings.learning_rate * 10)


def _mean(tree: PyTree, axis: str | None) -> PyTree:
    """The mean over devices."""
    return jax.lax.pmean(tree, axis) if axis else tree


def _moments(x: Float[Array, "T N"], axis: str | None) -> tuple[Array, Array]:
    """Mean and variance over the whole batch, on all devices."""
    mean = _mean(jnp.mean(x), axis)
    return mean, _mean(jnp.mean((x - mean) ** 2), axis)
