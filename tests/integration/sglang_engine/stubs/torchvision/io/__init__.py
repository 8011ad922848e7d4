"""The names that Transformers imports at load time; nothing here reads an image."""


class ImageReadMode:
    """How an image would be decoded."""


def decode_image(*arguments: object) -> None:
    raise NotImplementedError("this torchvision is a stub without images")
