import io
import os
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from torchvision.transforms import v2

from zoo.preprocessing import PRESETS, Preprocessing, convert_colours, count_frames, open_image, parse_colour
from zoo.serialization import format_yaml, parse_yaml

PLAIN = {"height": 8, "width": 8, "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}


def noise_image(width, height, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def png_16_bit(path, rows):
    """Write 16-bit RGB values (height, width, 3), which Pillow cannot."""
    height, width, _ = rows.shape
    raw = b"".join(b"\0" + row.astype(">u2").tobytes() for row in rows)

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (256, 256), (300, 1000), (257, 256), (224, 224), (60, 40)])
def test_resize_and_crop_gives_the_pixels_of_torchvision(size):
    image = noise_image(*size)
    ours = PRESETS["imagenet_224"].to_pixels(image)
    theirs = v2.Compose([v2.Resize(256), v2.CenterCrop(224), v2.PILToTensor()])(image)
    difference = (ours.int() - theirs.int()).abs()
    assert difference.max() <= 1
    assert (difference > 0).float().mean() < 0.01


def test_image_and_tensor_of_the_same_pixels_are_prepared_alike():
    image = noise_image(50, 40)
    tensor = v2.functional.pil_to_tensor(image)
    torch.testing.assert_close(PRESETS["imagenet_224"](image), PRESETS["imagenet_224"](tensor), rtol=0, atol=0)


def test_image_of_the_right_size_keeps_its_pixels():
    image = noise_image(32, 32)
    torch.testing.assert_close(PRESETS["cifar10"].to_pixels(image), v2.functional.pil_to_tensor(image), rtol=0, atol=0)


@pytest.mark.parametrize("size", [(40_000, 1), (1, 40_000)])
@pytest.mark.parametrize("resize", [256, None])
def test_very_long_image_is_prepared_in_little_memory(size, resize):
    preprocessing = PRESETS["imagenet_224"].replace_size(224, 224, resize)
    assert preprocessing(Image.new("RGB", size, "red")).shape == (3, 224, 224)


def test_normalisation_is_pixel_minus_mean_over_std():
    preprocessing = Preprocessing(2, 2, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    pixels = torch.tensor([[0, 255], [51, 102]], dtype=torch.uint8).expand(4, 3, 2, 2)
    mean, std = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1), torch.tensor([0.5, 0.25, 2.0]).view(3, 1, 1)
    expected = (pixels.double() / 255 - mean) / std
    torch.testing.assert_close(preprocessing.normalize(pixels), expected.float())
    torch.testing.assert_close(preprocessing.normalize(pixels.double() / 255), expected)


def test_normalisation_keeps_channels_last():
    images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8).to(memory_format=torch.channels_last)
    assert Preprocessing(**PLAIN).normalize(images).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 1, 8, 8, dtype=torch.uint8), "images have 1 channels, the preprocessing expects 3"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.int64), "uint8 or floating point, got torch.int64"),
    ],
)
def test_normalisation_refuses_other_images(images, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing(**PLAIN).normalize(images)


@pytest.mark.parametrize("tensor", [torch.zeros(3, 8, 8), torch.zeros(8, 8, dtype=torch.uint8)])
def test_call_refuses_other_tensors(tensor):
    with pytest.raises(ValueError, match="pixels must be uint8"):
        Preprocessing(**PLAIN)(tensor)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"height": 0}, r"height \(0\) and width \(8\)"),
        ({"mean": (0.5, 0.5)}, "must both have 1 or 3 entries"),
        ({"std": (0.25,)}, "must both have 1 or 3 entries"),
        ({"std": (0.25, 0.0, 0.25)}, "must be above 0"),
        ({"resize": 7}, r"resize \(7\) must be at least the crop"),
        ({"interpolation": "cubic"}, "must be one of nearest, bilinear, bicubic"),
        ({"background": "whitish"}, "must be a colour name"),
    ],
)
def test_options_out_of_range_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing(**PLAIN | change)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_record_survives_a_weight_card(name):
    record = parse_yaml(format_yaml(PRESETS[name].to_dict()))
    assert Preprocessing.from_dict(record) == PRESETS[name]


def test_record_with_unknown_or_missing_keys_is_refused():
    with pytest.raises(ValueError, match=r"unknown keys \['size'\], missing keys \['height', 'std', 'width'\]"):
        Preprocessing.from_dict({"size": 3, "mean": [0.5]})


def test_description_says_what_is_done():
    text = PRESETS["imagenet_224"].describe()
    assert "short side scaled to 256, centre 224 x 224 cut out" in text
    assert "on white" in text
    grey = Preprocessing(8, 9, mean=(0.5,), std=(0.25,), background="#102030")
    assert grey.describe().startswith("greyscale, transparent pixels on #102030, scaled to 8 x 9")


