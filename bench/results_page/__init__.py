"""What the benches found, on one page with plots."""
