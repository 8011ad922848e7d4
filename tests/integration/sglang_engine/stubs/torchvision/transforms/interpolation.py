"""How an image would be resized."""

import enum


class InterpolationMode(enum.Enum):
    """The ways to resize an image, by torchvision's names: Transformers makes a table of them."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"
