"""From an image file to the numbers a net sees: opening files, and the evaluation transform as a plain record."""

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import torch
from PIL import Image, ImageColor, ImageFile
from torch import Tensor
from torchvision.transforms.v2 import functional as transforms

Interpolation = Literal["nearest", "bilinear", "bicubic"]

_RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}
_EXIF_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the input of a net at evaluation: size, crop and normalisation.

    With ``resize`` the short side is scaled to ``resize`` pixels (the long side in proportion, rounded down) and the
    centre of ``height`` x ``width`` is cut out; without it the image is scaled to ``height`` x ``width`` whatever its
    shape. Scaling is anti-aliased. Then ``(pixel / 255 - mean) / std`` per channel.

    Args:
        height: Rows of the result, at least 1.
        width: Columns of the result, at least 1.
        mean: Per channel, as a fraction of full brightness; one entry (greyscale) or three (RGB).
        std: Per channel, above 0; as many entries as ``mean``.
        resize: Short side before the centre crop, at least ``max(height, width)``; ``None`` for no crop.
        interpolation: ``"nearest"``, ``"bilinear"`` or ``"bicubic"``.
        background: What shows through transparent pixels: a colour name or ``#rrggbb``.

    Raises:
        ValueError: A value is out of its range.

    >>> PRESETS["imagenet_224"].resize
    256
    >>> PRESETS["cifar10"](Image.new("RGB", (32, 32), "white")).shape
    torch.Size([3, 32, 32])
    """

    height: int
    width: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: int | None = None
    interpolation: Interpolation = "bilinear"
    background: str = "white"

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", tuple(float(value) for value in self.mean))
        object.__setattr__(self, "std", tuple(float(value) for value in self.std))
        if self.height < 1 or self.width < 1:
            raise ValueError(f"height ({self.height}) and width ({self.width}) must be at least 1")
        if len(self.mean) not in (1, 3) or len(self.std) != len(self.mean):
            raise ValueError(f"mean {self.mean} and std {self.std} must both have 1 or 3 entries")
        if any(value <= 0 for value in self.std):
            raise ValueError(f"std {self.std} must be above 0")
        if self.resize is not None and self.resize < max(self.height, self.width):
            raise ValueError(f"resize ({self.resize}) must be at least the crop, {self.height} x {self.width}")
        if self.interpolation not in _RESAMPLING:
            raise ValueError(f"interpolation {self.interpolation!r} must be one of {', '.join(_RESAMPLING)}")
        parse_colour(self.background)

    @property
    def channels(self) -> int:
        """Channels of the result: 1 (greyscale) or 3 (RGB)."""
        return len(self.mean)

    def __call__(self, image: Image.Image | Tensor) -> Tensor:
        """Turn one image into the input of a net.

        Args:
            image: A PIL image in any mode, or uint8 pixels (channels, height, width).

        Returns:
            float32 (channels, height, width).
        """
        return self.normalize(self.to_pixels(image).unsqueeze(0)).squeeze(0)

    def to_pixels(self, image: Image.Image | Tensor) -> Tensor:
        """Scale and crop one image to uint8 (channels, height, width), without normalising.

        Raises:
            ValueError: A tensor that is not uint8 with 1 or 3 channels.
        """
        if isinstance(image, Tensor):
            if image.dtype != torch.uint8 or image.dim() != 3 or image.shape[0] not in (1, 3):
                shape = tuple(image.shape)
                raise ValueError(f"pixels must be uint8 (1 or 3 channels, height, width), got {image.dtype} {shape}")
            opened: Image.Image = transforms.to_pil_image(image)
        else:
            opened = image
        opened = convert_colours(opened, self.channels, self.background)
        opened = resize_box(opened, self.kept_box(opened), self.height, self.width, self.interpolation)
        return transforms.pil_to_tensor(opened)

    def kept_box(self, image: Image.Image) -> tuple[float, float, float, float]:
        """Return the part of the image that the net sees, in the image's own pixels: (left, top, right, bottom).

        Scaling only this part gives the pixels of scaling all and cropping, and a 40000 x 1 image costs no gigabytes.
        """
        if self.resize is None:
            return 0, 0, image.width, image.height
        short = min(image.width, image.height)
        scaled_width = self.resize * image.width // short
        scaled_height = self.resize * image.height // short
        left = round((scaled_width - self.width) / 2) * image.width / scaled_width
        top = round((scaled_height - self.height) / 2) * image.height / scaled_height
        right = min(left + self.width * image.width / scaled_width, image.width)
        bottom = min(top + self.height * image.height / scaled_height, image.height)
        return left, top, right, bottom

    def normalize(self, images: Tensor) -> Tensor:
        """Map pixels to the range the net was trained on; layout and device are kept.

        Args:
            images: (batch, channels, height, width); uint8 in 0..255, or floating point in 0..1.

        Returns:
            float32 for uint8 input, else the dtype of the input.
        """
        if images.shape[-3] != self.channels:
            raise ValueError(f"images have {images.shape[-3]} channels, the preprocessing expects {self.channels}")
        full = 255.0 if images.dtype == torch.uint8 else 1.0
        dtype = torch.float32 if images.dtype == torch.uint8 else images.dtype
        if not dtype.is_floating_point:
            raise ValueError(f"images must be uint8 or floating point, got {images.dtype}")
        scales = [1 / (full * std) for std in self.std]
        shifts = [-mean / std for mean, std in zip(self.mean, self.std, strict=True)]
        scale = torch.tensor(scales, dtype=dtype, device=images.device).view(-1, 1, 1)
        shift = torch.tensor(shifts, dtype=dtype, device=images.device).view(-1, 1, 1)
        return torch.addcmul(shift, images.to(dtype), scale)

    def replace_size(self, height: int, width: int, resize: int | None = None) -> "Preprocessing":
        """Return the same with another size."""
        return dataclasses.replace(self, height=height, width=width, resize=resize)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as a weight card stores them."""
        record = dataclasses.asdict(self)
        return record | {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Preprocessing":
        """Rebuild from :meth:`to_dict`.

        Raises:
            ValueError: A key is missing or unknown.
        """
        known = {field.name: field.default is dataclasses.MISSING for field in dataclasses.fields(cls)}
        unknown = sorted(set(record) - set(known))
        missing = sorted(name for name, required in known.items() if required and name not in record)
        if unknown or missing:
            raise ValueError(f"preprocessing has unknown keys {unknown}, missing keys {missing}; known: {list(known)}")
        return cls(**record)

    def describe(self) -> str:
        """Say in one line what is done to an image."""
        size = f"{self.height} x {self.width}"
        if self.resize is None:
            geometry = f"scaled to {size}"
        else:
            geometry = f"short side scaled to {self.resize}, centre {size} cut out"
        colour = "greyscale" if self.channels == 1 else "RGB"
        mean = ", ".join(f"{value:.4f}" for value in self.mean)
        std = ", ".join(f"{value:.4f}" for value in self.std)
        return (
            f"{colour}, transparent pixels on {self.background}, {geometry} ({self.interpolation}, anti-aliased), "
            f"minus {mean}, divided by {std}"
        )


def resize_box(
    image: Image.Image, box: tuple[float, float, float, float], height: int, width: int, interpolation: Interpolation
) -> Image.Image:
    """Scale the part ``box`` (left, top, right, bottom) of an image to ``height`` x ``width``, anti-aliased."""
    if image.size == (width, height) and box == (0, 0, width, height):
        return image
    return image.resize((width, height), _RESAMPLING[interpolation], box=box)


def parse_colour(name: str) -> tuple[int, int, int]:
    """Return red, green and blue in 0..255 of a colour name or ``#rrggbb``.

    >>> parse_colour("white")
    (255, 255, 255)
    """
    try:
        return ImageColor.getrgb(name)[:3]
    except ValueError:
        raise ValueError(f"background {name!r} must be a colour name such as 'white', or '#rrggbb'") from None


def convert_colours(image: Image.Image, channels: int, background: str = "white") -> Image.Image:
    """Bring an image of any mode to RGB (``channels`` 3) or greyscale (1), eight bits.

    Transparent pixels are laid on ``background``; 16-bit values are scaled to 0..255, not clipped.

    Raises:
        ValueError: ``channels`` is neither 1 nor 3, or the pixels have no known range (floating point, 32-bit).
    """
    if channels not in (1, 3):
        raise ValueError(f"channels ({channels}) must be 1 (greyscale) or 3 (RGB)")
    if image.mode == "I" or image.mode.startswith("I;16"):
        image = _scale_to_eight_bits(image)
    elif image.mode == "F":
        raise ValueError("floating-point pixels have no known range: store the image with 8 or 16 bits")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        canvas = Image.new("RGBA", image.size, (*parse_colour(background), 255))
        image = Image.alpha_composite(canvas, image)
    elif image.mode == "P":
        image = image.convert("RGB")
    return image.convert("L" if channels == 1 else "RGB")


def _scale_to_eight_bits(image: Image.Image) -> Image.Image:
    low, high = (cast(float, bound) for bound in image.getextrema())
    if low < 0 or high > 65535:
        raise ValueError(f"pixel values from {low} to {high} exceed 16 bits: their range is not known")
    # 257 = 65535 / 255; the half makes the conversion to integers round.
    return image.convert("I").point(lambda value: value * (1 / 257) + 0.5).convert("L")


def open_image(path: str | os.PathLike[str], channels: int = 3, background: str = "white") -> Image.Image:
    """Open and fully decode an image file, upright, as RGB or greyscale.

    EXIF orientation is applied (a damaged EXIF block is ignored), transparency laid on ``background``, the first frame
    of an animation taken. The content decides the format, not the file's name.

    Args:
        path: The file.
        channels: 3 for RGB, 1 for greyscale.
        background: What shows through transparent pixels.

    Raises:
        ValueError: The file is missing, unreadable, truncated or no image; the message names it.
    """
    with warnings.catch_warnings(action="ignore"), _decoded(Path(path)) as image:
        return convert_colours(_turn_upright(image), channels, background)


def count_frames(path: str | os.PathLike[str], channels: int = 3) -> int:
    """Check that :func:`open_image` will succeed, and return the number of frames in the file.

    All bytes are decoded (a look at the head finds no truncated file), JPEG at an eighth of the size to be quick.
    Safe to call from several threads; warnings of the decoders are left to the caller.

    Raises:
        ValueError: As :func:`open_image`.
    """
    with _decoded(Path(path), draft=True) as image:
        convert_colours(image, channels)
        return getattr(image, "n_frames", 1)


@contextlib.contextmanager
def _decoded(path: Path, *, draft: bool = False) -> Iterator[Image.Image]:
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise ValueError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is on: it turns damaged files into grey pixels, switch it off"
        )
    try:
        with Image.open(path) as image:
            if draft:
                image.draft(None, (max(image.width // 8, 1), max(image.height // 8, 1)))
            image.load()
            yield image
    except Image.UnidentifiedImageError:
        raise ValueError(f"{path}: no image ({path.stat().st_size} bytes in no known format)") from None
    except Image.DecompressionBombError as error:
        raise ValueError(f"{path}: refused, {error}") from None
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, IndexError, ... on damaged files
        raise ValueError(f"{path}: cannot be read as an image: {error}") from error


def _turn_upright(image: Image.Image) -> Image.Image:
    try:
        orientation = image.getexif().get(_EXIF_ORIENTATION)
    except Exception:  # the block may hold anything; the pixels are intact
        return image
    method = _UPRIGHT.get(orientation) if isinstance(orientation, int) else None
    return image if method is None else image.transpose(method)


PRESETS: dict[str, Preprocessing] = {
    # Over all pixels of the 50,000 training images.
    "cifar10": Preprocessing(32, 32, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)),
    "cifar100": Preprocessing(32, 32, mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762)),
    "cluttered_digits": Preprocessing(32, 32, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)),
    "imagenet_224": Preprocessing(224, 224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), resize=256),
}
