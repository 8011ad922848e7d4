"""Several virtual engines, each in a process of its own, as the workers of the lab's lockstep runs."""
