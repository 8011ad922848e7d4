"""The names that SGLang and Transformers import at load time; nothing here converts an image."""

from .interpolation import InterpolationMode as InterpolationMode


def pil_to_tensor(*arguments: object) -> None:
    raise NotImplementedError("this torchvision is a stub without images")
