"""`python -m bench chaos`: processes are killed at random, and a checker reads what harnesses wrote down."""
