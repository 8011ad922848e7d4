"""Reports a person reads: one self-contained HTML page, no script, no network."""
