"""What is timed, by name: SGLang's policies, and RP in the states in which a pass may find the queue."""

FCFS = "fcfs"
FCFS_REFRESHING = "fcfs, refreshing pass"
FCFS_NO_REFRESH = "fcfs, no refresh"
LPM = "lpm"
LPM_NO_LIMIT = "lpm, no limit"
DFS_WEIGHT = "dfs-weight"
ROUTING_KEY = "routing-key"

PLAIN_NONE_NEW = "plain Python, none new"
PLAIN_ONE_LEFT = "plain Python, 1 left"

NEW = (1, 10, 100)
"""Requests that have come since the pass before, of resident trajectories: each is asked its hit."""
OURS_NONE_NEW = "routing-prefix, none new"
OURS_ONE_LEFT = "routing-prefix, 1 left"
OURS_SOME_NEW = {count: f"routing-prefix, {count} new" for count in NEW}
OURS_ALL_NEW = "routing-prefix, all new"

OURS = (OURS_NONE_NEW, OURS_ONE_LEFT, *OURS_SOME_NEW.values(), OURS_ALL_NEW)

FEW_NEW = 10
COMPARED = {
    LPM_NO_LIMIT: OURS_SOME_NEW[FEW_NEW],
    DFS_WEIGHT: OURS_SOME_NEW[FEW_NEW],
    PLAIN_NONE_NEW: OURS_NONE_NEW,
    PLAIN_ONE_LEFT: OURS_ONE_LEFT,
}
"""Which of ours a policy is compared with. SGLang's match every request, whatever is new."""
OF_SGLANG = (LPM, LPM_NO_LIMIT, DFS_WEIGHT, ROUTING_KEY)
"""Policies of SGLang's that order by more than arrival: compared with ours where nothing is new, too."""
