"""The pictures of these pages, each made by one command from what comes with the package:

python docs/figures.py NAME [--out FOLDER]
"""

import argparse
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

import deep_lambertian as dl
from deep_lambertian.data.images import grey, normal_colours, sheet
from deep_lambertian.support.files import atomic_write
from deep_lambertian.synthetic.heads import draw_faces
from deep_lambertian.synthetic.scenes import shade

HERE = Path(__file__).parent
BLANK = np.full((8, 8, 3), 255, np.uint8)
Tile = tuple[str, np.ndarray]


def portrait() -> Image.Image:
    """A photograph, what is found in it, and the photograph under three new lights."""
    from skimage.data import astronaut  # of NASA, in the public domain

    from deep_lambertian.data.images import srgb_to_linear
    from deep_lambertian.geometry import direction
    from deep_lambertian.report.photo import AMBIENT, facing, to_bytes

    result = dl.infer_photos(dl.load_model("yaleb24"), [("astronaut.png", srgb_to_linear(astronaut() / 255))])
    height, width = 176, 150
    rows, columns = slice(20, 256), slice(124, 324)

    def look(picture: np.ndarray) -> np.ndarray:
        return to_bytes(picture[rows, columns], True)

    shown = [
        ("the photo", look(result.photos[0].colour)),
        ("albedo", to_bytes(facing(result.albedo, result.posterior), True)),
        ("normals", normal_colours(result.normals)),
        (f"spread, up to {result.posterior.normals_std.max():.0f}°", heat(result.posterior.normals_std)),
    ]
    relit = []
    for words, toward in (
        ("as found", result.posterior.lights[0] / np.linalg.norm(result.posterior.lights[0])),
        ("lit from the left", direction(-45, 10)),
        ("from the right", direction(45, 10)),
        ("from above", direction(0, 45)),
    ):
        strength = result.as_bright(toward, 0, AMBIENT)
        relit.append((words, look(result.relight_photo(strength * toward, 0, AMBIENT * strength))))
    return album([[(words, picture, width) for words, picture in row] for row in (shown, relit)], height)


def rendering() -> Image.Image:
    """Albedo times shading is the image, under three lights."""
    lights = np.array([[0.7, 0.1, 0.7], [-0.8, 0.2, 0.5], [0.0, 0.8, 0.6]])
    face = draw_faces(1, 3, 96, seed=3, lights=lights)
    ones = np.ones_like(face.albedo)
    shading = shade(ones, face.normals, face.lights)[0]
    rows = []
    for words, dark, image in zip(("right", "left", "above"), shading, face.images[0], strict=True):
        rows.append(
            [
                ("albedo a", grey(face.albedo[0])),
                ("normals n", normal_colours(face.normals[0])),
                (f"shading, from {words}", grey(dark)),
                ("albedo times shading", grey(image)),
            ]
        )
    return sheet(rows, tile=144)


def prior() -> Image.Image:
    """Faces of nobody: the mean of the bundled prior, and draws from it."""
    model = dl.load_model("yaleb24")
    drawn = model.sample(count=6, lights=[[0.5, 0.2, 0.8]], seed=0)
    centre = np.asarray(model.params.prior.centre).reshape(4, *model.shape)
    albedo = np.concatenate([centre[None, 0], drawn.albedo])
    normals = np.concatenate([np.moveaxis(centre[None, 1:], 1, -1), drawn.normals])
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    images = shade(albedo, normals, np.broadcast_to([[0.5, 0.2, 0.8]], (7, 1, 3)))[:, 0]
    names = ["mean", *(f"draw {i}" for i in range(1, 7))]
    brightest = float(np.quantile(albedo, 0.99))
    return sheet(
        [
            [(f"{name}: albedo", grey(each, brightest)) for name, each in zip(names, albedo, strict=True)],
            [("normals", normal_colours(each)) for each in normals],
            [("lit from the right", grey(each, brightest)) for each in images],
        ],
        tile=110,
    )


