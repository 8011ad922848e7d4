"""What `coresched advise` advises against the paper's method."""
