# %% [markdown]
# # Your own objects
#
# A model of a class of things, learned from a folder of photos whose lights nobody has measured; and what it is worth
# on things that it has not seen.

# %%
import os
from pathlib import Path

import numpy as np
from PIL import Image

import deep_lambertian as dl
from deep_lambertian.data.images import linear_to_srgb

OBJECTS = int(os.environ.get("OBJECTS", "60"))
SIZE = int(os.environ.get("SIZE", "24"))  # pixels a side
SWEEPS = int(os.environ.get("SWEEPS", "200"))  # of each chain in inference
PRESET = "quick"  # "best" for a model to keep
SETTINGS = {} if "ITERATIONS" not in os.environ else {"iterations": int(os.environ["ITERATIONS"])}

# %% [markdown]
# The folder: one folder of images for each object. Yours would be there already; these are synthetic faces, so that the
# truth is known.

# %%
root = Path("my-objects")
drawn = dl.data.make_faces(count=OBJECTS, images=6, size=2 * SIZE, seed=0, noise=0.01)
for name, images, _, _ in drawn.each():
    (root / name).mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images):
        eight_bits = np.round(255 * linear_to_srgb(image)).astype(np.uint8)
        Image.fromarray(eight_bits).save(root / name / f"{number}.png")

# %% [markdown]
# Read it, and keep some objects apart. `dln data check folder my-objects/` says what is wrong with a folder.

# %%
data = dl.data.load_folder(root, size=SIZE)
print(f"{len(data)} objects of up to {data.images.shape[1]} images; left out: {data.skipped_reasons() or 'nothing'}")
train, test = data.split(0.8, seed=0)

# %% [markdown]
# Train. The lights are not in the folder, and are not needed. Of the monitors, `one_image_deg` should come to lie below
# `mean_shape_deg`: from one image, the model then knows an object better than the mean of all does.


# %%
def watch(monitors):
    names = ("one_image_deg", "mean_shape_deg", "drift_deg", "noise")
    shown = ", ".join(f"{name} {monitors[name]:.3g}" for name in names if name in monitors)
    print(f"iteration {monitors['iteration']}: {shown}")


config = dl.Config.of_preset(PRESET).override(**SETTINGS)
model = dl.train(train, config, out="my-run", on_step=watch)

# %% [markdown]
# Objects that it has not seen, one image of each, all at once.

# %%
posts = model.infer_many([images[:1] for _, images, _, _ in test.each()], iterations=SWEEPS, chains=1)

# %% [markdown]
# How good is it? The truth is known here: of the synthetic objects at the size that we trained at.


# %%
def degrees(found, truth):
    return np.degrees(np.arccos(np.clip(np.sum(found * truth, axis=-1), -1, 1))).mean()


exact = dl.data.make_faces(count=OBJECTS, images=6, size=SIZE, seed=0)
truth = {name: normals for name, normals in zip(exact.names, exact.info["normals"], strict=True)}
mean = np.mean([truth[name] for name in train.names], axis=0)
mean /= np.linalg.norm(mean, axis=-1, keepdims=True)
ours = np.mean([degrees(post.normals, truth[name]) for name, post in zip(test.names, posts, strict=True)])
plain = np.mean([degrees(mean, truth[name]) for name in test.names])
print(f"normals from one image are off by {ours:.1f}°; those of the true mean shape by {plain:.1f}°")

# %% [markdown]
# Without any truth: predict an image that the model has not seen, from the one that it has. Only its light is fitted.

# %%
errors = []
for (_, images, _, _), post in zip(test.each(), posts, strict=True):
    surface = post.scaled_normals.reshape(-1, 3)
    for image in images[1:].reshape(len(images) - 1, -1):
        light = np.linalg.lstsq(surface, image, rcond=None)[0]
        errors.append(np.sqrt(np.mean((np.maximum(surface @ light, 0) - image) ** 2)))
print(f"other images are predicted to {np.mean(errors):.3f} (root mean square)")

# %% [markdown]
# The model is one file. `dln infer my-run/model.safetensors photo.png --no-align` uses it from the command line.

# %%
model.save("my-model.safetensors")
print(dl.load_model("my-model.safetensors").info["objects"][:3])