def sweeps() -> Image.Image:
    """A face lit from the side, and the state of a chain at sweeps 1 to 50."""
    model = prior_of_faces()
    face = draw_faces(1, 1, model.shape[0], seed=12, lights=np.array([[0.75, 0.1, 0.55]]), noise=0.02)
    post = model.infer(face.images[0], chains=1, seed=0, sampler=model.sampler.override(iterations=50, keep=50))
    states = post.samples["albedo"][0], post.samples["normals"][0]
    rows = [[("the image", grey(face.images[0, 0], 0.7))], [("", BLANK)], [("", BLANK)]]
    for sweep in (1, 2, 5, 10, 20, 50):
        albedo, normals = (state[sweep - 1] for state in states)
        unit = normals / np.linalg.norm(normals, axis=-1, keepdims=True)
        rows[0].append((f"albedo, sweep {sweep}", grey(albedo)))
        rows[1].append((f"normals, sweep {sweep}", normal_colours(unit)))
        rows[2].append(("lit from the left", grey(shade(albedo, unit, [[-0.75, 0.1, 0.55]])[0], 0.7)))
    rows[0].append(("the truth", grey(face.albedo[0])))
    rows[1].append(("the truth", normal_colours(face.normals[0])))
    rows[2].append(("the truth", grey(shade(face.albedo[0], face.normals[0], [[-0.75, 0.1, 0.55]])[0], 0.7)))
    return sheet(rows, tile=108)


def uncertainty() -> Image.Image:
    """How unsure the posterior is, beside how far off it is: where the prior is right, and where it is only alike."""
    model = prior_of_faces()
    drawn = model.sample(count=1, images=8, seed=1)
    face = draw_faces(1, 8, model.shape[0], seed=12, noise=0.02)
    most, rows = 12.0, []
    for words, images, truth, settings in (
        ("of the prior", drawn.images[0], drawn.normals[0], {"shadow": False}),  # its images have no shadows
        ("a face", face.images[0], face.normals[0], {}),
    ):
        truth = truth / np.linalg.norm(truth, axis=-1, keepdims=True)
        for count in (1, 8):
            post = model.infer(images[:count], iterations=400, seed=0, **settings)
            off = np.degrees(np.arccos(np.clip(np.sum(post.normals * truth, axis=-1), -1, 1)))
            print(f"{words}, {count} images: spread {post.normals_std.mean():.1f}°, off by {off.mean():.1f}°")
            rows.append(
                [
                    (f"{words}, {count} of 8 images", grey(np.maximum(images[0], 0), 0.9)),
                    ("albedo", grey(post.albedo)),
                    ("normals", normal_colours(post.normals)),
                    (f"spread, mean {post.normals_std.mean():.1f}°", heat(post.normals_std, most)),
                    (f"off by, mean {off.mean():.1f}°", heat(off, most)),
                ]
            )
    return sheet(rows, tile=140)


def shadows() -> Image.Image:
    """What a hard shadow does to a sampler that does not look for shadows, and to one that does."""
    model = prior_of_faces()
    face = draw_faces(
        1, 1, model.shape[0], seed=12, lights=np.array([[0.85, 0.1, 0.35]]), cast_shadows=True, noise=0.01
    )
    row: list[Tile] = [("the image", grey(face.images[0, 0], 0.7)), ("true normals", normal_colours(face.normals[0]))]
    for words, settings in (("every pixel counts", {"shadow": False}), ("shadows left out", {})):
        post = model.infer(face.images[0], seed=0, **settings)
        cosine = np.clip(np.sum(post.normals * face.normals[0], axis=-1), -1, 1)
        off = np.degrees(np.arccos(cosine))
        row += [(words, normal_colours(post.normals)), (f"off by, mean {off.mean():.1f}°", heat(off, 25.0))]
    return sheet([row], tile=132)


def ambiguity() -> Image.Image:
    """Two surfaces, each under a light of its own, that make the same image: G and its inverse."""
    face = draw_faces(1, 1, 96, seed=3, lights=np.array([[0.45, 0.15, 0.8]]))
    light = face.lights[0, 0].astype(np.float64)
    rows = []
    for words, flat in (("the face", 1.0), ("half as deep", 0.5), ("twice as deep", 2.0)):
        # A surface whose depth is multiplied by `flat` has scaled normals G m, and G⁻ᵀ ℓ lights it to the same image.
        linear = np.diag([flat, flat, 1.0])
        scaled = (face.albedo[0][..., None] * face.normals[0]) @ linear.T
        other = np.linalg.inv(linear).T @ light
        albedo = np.linalg.norm(scaled, axis=-1)
        azimuth, elevation = np.degrees([np.arctan2(other[0], other[2]), np.arctan2(other[1], np.hypot(*other[::2]))])
        rows.append(
            [
                (f"{words}: normals", normal_colours(scaled / albedo[..., None])),
                ("its albedo", grey(albedo, float(albedo.max()))),
                (f"lit from {azimuth:.0f}°, {elevation:.0f}° up", grey(np.maximum(scaled @ other, 0))),
            ]
        )
    return sheet(rows, tile=144)


