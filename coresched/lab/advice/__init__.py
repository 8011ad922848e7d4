"""Which configuration suits a workload: searched for in the simulator, judged on other orders."""
