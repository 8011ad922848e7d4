"""`python -m bench ray`: request routers in front of the replicas of a real Ray Serve."""
