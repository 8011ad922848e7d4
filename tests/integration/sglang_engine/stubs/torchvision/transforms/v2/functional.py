"""Transformers imports this as `tvF`, for images only."""
