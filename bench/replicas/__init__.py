"""What several replicas of a router do to a batch when each counts its own requests only."""
