"""The simulator in plain Python: slow, readable, and the oracle the compiled one is held to.

Same events, same arithmetic, but built on the twins of `coresched.core.reference`, so a run that agrees also
vouches for the scheduling core.
"""
