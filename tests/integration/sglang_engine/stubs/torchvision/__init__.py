"""Stands in for torchvision, whose public build needs another torch: enough to import SGLang, no images."""

__version__ = "0.28.0"
