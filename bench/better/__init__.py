"""What is better than the paper's method, part by part."""
