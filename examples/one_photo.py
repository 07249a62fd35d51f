# %% [markdown]
# # One photo
#
# Albedo, normals and light of a face from one photo; how sure they are; what more photos add; and other lights.

# %%
import os
from pathlib import Path

import numpy as np
from PIL import Image

import deep_lambertian as dl
from deep_lambertian.data.images import linear_to_srgb
from deep_lambertian.synthetic.portrait import draw_portrait

SWEEPS = int(os.environ.get("SWEEPS", "200"))  # of each chain; fewer are faster and noisier
CHAINS = int(os.environ.get("CHAINS", "4"))
OUT = Path("one-photo")
OUT.mkdir(exist_ok=True)


def save(name, light):
    """Linear light as a picture file."""
    Image.fromarray(np.round(255 * linear_to_srgb(light)).astype(np.uint8)).save(OUT / name)


# %% [markdown]
# A photo. Put your own here: `pictures = dl.read_photos(["me.jpg"])`. This one is drawn, so that the truth is known.

# %%
lights = [(0.6, 0.2, 0.7), (-0.6, 0.1, 0.7), (0.0, 0.6, 0.7)]
portraits = [draw_portrait(seed=0, light=light, size=(240, 320)) for light in lights]
for number, portrait in enumerate(portraits):
    save(f"photo-{number}.png", portrait.photo)
pictures = dl.read_photos([OUT / f"photo-{number}.png" for number in range(3)])

# %% [markdown]
# The face is found and inferred by the model that comes with the package. `notes` say what was assumed, `warnings` what
# to take with care.

# %%
model = dl.load_model("yaleb24")
one = dl.infer_photos(model, pictures[:1], sampler=model.sampler.override(iterations=SWEEPS, chains=CHAINS))
print(*one.notes, *one.posterior.diagnostics.warnings, sep="\n")

# %% [markdown]
# What was found: albedo in colour and normals, at the photo's resolution; and at the model's 24×24 the light and the
# uncertainty of everything.

# %%
save("albedo.png", one.albedo / one.albedo.max())
save("normals.png", (one.normals + 1) / 2)
post = one.posterior


def degrees(a, b):
    """The angle between two directions."""
    cosine = np.sum(a * b, axis=-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


print(f"the light is off by {degrees(post.lights[0], np.array(lights[0])):.0f}°")
print(f"normals are unsure by {post.normals_std.mean():.1f}° on average, albedo by {post.albedo_std.mean():.3f}")

# %% [markdown]
# Three photos under different lights say more. The normals move, and are surer.

# %%
three = dl.infer_photos(model, pictures, sampler=model.sampler.override(iterations=SWEEPS, chains=CHAINS))
moved = degrees(three.posterior.normals, post.normals).mean()
print(f"normals moved by {moved:.1f}°, and are unsure by {three.posterior.normals_std.mean():.1f}° now")

# %% [markdown]
# The photo under another light, and the same by hand: a surface's picture is its scaled normals times the light.

# %%
for words, light in {"left": (-0.8, 0.1, 0.5), "above": (0.0, 0.8, 0.5)}.items():
    save(f"from-{words}.png", three.relight_photo(light, ambient=0.2))
light = np.array([0.3, 0.3, 0.8], np.float32)
by_hand = np.maximum(three.posterior.scaled_normals @ light, 0)
assert np.allclose(by_hand, three.posterior.relight(light), atol=1e-6)

# %% [markdown]
# Everything in one file, to go on with tomorrow.

# %%
three.save(OUT / "result.npz")
again = dl.Result.load(OUT)
print(f"written to {OUT}: {', '.join(sorted(path.name for path in OUT.iterdir()))}")
