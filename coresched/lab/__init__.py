"""The replay lab: the simulator, its metrics and bounds, comparisons and reports."""
