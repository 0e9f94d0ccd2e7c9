"""Writes tests/golden/images: what transformers, with Pillow below it, makes of images.

    python record_images.py                            # writes all
    python record_images.py --compare PROGRAM 1000     # writes nothing: as many random images of each family and kind

PROGRAM is the example `fingerprints` of the crate tito-images. Needs torch, torchvision, transformers and Pillow (README.md).
"""

import argparse
import hashlib
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy
from PIL import Image
from transformers import (
    Gemma3ImageProcessor, Glm4vImageProcessor, Glm46VImageProcessor, GotOcr2ImageProcessor, PixtralImageProcessor, Qwen2VLImageProcessor,
)  # fmt: skip
from transformers.models.glm4v.image_processing_glm4v import smart_resize

from image_files import FAMILIES, as_vllm_decodes, files, random_file

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "images"

# Width and height: one pixel; too few pixels, which are enlarged; sides between two multiples; multiples, which stay as
# they are; one side that stays; far from square, up to the ratio of 200; more pixels than the limits let through.
SIZES = [
    (1, 1), (2, 1), (1, 3), (5, 7), (13, 200), (27, 29), (28, 28), (32, 32), (55, 57), (56, 56), (64, 64), (70, 98), (80, 48),
    (84, 112), (96, 128), (100, 100), (101, 99), (112, 113), (113, 128), (126, 140), (128, 97), (144, 176), (200, 1), (1, 200),
    (199, 3), (400, 2), (2, 399), (233, 87), (224, 224), (256, 255), (255, 256), (300, 200), (320, 240), (333, 777), (17, 777),
    (640, 48), (500, 375), (1000, 20), (612, 408), (1024, 31),
]  # fmt: skip


def drawn(width, height, seed):
    """Noise over a slope: bytes that only depend on the numbers, so that others can draw them too."""
    index = numpy.arange(3 * width * height, dtype=numpy.uint64)
    noise = ((index + seed) * 2654435761 % 2**32 * 40503 % 2**32) >> 20
    slope = index // 3 % width * 255 // width
    return ((noise + slope) % 256).astype(numpy.uint8).reshape(height, width, 3)


def processor_of(family):
    kinds = {
        "gemma3": Gemma3ImageProcessor, "glm4v": Glm4vImageProcessor, "glm4v_moe": Glm46VImageProcessor,
        "internvl": GotOcr2ImageProcessor, "mistral3": PixtralImageProcessor,
    }  # fmt: skip
    kind = kinds.get(family["config"]["model_type"], Qwen2VLImageProcessor)
    return kind(**family["preprocessor"])


