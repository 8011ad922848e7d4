"""What adapters of harnesses have in common: how a run begins, fails, is cut short and is summed up."""
