"""Encoded images for record_images.py, and how vLLM decodes them."""

import contextlib
import io
import struct
import zlib
from random import Random

import numpy
from PIL import Image, ImageFile, ImageOps
from PIL.PngImagePlugin import PngInfo

XMP = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'

# Room for a whole progressive file: Pillow's encoder cannot go on where it lacks any.
ImageFile.MAXBLOCK = 1 << 24

# The settings of published checkpoints, but for smaller limits in the `_small` ones, so that small images reach them.
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
QWEN2_5 = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2, **CLIP, "image_processor_type": "Qwen2VLImageProcessor"}
QWEN3 = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2, **HALF, "image_processor_type": "Qwen2VLImageProcessorFast"}
GEMMA3 = {
    **HALF, "image_processor_type": "Gemma3ImageProcessor", "image_seq_length": 256, "do_pan_and_scan": None,
    "do_convert_rgb": None, "do_normalize": True, "do_rescale": True, "do_resize": True, "resample": 2,
    "pan_and_scan_max_num_crops": None, "pan_and_scan_min_crop_size": None, "pan_and_scan_min_ratio_to_activate": None,
    "processor_class": "Gemma3Processor", "rescale_factor": 0.00392156862745098,
}  # fmt: skip
# As its processor hands the side of what is joined to it, whatever it has itself.
PIXTRAL = {
    **CLIP, "image_processor_type": "PixtralImageProcessor", "do_convert_rgb": True, "do_normalize": True, "do_rescale": True,
    "do_resize": True, "patch_size": {"height": 14, "width": 14}, "processor_class": "PixtralProcessor", "resample": 3,
    "rescale_factor": 0.00392156862745098,
}  # fmt: skip
# As its processor has it cut images, whatever it has itself.
GOT_OCR = {
    "image_processor_type": "GotOcr2ImageProcessorFast", "crop_to_patches": False, "do_convert_rgb": True, "do_normalize": True,
    "do_rescale": True, "do_resize": True, "default_to_square": True, "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225], "max_patches": 12, "min_patches": 1, "processor_class": "InternVLProcessor", "resample": 3,
    "rescale_factor": 0.00392156862745098,
}  # fmt: skip
GLM4V = {
    "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2, **CLIP, "do_rescale": True,
    "rescale_factor": 0.00392156862745098,
}  # fmt: skip
FAMILIES = {
    "glm4v": {
        "config": {"model_type": "glm4v", "vision_config": {"patch_size": 14, "spatial_merge_size": 2}},
        "preprocessor": {"size": {"shortest_edge": 12544, "longest_edge": 9633792}, **GLM4V, "image_processor_type": "Glm4vImageProcessor"},
    },
    "glm4v_small": {
        "config": {"model_type": "glm4v_moe"},
        "preprocessor": {"size": {"shortest_edge": 12544, "longest_edge": 28 * 28 * 24}, **GLM4V, "image_processor_type": "Glm46VImageProcessor"},
    },
    "internvl": {
        "config": {"model_type": "internvl", "downsample_ratio": 0.5, "image_seq_length": 256, "vision_config": {"image_size": [448, 448], "patch_size": [14, 14]}},
        "preprocessor": {"size": {"height": 448, "width": 448}, **GOT_OCR},
    },
    "internvl_small": {
        "config": {"model_type": "internvl", "downsample_ratio": 0.25, "image_seq_length": 9, "vision_config": {"image_size": 96, "patch_size": 8}},
        "preprocessor": {"size": {"height": 96, "width": 96}, **GOT_OCR, "min_patches": 2, "max_patches": 7},
    },
    "qwen2_5_vl": {
        "config": {"model_type": "qwen2_5_vl", "vision_config": {"patch_size": 14, "spatial_merge_size": 2}},
        "preprocessor": {"min_pixels": 3136, "max_pixels": 12845056, **QWEN2_5},
    },
    "qwen3_vl": {
        "config": {"model_type": "qwen3_vl", "vision_config": {"patch_size": 16, "spatial_merge_size": 2}},
        "preprocessor": {"size": {"longest_edge": 16777216, "shortest_edge": 65536}, **QWEN3},
    },
    "qwen2_5_vl_small": {
        "config": {"model_type": "qwen2_5_vl"},
        "preprocessor": {"min_pixels": 3136, "max_pixels": 28 * 28 * 12, **QWEN2_5},
    },
    "qwen3_vl_small": {
        "config": {"model_type": "qwen3_vl_moe"},
        "preprocessor": {"size": {"longest_edge": 32 * 32 * 20, "shortest_edge": 32 * 32 * 4}, **QWEN3},
    },
    "gemma3": {
        "config": {"model_type": "gemma3", "mm_tokens_per_image": 256, "vision_config": {"image_size": 896, "patch_size": 14}},
        "preprocessor": {"size": {"height": 896, "width": 896}, **GEMMA3},
    },
    "gemma3_small": {
        "config": {"model_type": "gemma3", "mm_tokens_per_image": 16, "vision_config": {"image_size": 96, "patch_size": 8}},
        "preprocessor": {"size": {"height": 96, "width": 96}, **GEMMA3, "image_seq_length": 16},
    },
    "mistral3": {
        "config": {"model_type": "mistral3", "spatial_merge_size": 2, "vision_config": {"image_size": 1540, "patch_size": 14}},
        "preprocessor": {"size": {"longest_edge": 1540}, **PIXTRAL},
    },
    "mistral3_small": {
        "config": {"model_type": "mistral3", "spatial_merge_size": 2, "vision_config": {"patch_size": 14}},
        "preprocessor": {"size": {"longest_edge": 150}, **PIXTRAL},
    },
}


