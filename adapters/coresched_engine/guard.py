"""Constants of routing-residency's guard, the same in every engine."""

from __future__ import annotations

KV_GROWTH = 1.15
"""What a live trajectory will hold of KV over what it holds now."""
STEPS_UNTIL_REPEATED = 16
"""Steps of the engine after which trajectories may have ceased to be live, though nothing else happened."""
