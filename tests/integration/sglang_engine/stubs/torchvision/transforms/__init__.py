"""The names that SGLang and Transformers import at load time."""

from .interpolation import InterpolationMode as InterpolationMode
