"""Inference on real photographs, where they are at hand (DLN_DATA, or ../shared/data)."""

import io
import os
import re
import zipfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import deep_lambertian as dl
from test_infer import angle, flat_model

DATA = Path(os.environ.get("DLN_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
pytestmark = pytest.mark.data


def archive(name: str) -> zipfile.ZipFile:
    if not (DATA / name).is_file():
        pytest.skip(f"no {name} in {DATA}")
    return zipfile.ZipFile(DATA / name)


def yale_subject(name: str, size: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Images (P, size, size) of subsets 1–4 of a subject, and the unit lights that their file names tell."""
    images, lights = [], []
    with archive("CroppedYale.zip") as file:
        for member in sorted(file.namelist()):
            match = re.fullmatch(rf"CroppedYale/{name}/{name}_P00A([+-]\d+)E([+-]\d+)\.pgm", member)
            if match:
                azimuth, elevation = np.radians([float(angle) for angle in match.groups()])
                light = [-np.sin(azimuth) * np.cos(elevation), np.sin(elevation), np.cos(azimuth) * np.cos(elevation)]
                if np.degrees(np.arccos(light[2])) <= 77:
                    picture = Image.open(io.BytesIO(file.read(member))).resize((size, size), Image.Resampling.BOX)
                    images.append(np.asarray(picture, np.float32) / 255)
                    lights.append(light)
    return np.stack(images), np.array(lights)


def least_squares(images: np.ndarray, lights: np.ndarray) -> np.ndarray:
    """Scaled normals (H, W, 3) by least squares at each pixel over the images in which it is neither dark nor white."""
    result = np.zeros((*images.shape[1:], 3))
    for index in np.ndindex(*images.shape[1:]):
        values = images[(slice(None), *index)]
        lit = (values > 0.05) & (values < 0.98)
        if lit.sum() >= 4:
            result[index] = np.linalg.lstsq(lights[lit], values[lit], rcond=None)[0]
    return result


def test_photometric_stereo_of_a_real_face():
    """45 photographs under known lights: inference agrees with least squares, and predicts a photograph left out."""
    images, lights = yale_subject("yaleB11")
    assert len(images) == 43  # two of its 45 are corrupt
    left_out = 10
    rest = np.delete(np.arange(len(images)), left_out)
    model = flat_model(24, 24, noise_var=1e-3, preset="best")
    post = model.infer(images[rest], lights=lights[rest], shadow=dl.ShadowWeights())
    reference = least_squares(images[rest], lights[rest])
    assert angle(post.normals, reference).mean() < 8
    assert np.corrcoef(post.albedo.ravel(), np.linalg.norm(reference, axis=-1).ravel())[0, 1] > 0.9
    predicted = post.relight(lights[left_out])
    assert np.sqrt(np.mean((predicted - images[left_out]) ** 2)) < 0.06


def test_one_real_face_under_unknown_light():
    """The mean shape of other people as a plain Gaussian prior: the light is found on the side where it stood."""
    shapes = [least_squares(*yale_subject(f"yaleB{i}")) for i in (11, 12, 13, 15)]
    albedo = np.stack([np.linalg.norm(m, axis=-1) for m in shapes])
    normals = np.stack([m / np.maximum(np.linalg.norm(m, axis=-1, keepdims=True), 1e-6) for m in shapes])
    mean_normals = np.moveaxis(normals.mean(axis=0), -1, 0)
    prior = dl.Product(
        dl.Gaussian.diagonal(jnp.asarray(albedo.mean(axis=0).ravel()), jnp.full(576, 0.02)),
        dl.Gaussian.diagonal(jnp.asarray(mean_normals.ravel()), jnp.full(1728, 0.02)),
    )
    model = dl.DLN.build(prior, (24, 24), noise_var=1e-3, light_mean=(0, 0, 0.9), light_precision=3.0, preset="best")
    images, lights = yale_subject("yaleB16")
    posts = model.infer_many(list(images[:, None]))
    off = angle(np.stack([post.lights[0] for post in posts]), lights)
    assert np.median(off) < 20
    # From one image, the others are predicted better than by the image itself, once their light is known.
    near = int(np.argmin(np.degrees(np.arccos(lights[:, 2]))))
    basis = posts[near].scaled_normals.reshape(-1, 3)
    flat = images.reshape(len(images), -1)
    fitted = basis @ np.linalg.lstsq(basis, flat.T, rcond=None)[0]
    one = flat[near][:, None]
    scaled = one @ np.linalg.lstsq(one, flat.T, rcond=None)[0]
    assert np.mean((np.maximum(fitted, 0).T - flat) ** 2) < 0.7 * np.mean((scaled.T - flat) ** 2)


def test_photometric_stereo_of_a_real_cat():
    """Twelve photographs of a cat of plaster with the distributor's lights and mask."""
    with archive("psmImages.zip") as file:

        def read(name: str) -> np.ndarray:
            picture = Image.open(io.BytesIO(file.read(f"psmImages/cat/cat.{name}.tga"))).convert("L")
            return np.asarray(picture.resize((64, 42), Image.Resampling.BOX), np.float32) / 255

        images, mask = np.stack([read(str(i)) for i in range(12)]), read("mask") > 0.9
        numbers = file.read("psmImages/lights.txt").decode().split()[1:]
    lights = np.array(numbers, float).reshape(12, 3)
    post = flat_model(42, 64, noise_var=3e-4, preset="best").infer(
        images, lights=lights, mask=mask, shadow=dl.ShadowWeights()
    )
    reference = least_squares(images, lights)
    assert np.median(angle(post.normals[mask], reference[mask])) < 6
    residual = post.relight(lights) - images
    assert np.sqrt(np.mean(residual[:, mask] ** 2)) < 0.06