@pytest.mark.skipif("ZOO_DATA" not in os.environ, reason="ZOO_DATA is not set: needs the CIFAR-10 images")
def test_cifar10_statistics_are_those_of_all_training_pixels():
    from torchvision.datasets import CIFAR10

    # In the layout of the files, (images, channels, pixels), and in whole numbers, so exact.
    pixels = CIFAR10(os.environ["ZOO_DATA"], train=True).data.transpose(0, 3, 1, 2).reshape(50_000, 3, 1024)
    count = pixels[:, 0].size
    mean = pixels.sum(axis=(0, 2), dtype=np.int64) / count
    std = np.sqrt((pixels.astype(np.uint16) ** 2).sum(axis=(0, 2), dtype=np.int64) / count - mean**2)
    mean, std = mean / 255, std / 255
    np.testing.assert_allclose(PRESETS["cifar10"].mean, mean, atol=5e-5)
    np.testing.assert_allclose(PRESETS["cifar10"].std, std, atol=1e-4)


# Colours


@pytest.mark.parametrize(("background", "colour"), [("white", (255, 255, 255)), ("#102030", (16, 32, 48))])
@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "P bytes", "P index", "L key", "RGB key"])
def test_transparent_pixels_show_the_background_whatever_the_mode(tmp_path, mode, background, colour):
    path, options = tmp_path / "image.png", {}
    if mode == "RGBA":
        image = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    elif mode == "LA":
        image = Image.new("LA", (4, 4), (100, 0))
    elif mode == "PA":
        path = tmp_path / "image.tif"
        image = Image.new("RGBA", (4, 4), (0, 255, 0, 0)).convert("PA")
    elif mode.startswith("P"):
        image = Image.new("P", (4, 4), 0)
        image.putpalette([0, 255, 0] * 256)
        options = {"transparency": b"\0" if mode == "P bytes" else 0}
    else:
        image = Image.new(mode[:-4], (4, 4), 7 if mode == "L key" else (7, 8, 9))
        options = {"transparency": 7 if mode == "L key" else (7, 8, 9)}
    if mode == "PA":  # no file format of Pillow's keeps it
        opened = convert_colours(image, 3, background)
    else:
        image.save(path, **options)
        opened = open_image(path, background=background)
    assert opened.mode == "RGB"
    assert opened.getpixel((1, 1)) == colour


def test_half_transparent_pixels_are_mixed_with_the_background(tmp_path):
    Image.new("RGBA", (2, 2), (200, 0, 0, 128)).save(tmp_path / "half.png")
    assert open_image(tmp_path / "half.png", background="black").getpixel((0, 0)) == (100, 0, 0)


@pytest.mark.parametrize(
    ("mode", "pixel", "red"), [("1", 1, 255), ("L", 90, 90), ("P", 3, 30), ("YCbCr", (90, 128, 128), 90)]
)
def test_opaque_modes_become_rgb(mode, pixel, red):
    image = Image.new(mode, (2, 2), pixel)
    if mode == "P":
        image.putpalette([value for index in range(256) for value in (index * 10 % 256, 0, 0)])
    converted = convert_colours(image, 3)
    assert converted.mode == "RGB"
    assert converted.getpixel((0, 0))[0] == red


def test_cmyk_red_stays_red_with_and_without_adobe_inversion(tmp_path):
    red = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    red.save(tmp_path / "adobe.jpg", quality=95)
    assert b"Adobe" in (tmp_path / "adobe.jpg").read_bytes()
    red.save(tmp_path / "plain.tif")
    for name in ("adobe.jpg", "plain.tif"):
        pixel = open_image(tmp_path / name).getpixel((8, 8))
        assert pixel[0] > 230
        assert max(pixel[1:]) < 25


def test_16_bit_values_are_scaled_not_clipped(tmp_path):
    values = np.array([[0, 257, 256 * 100, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "grey.png")
    Image.fromarray(values).save(tmp_path / "grey.tif")
    Image.fromarray(values.astype(np.int32)).save(tmp_path / "wide.tif")
    png_16_bit(tmp_path / "colour.png", np.repeat(values[:, :, None], 3, axis=2))
    for name in ("grey.png", "grey.tif", "wide.tif", "colour.png"):
        row = np.asarray(open_image(tmp_path / name))[0, :, 0]
        np.testing.assert_allclose(row, [0, 1, 100, 255], atol=1)


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (np.full((2, 2), 0.5, dtype=np.float32), "floating-point pixels have no known range"),
        (np.full((2, 2), 70_000, dtype=np.int32), "exceed 16 bits"),
        (np.full((2, 2), -1, dtype=np.int32), "exceed 16 bits"),
    ],
)
def test_pixels_without_a_known_range_are_refused_by_name(tmp_path, pixels, message):
    Image.fromarray(pixels).save(tmp_path / "odd.tif")
    with pytest.raises(ValueError, match=f"odd.tif: .*{message}"):
        open_image(tmp_path / "odd.tif")


def test_greyscale_on_demand(tmp_path):
    Image.new("RGBA", (2, 2), (0, 0, 0, 0)).save(tmp_path / "image.png")
    image = open_image(tmp_path / "image.png", channels=1)
    assert (image.mode, image.getpixel((0, 0))) == ("L", 255)
    assert Preprocessing(2, 2, mean=(0.5,), std=(0.5,))(image).flatten().tolist() == pytest.approx([1] * 4)
    with pytest.raises(ValueError, match=r"channels \(2\)"):
        open_image(tmp_path / "image.png", channels=2)


