"""What is timed, by name: the orders, and the states in which a pass may find the queue."""

FCFS = "fcfs"
PRIORITY = "priority"
LPM = "lpm"
PLAIN = "plain Python"
RP = "routing-prefix"
RESIDENCY = "routing-residency"

STEP = "whole step"
NONE_NEW = "none new"
ONE_NEW = "1 out, 1 new"
ALL_NEW = "all new"
CASES = (STEP, NONE_NEW, ONE_NEW, ALL_NEW)

ORDER_PART = "its order"
PUBLISH_PART = "its metrics"
"""Parts of what RP does where there is nothing new."""
