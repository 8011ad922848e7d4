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

NEW = 8
OURS_NONE_NEW = "routing-prefix, none new"
OURS_ONE_LEFT = "routing-prefix, 1 left"
OURS_SOME_NEW = f"routing-prefix, {NEW} new"
OURS_ALL_NEW = "routing-prefix, all new"

OURS = (OURS_NONE_NEW, OURS_ONE_LEFT, OURS_SOME_NEW, OURS_ALL_NEW)

COMPARED = {
    LPM_NO_LIMIT: OURS_SOME_NEW,
    DFS_WEIGHT: OURS_SOME_NEW,
    PLAIN_NONE_NEW: OURS_NONE_NEW,
    PLAIN_ONE_LEFT: OURS_ONE_LEFT,
}
"""Which of ours a policy is compared with. SGLang's match every request, whatever is new."""
