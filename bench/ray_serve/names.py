"""What the rows of `python -m bench ray` are about."""

LBCH, LBCH_SLACK, STICKY = "lbch", "lbch, slack 1", "sticky-bounded"
CONSISTENT_HASH, POWER_OF_TWO = "consistent hash", "power of two"
ROUTERS = (LBCH, LBCH_SLACK, STICKY, CONSISTENT_HASH, POWER_OF_TWO)

HOT, ZIPF, UNIFORM = "hot", "zipf", "uniform"
CASES = (HOT, ZIPF, UNIFORM)