def cut(pixels, config):
    """The pixels of a whole image, [3, height, width], as patches: those that are made one embedding stand side by side."""
    side = numpy.ravel(config["vision_config"]["patch_size"])[0]
    rows, columns = pixels.shape[1] // side, pixels.shape[2] // side
    if config["model_type"] == "mistral3":
        merge = config["spatial_merge_size"]
    elif config["model_type"] == "internvl":
        merge = int(1 / config["downsample_ratio"])
    else:
        merge = rows // int(config["mm_tokens_per_image"] ** 0.5)
    cut = pixels.reshape(3, rows // merge, merge, side, columns // merge, merge, side).transpose(1, 4, 2, 5, 0, 3, 6)
    return [int(rows), int(columns)], numpy.ascontiguousarray(cut)


def prepared(processor, image, config):
    """The grid, and the hash of the numbers of all patches in float32, the lowest byte first."""
    given = {}
    if config["model_type"] == "mistral3":
        # As PixtralProcessor calls it.
        given["patch_size"] = config["vision_config"]["patch_size"] * config["spatial_merge_size"]
    if config["model_type"] == "internvl":
        # As InternVLProcessor calls it.
        given["crop_to_patches"] = True
    features = processor(images=[image], return_tensors="pt", **given)
    numbers = features["pixel_values"].numpy().astype("<f4", copy=False)
    if config["model_type"] == "internvl":
        # Squares, one below the other.
        grid, numbers = cut(numpy.concatenate(numbers, 1), config)
    elif config["model_type"] in ("gemma3", "mistral3"):
        grid, numbers = cut(numbers[0], config)
    else:
        grid = features["image_grid_thw"][0].tolist()[1:]
    return grid, hashlib.sha256(numbers.tobytes()).hexdigest()


def is_refused(family, width, height):
    """Whether no grid is made of it.

    transformers makes a side of no pixels of it, and fails; or it makes too long a side of it where it enlarges it first.
    """
    if family["config"]["model_type"].startswith("glm4v"):
        try:
            smart_resize(2, height, width)
        except ValueError:
            return True
    if family["config"]["model_type"] != "mistral3":
        return False
    return min(width, height) * family["preprocessor"]["size"]["longest_edge"] < max(width, height)


def write_processors():
    for name, family in FAMILIES.items():
        processor = processor_of(family)
        images = []
        # Published limits make large images of all, which take long to compare.
        sizes = SIZES if name.endswith("_small") else SIZES[::3]
        for seed, (width, height) in enumerate(sizes):
            if is_refused(family, width, height):
                continue
            grid, patches = prepared(processor, Image.fromarray(drawn(width, height, seed)), family["config"])
            images.append({"width": width, "height": height, "seed": seed, "grid": grid, "patches": patches})
        lines = ",\n".join(json.dumps(image) for image in images)
        head = json.dumps({"config": family["config"], "preprocessor": family["preprocessor"]})
        (GOLDEN / f"{name}.json").write_text(f'{head[:-1]}, "images": [\n{lines}\n]}}\n')


def write_files():
    folder = GOLDEN / "files"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    lines = []
    for name, encoded in files().items():
        (folder / name).write_bytes(encoded)
        image = as_vllm_decodes(encoded)
        pixels = hashlib.sha256(image.tobytes()).hexdigest()
        lines.append(json.dumps({"name": name, "width": image.width, "height": image.height, "pixels": pixels}))
    (GOLDEN / "files.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def compare(program, count):
    """Exits with 1 if the program makes something else of a random image than Pillow and transformers."""
    wrong = 0
    for name, family in FAMILIES.items():
        processor = processor_of(family)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for file in "config", "preprocessor":
                path = folder / (file if file == "config" else "preprocessor_config")
                path.with_suffix(".json").write_text(json.dumps(family[file]))
            expected = {}
            for number in range(count):
                kind, encoded = random_file(random.Random(f"{name} {number}"))
                if is_refused(family, *as_vllm_decodes(encoded).size):
                    continue
                path = folder / f"{number:05}.{kind}"
                path.write_bytes(encoded)
                image = as_vllm_decodes(encoded)
                (rows, columns), patches = prepared(processor, image, family["config"])
                pixels = hashlib.sha256(image.tobytes()).hexdigest()
                expected[path.name] = [pixels, f"{rows}x{columns}", patches]
            output = subprocess.run([program, folder], check=True, capture_output=True, text=True).stdout
            found = {line.split()[0]: line.split()[1:] for line in output.splitlines()}
            differ = [file for file in expected if found.get(file) != expected[file]]
            for file in differ:
                print(name, file, "expected", expected[file], "found", " ".join(found.get(file, [])))
            for kind in sorted({file.split(".")[1] for file in expected}):
                of_kind = [file for file in expected if file.endswith("." + kind)]
                equal = len([file for file in of_kind if file not in differ])
                print(f"{name}: {equal} of {len(of_kind)} {kind} images equal to the bit")
            wrong += len(differ)
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compare", nargs=2, metavar=("PROGRAM", "COUNT"))
    arguments = parser.parse_args()
    if arguments.compare:
        program, count = arguments.compare
        sys.exit(compare(program, int(count)))
    GOLDEN.mkdir(parents=True, exist_ok=True)
    write_processors()
    write_files()


if __name__ == "__main__":
    main()
