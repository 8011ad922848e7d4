"""What the adapters into engines have in common; it knows no engine."""