def as_vllm_decodes(encoded):
    """The pixels, as vllm/multimodal/media/image.py and vllm/multimodal/image.py of vLLM 0.33 make them."""
    image = Image.open(io.BytesIO(encoded))
    with contextlib.suppress(Exception):
        image = ImageOps.exif_transpose(image)
    image.load()
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        on_white = Image.new("RGB", image.size, (255, 255, 255))
        on_white.paste(image, mask=image.split()[3])
        return on_white
    return image.convert("RGB")


def picture(random, width, height, channels=3):
    """Areas, edges, slopes and noise, in `channels` bytes for each pixel."""
    rng = numpy.random.default_rng(random.randrange(2**32))
    y, x = numpy.mgrid[0:height, 0:width]
    pixels = numpy.empty((height, width, channels))
    for channel in range(channels):
        pixels[..., channel] = rng.uniform(0, 255) + rng.uniform(-2, 2) * x + rng.uniform(-2, 2) * y
    for _ in range(random.randrange(6)):
        left, top = random.randrange(width), random.randrange(height)
        right, bottom = random.randint(left + 1, width), random.randint(top + 1, height)
        pixels[top:bottom, left:right] = rng.uniform(0, 255, channels)
    pixels += rng.normal(0, random.choice([0, 2, 20, 100]), pixels.shape)
    return numpy.clip(pixels, 0, 255).astype(numpy.uint8)


