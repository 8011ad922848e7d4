"""The names that Transformers and SGLang 0.5.20 import at load time; nothing here reads an image."""


class ImageReadMode:
    """How an image would be decoded."""


def decode_image(*arguments: object) -> None:
    raise NotImplementedError("this torchvision is a stub without images")


decode_jpeg = decode_image
