"""Loaders and inference on real photographs, where they are at hand (DLN_DATA, or ../shared/data)."""

import os
from functools import lru_cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import deep_lambertian as dl
from deep_lambertian.data import Dataset, load_faces, load_folder, load_yaleb, protocol
from test_infer import angle, flat_model

DATA = Path(os.environ.get("DLN_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
pytestmark = pytest.mark.data


def place(name: str) -> Path:
    if not (DATA / name).is_file():
        pytest.skip(f"no {name} in {DATA}")
    return DATA / name


@lru_cache
def yale() -> Dataset:
    return load_yaleb(place("CroppedYale.zip"))


def yale_subject(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (P, 24, 24) of subsets 1–4 of a subject, and the unit lights that their file names tell."""
    _, images, _, lights = next(yale().object(name).each())
    assert lights is not None
    return images, lights


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
    post = model.infer(images[rest], lights=lights[rest], sampler=model.sampler.override(shadow=dl.ShadowLabels()))
    reference = least_squares(images[rest], lights[rest])
    assert angle(post.normals, reference).mean() < 8
    assert np.corrcoef(post.albedo.ravel(), np.linalg.norm(reference, axis=-1).ravel())[0, 1] > 0.9
    predicted = post.relight(lights[left_out])
    assert np.sqrt(np.mean((predicted - images[left_out]) ** 2)) < 0.07


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
    objects = load_folder(place("psmImages.zip"), size=(42, 64), srgb=False)
    _, images, masks, lights = next(objects.object("psmImages/cat").each())
    assert lights is not None
    mask = masks[0]
    post = flat_model(42, 64, noise_var=3e-4, preset="best").infer(
        images,
        lights=lights,
        mask=mask,
        sampler=flat_model(42, 64, noise_var=3e-4, preset="best").sampler.override(shadow=dl.ShadowLabels()),
    )
    reference = least_squares(images, lights)
    lit = mask & (np.linalg.norm(reference, axis=-1) > 0)  # its nose is too dark in most images
    assert np.median(angle(post.normals[lit], reference[lit])) < 6
    residual = post.relight(lights) - images
    assert np.sqrt(np.mean(residual[:, mask] ** 2)) < 0.06


def test_the_whole_of_yale_b():
    data = load_yaleb(place("CroppedYale.zip"), subsets=(1, 2, 3, 4, 5))
    assert len(data) == 28
    # 64 lights: 7, 12, 12, 14 and 19 images in the five subsets of a subject without corrupt images.
    assert [int((data.subsets == i).sum(axis=1).max()) for i in range(1, 6)] == [7, 12, 12, 14, 19]
    assert data.skipped_reasons()["marked as corrupt (.bad)"] == 18
    assert data.skipped_reasons()["ambient light only"] == 28
    train, test = protocol(yale(), "dev")
    assert (len(train), len(test)) == (18, 10)
    # A light from the left of the image brightens its left half.
    halves = data.images[..., :12].mean(axis=(2, 3)) - data.images[..., 12:].mean(axis=(2, 3))
    there = data.present
    assert np.corrcoef(-data.lights[there][:, 0], halves[there])[0, 1] > 0.9


def test_reference_rows_of_one_shot_recognition():
    """Nearest neighbour and normalised correlation on the dev protocol: error in per cent, published with the data."""
    _, test = protocol(yale(), "dev")
    images = test.images.reshape(10, -1, 576)
    subset = test.subsets
    for normalise, total, parts in ((False, 60.6, (22.0, 68.1, 87.1)), (True, 46.6, (12.9, 43.2, 78.5))):
        x = images / np.linalg.norm(images, axis=2, keepdims=True).clip(1e-9) if normalise else images
        wrong: dict[int, list[bool]] = {2: [], 3: [], 4: []}
        for k in range(7):
            gallery = np.stack([x[s, np.flatnonzero(subset[s] == 1)[k]] for s in range(10)])
            for s in range(10):
                for p in np.flatnonzero(subset[s] >= 2):
                    nearest = np.argmin(np.sum((gallery - x[s, p]) ** 2, axis=1))
                    wrong[int(subset[s, p])].append(nearest != s)
        errors = [100 * np.mean(wrong[i]) for i in (2, 3, 4)]
        np.testing.assert_allclose(errors, parts, atol=0.1)
        assert 100 * np.mean([*wrong[2], *wrong[3], *wrong[4]]) == pytest.approx(total, abs=0.1)


def test_the_unlabelled_faces():
    faces = load_faces(place("faces48.npz"))
    assert len(faces) == 22_434
    assert faces.images.mean() == pytest.approx(0.5, abs=0.01)
    # Eyes are darker than cheeks, on average, where CroppedYale has them.
    mean = faces.images.mean(axis=(0, 1))
    assert mean[6:9, 4:9].mean() < mean[12:16, 4:8].mean()


def test_lights_that_training_was_not_shown_are_those_of_the_file_names():
    model = dl.train(yale())
    found = model.info["monitors"]
    assert found["light_mapped_deg"] < 10
    assert found["light_deg"] < 20
    assert found["one_image_deg"] < found["mean_shape_deg"]  # of two subjects that were held out
    assert found["sample_mean_deg"] < 6