def saved(image, kind, **settings):
    file = io.BytesIO()
    image.save(file, kind, **settings)
    return file.getvalue()


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, bits, colour, samples, *extra):
    """A PNG file of rows of samples, as they are, with chunks before the pixels."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    line = len(samples) // height
    rows = b"".join(b"\0" + samples[row * line : (row + 1) * line] for row in range(height))
    chunks = [header, *extra, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}


def random_png(random, width, height, colour, bits, transparent):
    line = (width * CHANNELS[colour] * bits + 7) // 8
    if bits == 8 and colour != 3:
        samples = picture(random, width, height, CHANNELS[colour]).tobytes()
    else:
        samples = random.randbytes(line * height)
        if bits == 16 and colour == 0:
            # Around 255, where Pillow cuts.
            samples = bytes(byte & 1 if place % 2 == 0 else byte for place, byte in enumerate(samples))
    extra = []
    if colour == 3:
        extra.append(chunk(b"PLTE", random.randbytes(3 * random.randint(1, 2**bits))))
    if transparent and colour in (0, 2):
        number = b"".join(bytes([0, samples[place * max(bits, 8) // 8]]) for place in range(CHANNELS[colour]))
        extra.append(chunk(b"tRNS", number))
    if transparent and colour == 3:
        extra.append(chunk(b"tRNS", random.randbytes(random.randint(1, 2**bits))))
    return png(width, height, bits, colour, samples, *extra)


def with_orientation(random, orientation):
    exif = Image.Exif()
    exif.endian = random.choice("<>")
    exif[0x0112] = orientation
    return exif.tobytes()


def random_jpeg(random, width, height):
    mode = random.choice(["RGB"] * 6 + ["L", "CMYK"])
    channels = {"L": 1, "RGB": 3, "CMYK": 4}[mode]
    image = Image.fromarray(picture(random, width, height, channels).squeeze(2 if channels == 1 else ()), mode)
    settings = {"quality": random.choice([1, 10, 40, 75, 90, 95, 100]), "progressive": random.random() < 0.4}
    if mode == "RGB":
        settings["subsampling"] = random.choice(["4:4:4", "4:2:2", "4:2:0", "4:2:0", "4:1:1"])
        if random.random() < 0.1:
            settings |= {"keep_rgb": True, "subsampling": "4:4:4"}
    if random.random() < 0.3:
        settings["restart_marker_blocks"] = random.randint(1, 9)
    if random.random() < 0.3:
        settings["exif"] = with_orientation(random, random.randint(1, 8))
    encoded = saved(image, "JPEG", **settings)
    return transposed_components(encoded) if random.random() < 0.2 else encoded


def transposed_components(encoded):
    """The same blocks as parts of an image that is as wide as this one is high: 4:4:0 out of 4:2:2."""
    file = bytearray(encoded)
    place = 2
    while file[place + 1] not in (0xC0, 0xC2):
        place += 2 + int.from_bytes(file[place + 2 : place + 4])
    file[place + 5 : place + 9] = file[place + 7 : place + 9] + file[place + 5 : place + 7]
    for component in range(file[place + 9]):
        sampling = place + 11 + 3 * component
        file[sampling] = file[sampling] >> 4 | (file[sampling] & 15) << 4
    return bytes(file)


def random_webp(random, width, height):
    mode = random.choice(["RGB", "RGBA"])
    image = Image.fromarray(picture(random, width, height, len(mode)), mode)
    settings = {"quality": random.choice([0, 30, 75, 90, 100]), "lossless": random.random() < 0.4, "method": random.randint(0, 6)}
    if random.random() < 0.3:
        settings["exif"] = with_orientation(random, random.randint(1, 8))
    return saved(image, "WEBP", **settings)


def random_gif(random, width, height):
    image = Image.fromarray(picture(random, width, height)).quantize(random.choice([2, 7, 64, 256]))
    settings = {"interlace": random.randint(0, 1)}
    if random.random() < 0.5:
        settings["transparency"] = random.randrange(4)
    if random.random() < 0.3:
        other = Image.fromarray(picture(random, width, height)).quantize(8)
        settings |= {"save_all": True, "append_images": [other], "disposal": random.randint(0, 3)}
    return saved(image, "GIF", **settings)


RANDOM_FILES = {"jpg": random_jpeg, "png": None, "webp": random_webp, "gif": random_gif}


def random_file(random):
    """The ending of its name, and an encoded image."""
    kind = random.choice(["gif", "jpg", "jpg", "jpg", "png", "png", "webp"])
    most = random.choice([20, 90, 90, 700])
    width, height = random.randint(1, most), random.randint(1, most)
    if max(width, height) > 200 * min(width, height):
        width = height
    if kind == "png":
        colour = random.choice([0, 2, 2, 3, 4, 6])
        return kind, random_png(random, width, height, colour, random.choice(BITS[colour]), random.random() < 0.5)
    return kind, RANDOM_FILES[kind](random, width, height)


def png_files():
    found = {}
    for colour, depths in BITS.items():
        for bits in depths:
            random = Random(f"{colour} {bits}")
            for transparent in (False, True) if colour in (0, 2, 3) else (False,):
                name = f"colour{colour}_{bits}bits{'_transparent' if transparent else ''}.png"
                found[name] = random_png(random, 13, 5, colour, bits, transparent)
    random = Random("png")
    image = Image.fromarray(picture(random, 9, 5))
    exif = with_orientation(random, 8)
    plain = saved(image, "PNG")
    xmp = PngInfo()
    xmp.add_itxt("XML:com.adobe.xmp", XMP.decode(), zip=True)
    found["exif.png"] = saved(image, "PNG", exif=exif)
    found["exif_after_the_pixels.png"] = plain[:-12] + chunk(b"eXIf", exif[6:]) + plain[-12:]
    found["xmp.png"] = saved(image, "PNG", pnginfo=xmp)
    text = f"\nexif\n{len(exif):8}\n{exif.hex()}\n".encode()
    for name, kind, text in ("text", b"tEXt", text), ("packed_text", b"zTXt", b"\0" + zlib.compress(text)):
        text = chunk(kind, b"Raw profile type exif\0" + text)
        found[f"exif_in_{name}.png"] = plain[:33] + text + plain[33:]
    found["interlaced.png"] = interlaced_png()
    found["animated.png"] = saved(image, "PNG", save_all=True, append_images=[image.transpose(Image.Transpose.ROTATE_180)])
    return found


def interlaced_png():
    """Of 3 by 3 pixels of grey: the rows of the five passes of Adam7 that have any of them."""
    rows = bytes([0, 10, 0, 20, 0, 30, 40, 0, 50, 0, 60, 0, 70, 80, 90])
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 3, 3, 8, 0, 0, 0, 1))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def jpeg_files():
    random = Random("jpeg")
    small, odd = Image.fromarray(picture(random, 33, 21)), Image.fromarray(picture(random, 19, 37))
    found = {}
    for subsampling in "4:4:4", "4:2:2", "4:2:0", "4:1:1":
        for progressive in False, True:
            name = subsampling.replace(":", "") + ("_progressive" if progressive else "")
            found[f"{name}.jpg"] = saved(small, "JPEG", subsampling=subsampling, progressive=progressive)
    found["440.jpg"] = transposed_components(found["422.jpg"])
    found["1x4.jpg"] = transposed_components(found["411.jpg"])
    found["worst.jpg"] = saved(odd, "JPEG", quality=1)
    found["best.jpg"] = saved(odd, "JPEG", quality=100, progressive=True)
    found["restarts.jpg"] = saved(odd, "JPEG", restart_marker_blocks=1)
    found["restarts_progressive.jpg"] = saved(odd, "JPEG", restart_marker_blocks=2, progressive=True)
    found["rgb.jpg"] = saved(small, "JPEG", keep_rgb=True, subsampling="4:4:4")
    found["scan_by_scan.jpg"] = scan_by_scan(random, 33, 21)
    for width in 1, 2, 4, 5, 16, 17:
        found[f"{width}_wide.jpg"] = saved(small.crop((0, 0, width, 3)), "JPEG")
    grey = saved(odd.convert("L"), "JPEG")
    place = grey.index(b"\xff\xc0") + 11
    found["grey.jpg"] = grey
    found["grey_progressive.jpg"] = saved(odd.convert("L"), "JPEG", progressive=True)
    found["grey_of_2x2_blocks.jpg"] = grey[:place] + b"\x22" + grey[place + 1 :]
    cmyk = saved(Image.fromarray(picture(random, 17, 9, 4), "CMYK"), "JPEG")
    adobe = cmyk.index(b"\xff\xee\x00\x0eAdobe")
    found["cmyk.jpg"] = cmyk
    found["ycck.jpg"] = cmyk[: adobe + 15] + b"\x02" + cmyk[adobe + 16 :]
    found["cmyk_of_unknown_origin.jpg"] = cmyk[:adobe] + cmyk[adobe + 16 :]
    for orientation in range(1, 9):
        image = small.crop((0, 0, 5, 3))
        found[f"orientation_{orientation}.jpg"] = saved(image, "JPEG", exif=with_orientation(random, orientation))
    found["xmp.jpg"] = saved(small.crop((0, 0, 5, 3)), "JPEG", xmp=XMP)
    found["more_bytes.jpg"] = found["420.jpg"][:2] + b"\xff\xff" + found["420.jpg"][2:-2] + b"\0\1\xff\xd9\xff\xd8"
    return found


def scan_by_scan(random, width, height):
    """A baseline file in 4:2:0 with a scan for each component, made of three files of grey."""
    sizes = [(width, height)] + 2 * [((width + 1) // 2, (height + 1) // 2)]
    files = [saved(Image.fromarray(picture(random, *size, 1).squeeze(2)), "JPEG") for size in sizes]
    header, marker = files[0].index(b"\xff\xc0"), b"\xff\xda"
    components = b"\x01\x22\x00\x02\x11\x00\x03\x11\x00"
    frame = b"\xff\xc0\x00\x11" + files[0][header + 4 : header + 9] + b"\x03" + components
    first = files[0].index(marker)
    file = files[0][:header] + frame + files[0][header + 13 : first]
    for component, scan in enumerate(files, 1):
        start = scan.index(marker)
        file += scan[start : start + 5] + bytes([component]) + scan[start + 6 : -2]
    return file + b"\xff\xd9"


def webp_files():
    found = {}
    for mode in "RGB", "RGBA":
        for lossless in False, True:
            random = Random(f"webp {mode} {lossless}")
            images = [Image.fromarray(picture(random, 23, 17, len(mode)), mode) for _ in range(2)]
            name = f"{mode.lower()}{'_lossless' if lossless else ''}"
            found[f"{name}.webp"] = saved(images[0], "WEBP", lossless=lossless, exif=with_orientation(random, 6))
            found[f"{name}_animated.webp"] = saved(images[0], "WEBP", lossless=lossless, save_all=True, append_images=images[1:])
    return found


def gif_files():
    random = Random("gif")
    image = Image.fromarray(picture(random, 20, 12)).quantize(16)
    found = {
        "plain.gif": saved(image, "GIF", interlace=0),
        "interlaced.gif": saved(image, "GIF", interlace=1),
        "grey.gif": saved(Image.fromarray(picture(random, 20, 12, 1).squeeze(2)), "GIF"),
        "transparent.gif": saved(image, "GIF", transparency=3),
    }
    for name in "plain", "transparent":
        file = found[f"{name}.gif"]
        frame = file.index(b"\x2c\0\0\0\0\x14\0\x0c\0") + 1
        for size, kind in ((30, 20), "inside"), ((10, 10), "outside"):
            placed = file[:6] + struct.pack("<HH", *size) + file[10:frame] + struct.pack("<HH", 3, 4) + file[frame + 4 :]
            found[f"{name}_{kind}.gif"] = placed
    return found


def files():
    """Small files of all that is read, by their names."""
    return png_files() | jpeg_files() | webp_files() | gif_files()
