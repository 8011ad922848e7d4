"""What the rows of `python -m bench ray` are about."""

LBCH, STICKY = "lbch", "sticky-bounded"
CONSISTENT_HASH, POWER_OF_TWO = "consistent hash", "power of two"
ROUTERS = (LBCH, STICKY, CONSISTENT_HASH, POWER_OF_TWO)

HOT, ZIPF, UNIFORM = "hot", "zipf", "uniform"
CASES = (HOT, ZIPF, UNIFORM)
