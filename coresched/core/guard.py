"""Constants of routing-residency's guard, the same in every engine and in the simulator."""

from typing import Final

KV_GROWTH: Final = 1.15
"""What a live trajectory will hold of KV over what it holds now."""
STEPS_UNTIL_REPEATED: Final = 16
"""Steps of the engine after which trajectories may have ceased to be live, though nothing else happened."""