def test_unknown_colour_is_refused():
    with pytest.raises(ValueError, match="background 'off-white'"):
        parse_colour("off-white")


# Orientation

RED_AT = {1: "left", 2: "right", 3: "right", 4: "left", 5: "top", 6: "top", 7: "bottom", 8: "bottom"}


def red_half():
    image = Image.new("RGB", (40, 20), "blue")
    image.paste("red", (0, 0, 20, 20))
    return image


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_is_turned_upright(tmp_path, orientation, suffix):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"photo.{suffix}"
    red_half().save(path, exif=exif, **({"quality": 95} if suffix in ("jpg", "webp") else {}))
    image = open_image(path)
    assert image.size == ((40, 20) if orientation <= 4 else (20, 40))
    width, height = image.size
    places = {
        "left": (2, height // 2),
        "right": (width - 3, height // 2),
        "top": (width // 2, 2),
        "bottom": (width // 2, height - 3),
    }
    colours = {place: image.getpixel(pixel) for place, pixel in places.items()}
    assert colours[RED_AT[orientation]][0] > 200
    opposite = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}[RED_AT[orientation]]
    assert colours[opposite][2] > 200


@pytest.mark.parametrize(
    "block", [b"Exif\0\0garbage", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff", b"Exif\0\0II*\0\xff\xff\xff\xff"]
)
def test_damaged_exif_block_leaves_the_image(tmp_path, block):
    red_half().save(tmp_path / "photo.jpg", exif=block)
    assert open_image(tmp_path / "photo.jpg").size == (40, 20)


def test_orientation_out_of_range_leaves_the_image(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 99
    red_half().save(tmp_path / "photo.jpg", exif=exif)
    assert open_image(tmp_path / "photo.jpg").size == (40, 20)


# Damaged and odd files


def jpeg_bytes(width=64, height=64):
    buffer = io.BytesIO()
    noise_image(width, height).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.mark.parametrize("read", [open_image, count_frames])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no image \\(0 bytes in no known format"),
        (b"<html><body>404</body></html>", "no image \\(29 bytes in no known format"),
        (jpeg_bytes()[: len(jpeg_bytes()) // 2], "cannot be read as an image: .*truncated"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "no image|cannot be read"),
    ],
    ids=["empty", "html", "half", "head only"],
)
def test_damaged_file_is_an_error_that_names_it(tmp_path, content, message, read):
    (tmp_path / "bad.jpg").write_bytes(content)
    with pytest.raises(ValueError, match=f"bad\\.jpg: ({message})"):
        read(tmp_path / "bad.jpg")


@pytest.mark.parametrize("read", [open_image, count_frames])
def test_missing_file_is_an_error_that_names_it(tmp_path, read):
    with pytest.raises(ValueError, match=r"gone\.jpg: cannot be read as an image: .*No such file"):
        read(tmp_path / "gone.jpg")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read every file")
def test_forbidden_file_is_an_error_that_names_it(tmp_path):
    (tmp_path / "secret.jpg").write_bytes(jpeg_bytes())
    (tmp_path / "secret.jpg").chmod(0)
    with pytest.raises(ValueError, match=r"secret\.jpg: cannot be read as an image: .*Permission"):
        open_image(tmp_path / "secret.jpg")


def test_file_too_large_to_be_a_photograph_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    noise_image(64, 64).save(tmp_path / "bomb.png")
    with pytest.raises(ValueError, match=r"bomb\.png: refused, .*4096 pixels"):
        open_image(tmp_path / "bomb.png")


def test_content_decides_the_format(tmp_path):
    noise_image(5, 4).save(tmp_path / "really_png.jpg", "PNG")
    np.testing.assert_array_equal(open_image(tmp_path / "really_png.jpg"), noise_image(5, 4))


def test_first_frame_of_an_animation_is_taken_and_frames_are_counted(tmp_path):
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue", "green")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert open_image(tmp_path / "moving.gif").getpixel((0, 0)) == (255, 0, 0)
    assert count_frames(tmp_path / "moving.gif") == 3
    frames[0].save(tmp_path / "still.gif")
    assert count_frames(tmp_path / "still.gif") == 1


def test_nothing_is_read_while_pillow_is_told_to_tolerate_truncated_files(tmp_path, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    (tmp_path / "half.jpg").write_bytes(jpeg_bytes()[: len(jpeg_bytes()) // 2])
    for read in (open_image, count_frames):
        with pytest.raises(ValueError, match="LOAD_TRUNCATED_IMAGES is on"):
            read(tmp_path / "half.jpg")


def test_unicode_names_open(tmp_path):
    noise_image(4, 4).save(tmp_path / "猫 ñandú.PNG")
    assert open_image(tmp_path / "猫 ñandú.PNG").size == (4, 4)
