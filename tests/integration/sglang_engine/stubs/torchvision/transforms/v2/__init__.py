"""Imported as a module by image processors; none of its functions is called for text."""