def demo() -> Image.Image:
    """The sheet that `dln demo` writes as faces.png."""
    import tempfile

    from deep_lambertian.experiments.demonstration import demonstrate
    from deep_lambertian.report.experiment import demonstration_picture

    with tempfile.TemporaryDirectory() as folder:
        return demonstration_picture(demonstrate(Path(folder)))


def synthetic_faces() -> Image.Image:
    """People of `make_faces`, each under several lights."""
    from deep_lambertian.report.data_check import contact_sheet

    return contact_sheet(dl.data.make_faces(count=8, images=8, size=72, seed=0), objects=8)


FIGURES: dict[str, Callable[[], Image.Image]] = {
    "portrait": portrait,
    "rendering": rendering,
    "prior": prior,
    "sweeps": sweeps,
    "uncertainty": uncertainty,
    "shadows": shadows,
    "ambiguity": ambiguity,
    "demo": demo,
    "synthetic-faces": synthetic_faces,
}


def prior_of_faces(size: int = 24) -> dl.DLN:
    """A model whose prior is a Gaussian, fitted to the exact surfaces of 300 synthetic people."""
    others = dl.data.make_faces(count=300, images=1, size=size, seed=1)
    surfaces = np.concatenate([others.info["albedo"][..., None], others.info["normals"]], axis=-1)
    surfaces = np.moveaxis(surfaces, -1, 1).reshape(300, -1)
    _, scale, directions = np.linalg.svd(surfaces - surfaces.mean(axis=0), full_matrices=False)
    factors = directions[:60].T * scale[:60] / np.sqrt(300)
    rest = np.maximum(surfaces.var(axis=0) - np.sum(factors**2, axis=1), 1e-3)
    gaussian = dl.Gaussian.of_factors(surfaces.mean(axis=0), rest, factors)
    return dl.DLN.build(
        gaussian, (size, size), noise_var=6e-4, light_mean=(0, 0, 0.8), light_precision=5, preset="best"
    )


def heat(values: np.ndarray, most: float | None = None) -> np.ndarray:
    """Spreads as colours: dark blue is nothing, yellow is `most`."""
    from matplotlib import colormaps

    most = float(np.quantile(values, 0.99)) if most is None else most
    return np.ascontiguousarray(colormaps["cividis"](np.clip(values / most, 0, 1), bytes=True)[..., :3])


def album(rows: list[list[tuple[str, np.ndarray, int]]], height: int) -> Image.Image:
    """Rows of pictures of one height, each with a caption and a width."""
    from PIL import ImageDraw, ImageFont

    gap, caption, font = 10, 18, ImageFont.load_default(12)
    width = max(sum(w + gap for _, _, w in row) for row in rows) + gap
    canvas = Image.new("RGB", (width, len(rows) * (height + caption + gap) + gap), "white")
    pen = ImageDraw.Draw(canvas)
    for r, row in enumerate(rows):
        left, top = gap, gap + r * (height + caption + gap)
        for words, picture, w in row:
            pen.text((left, top), words, fill="black", font=font)
            large = picture.shape[0] > height
            how = Image.Resampling.LANCZOS if large else Image.Resampling.NEAREST
            canvas.paste(Image.fromarray(picture).resize((w, height), how), (left, top + caption))
            left += w + gap
    return canvas


def packed(picture: Image.Image, most: int = 145_000) -> bytes:
    """A PNG as small as is asked for, if need be of few colours."""
    whole = picture.convert("RGB")
    for colours in (None, 256, 128, 64):
        file = io.BytesIO()
        shown = whole if colours is None else whole.quantize(palette=whole.quantize(colours))  # dithered
        shown.save(file, "PNG", optimize=True)
        if file.tell() <= most:
            break
    return file.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*FIGURES, "all"], metavar="NAME", help=f"{', '.join(FIGURES)}, or all")
    parser.add_argument(
        "--out", type=Path, default=HERE / "images", help="folder of the picture (default: docs/images)"
    )
    options = parser.parse_args()
    for name in FIGURES if options.name == "all" else [options.name]:
        data = packed(FIGURES[name]())
        with atomic_write(options.out / f"{name}.png") as file:
            file.write(data)
        print(f"{options.out / name}.png: {len(data) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
