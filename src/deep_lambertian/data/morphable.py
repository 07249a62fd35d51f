"""A morphable head, and surfaces without number drawn from it: heads that never were, in the frame of cropped faces.

A head is a mean, plus identities whose coefficients are N(0, 1), plus a few small expressions. It is turned a little,
placed by its eyes and mouth as faces are cropped by theirs, and rasterised. Pixels are areas: where they are coarse,
the surface is rasterised finer and a·n averaged, which is what a camera sees of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy import ndimage, sparse

from deep_lambertian.data.rasteriser import incidence, rasterise, vertex_normals
from deep_lambertian.geometry import unit
from deep_lambertian.support.archives import DAMAGE, describe, read_npz
from deep_lambertian.support.files import load_arrays, save_arrays
from deep_lambertian.support.progress import track
from deep_lambertian.support.resampling import average_areas
from deep_lambertian.surface import Surface

LEFT_EYE, RIGHT_EYE, MOUTH = slice(36, 42), slice(42, 48), slice(48, 60)  # of the usual 68 landmarks
FINEST = 96  # pixels a side below which heads are rasterised finer than they are asked for
TOGETHER = 16  # heads whose vertices are computed at a time
KIND = "surfaces"
ACTIVE = 0.15  # the share of expressions that a face wears at a time


@dataclass(frozen=True)
class Frame:
    """Where the mean head lies in a square picture, as shares of its side, and how far it nods, in degrees.

    The default is the frame of CroppedYale, fitted once, on the mean head, to the mean normals of the model yaleb48.
    """

    eyes: float = 0.259  # the row of the eyes' middle, from the top
    mouth: float = 0.766
    apart: float = 0.546  # from one eye's middle to the other's
    middle: float = 0.5  # the column between them
    pitch: float = -1.1  # upwards is positive

    @property
    def marks(self) -> np.ndarray:
        """Where the left eye, the right eye and the mouth are: columns and rows (3, 2)."""
        half = self.apart / 2
        return np.array([(self.middle - half, self.eyes), (self.middle + half, self.eyes), (self.middle, self.mouth)])


@dataclass(frozen=True)
class Variety:
    """How heads differ: standard deviations of the identity's coefficients, of those expressions that a face wears (at
    most 1), of the turn up and aside in degrees, and of place and size in the frame as shares of its side.
    """

    identity: float = 1.0
    expression: float = 0.1
    pitch: float = 0.0
    yaw: float = 0.0
    place: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (np.isfinite(value) and value >= 0):
                raise ValueError(f"{name}, a standard deviation, must be finite and not negative; got {value!r}")


@dataclass(frozen=True)
class Heads:
    """Surfaces that were drawn. Beyond the heads' outlines, where `mask` is false, what is nearest is continued."""

    normals: np.ndarray  # (n, H, W, 3), of unit length
    height: np.ndarray  # (n, H, W), towards the viewer, in units of half the frame's width
    mask: np.ndarray  # (n, H, W) bool: where there is a head
    albedo: np.ndarray | None  # (n, H, W), where textures were given
    squeeze: float  # how much shorter the frame shows what is upright than what is level

    licence: str = ""  # of the head that they were drawn from
    images: np.ndarray | None = None  # (n, P, H, W), where they were photographed
    lights: np.ndarray | None = None  # (n, P, 3), by which

    def __len__(self) -> int:
        return len(self.normals)

    @property
    def surface(self) -> Surface:
        """For priors, whose x = [a, vec N] is `surface.pack()`; without textures albedo is 1."""
        return Surface.from_pictures(np.ones_like(self.height) if self.albedo is None else self.albedo, self.normals)

    def save(self, path: str | Path) -> None:
        """Write them to one `.npz` file, in half precision, with the licence of the head."""
        arrays = {name: np.asarray(value) for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        halves = {name: value if value.dtype == bool else value.astype(np.float16) for name, value in arrays.items()}
        save_arrays(path, KIND, {"squeeze": self.squeeze, "licence": self.licence}, halves)

    @classmethod
    def load(cls, path: str | Path) -> "Heads":
        """Read what `save` wrote."""
        header, arrays = load_arrays(path, KIND)
        full = {name: value if value.dtype == bool else value.astype(np.float32) for name, value in arrays.items()}
        return cls(**{"albedo": None, **full}, squeeze=header["squeeze"], licence=header["licence"])


@dataclass(frozen=True)
class Morphable:
    """A mean head and how heads differ from it. Lengths are in units of the file: x right, y up, z to the viewer."""

    vertices: np.ndarray  # (M, 3)
    triangles: np.ndarray  # (T, 3), counterclockwise as seen from outside
    identity: np.ndarray  # (K, M, 3)
    expression: np.ndarray  # (E, M, 3)
    expression_names: tuple[str, ...]
    landmarks: np.ndarray  # (68,), vertices
    part: np.ndarray  # (M,): 0 face, 1 head, 2 mouth socket, 3 eye sockets, 4 eyeballs
    licence: str = ""

    def draw(
        self,
        count: int,
        size: int = 48,
        seed: int = 0,
        *,
        variety: Variety | None = None,
        frame: Frame | None = None,
        textures: np.ndarray | None = None,
    ) -> Heads:
        """`count` surfaces of `size`×`size` pixels; the seed and a head's number decide who it is, whatever the rest.

        `textures` (n, M) are albedos that vertices carry (see `texture`), of which every head gets one at random.
        """
        for name, value, least in (("count", count, 1), ("size", size, 4)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name}: expected a whole number of at least {least}, got {value!r}")
        if textures is not None and (textures.ndim != 2 or textures.shape[1] != len(self.vertices)):
            raise ValueError(f"textures: expected shape (n, {len(self.vertices)}), got {textures.shape}")
        frame, variety = frame or Frame(), variety or Variety()
        aspect = self._aspect(frame)
        shape = (count, size, size)
        normals, height, mask = np.empty((*shape, 3), np.float32), np.empty(shape, np.float32), np.empty(shape, bool)
        albedo = None if textures is None else np.empty(shape, np.float32)
        people = self._people(count, seed, variety, frame)
        for i, (vertices, wander, rng) in zip(track(range(count), "drawing heads"), people, strict=True):
            points = self._placed(vertices, frame, aspect, wander)
            paint = None if textures is None else textures[rng.integers(len(textures))]
            scaled, normals[i], height[i], mask[i] = self._picture(vertices, points, paint, size)
            if albedo is not None:
                albedo[i] = scaled
        return Heads(normals, height, mask, albedo, aspect, self.licence)

    def texture(self, pictures: np.ndarray, frame: Frame | None = None) -> np.ndarray:
        """Textures (n, M) of pictures (n, H, W) that lie in a frame: each vertex takes what the mean head has there."""
        frame, size = frame or Frame(), np.array(pictures.shape[-2:])
        places = self._placed(_turned(self.vertices, frame.pitch, 0), frame, self._aspect(frame), np.zeros(3))
        at = places[:, 1::-1].T * size[:, None] - 0.5
        each = [ndimage.map_coordinates(picture, at, order=1, mode="nearest") for picture in pictures]
        return np.stack(each).astype(np.float32)

    def _people(
        self, count: int, seed: int, variety: Variety, frame: Frame
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.random.Generator]]:
        """Heads (M, 3), turned as they are held; how each is out of place; and random numbers of its own."""
        for start in range(0, count, TOGETHER):
            streams = [np.random.default_rng([seed, i]) for i in range(start, min(start + TOGETHER, count))]
            who = np.stack([rng.standard_normal(len(self.identity), np.float32) for rng in streams])
            worn = np.stack([self._worn(rng, variety.expression) for rng in streams])
            shift = variety.identity * who @ self._flat_identity
            if variety.expression:
                shift += worn @ self._flat_expression
            for rng, each in zip(streams, shift.reshape(len(streams), -1, 3), strict=True):
                pitch, yaw, *wander = rng.standard_normal(5)
                turned = _turned(self.vertices + each, frame.pitch + variety.pitch * pitch, variety.yaw * yaw)
                yield turned, variety.place * np.array(wander), rng

    def _worn(self, rng: np.random.Generator, strength: float) -> np.ndarray:
        """Coefficients of a face's expressions: a few, small, and the same on both sides."""
        stems = [name.removesuffix("_L").removesuffix("_R") for name in self.expression_names]
        numbers = {stem: k for k, stem in enumerate(dict.fromkeys(stems))}
        drawn = np.abs(rng.standard_normal(len(numbers))) * (rng.random(len(numbers)) < ACTIVE)
        return np.minimum(strength * drawn, 1)[[numbers[stem] for stem in stems]].astype(np.float32)

    @cached_property
    def _flat_identity(self) -> np.ndarray:
        return self.identity.reshape(len(self.identity), -1).astype(np.float32)

    @cached_property
    def _flat_expression(self) -> np.ndarray:
        return self.expression.reshape(len(self.expression), self.vertices.size).astype(np.float32)

    @cached_property
    def _around(self) -> sparse.csr_matrix:
        return incidence(self.triangles, len(self.vertices))

    def _marks(self, vertices: np.ndarray) -> np.ndarray:
        """Where a head has its eyes and mouth: x and y (3, 2), in its own units."""
        return np.stack([vertices[self.landmarks[each], :2].mean(axis=0) for each in (LEFT_EYE, RIGHT_EYE, MOUTH)])

    def _aspect(self, frame: Frame) -> float:
        """How much a frame squeezes what is upright: its scale across over its scale down, for the mean head."""
        left, right, mouth = self._marks(_turned(self.vertices, frame.pitch, 0))
        down = (left[1] + right[1]) / 2 - mouth[1]
        return float(frame.apart / (right[0] - left[0]) * down / (frame.mouth - frame.eyes))

    def _placed(self, vertices: np.ndarray, frame: Frame, aspect: float, wander: np.ndarray) -> np.ndarray:
        """Vertices in a frame of side 1: columns from the left, rows from the top, and depth at the scale of columns.

        Scale and place bring eyes and mouth to where they belong as nearly as can be: who has a long face keeps it.
        """
        flat = np.array([1, -1 / aspect])
        marks = self._marks(vertices) * flat
        off, wanted = marks - marks.mean(axis=0), frame.marks - frame.marks.mean(axis=0)
        scale = np.sum(off * wanted) / np.sum(off * off) * np.exp(2 * wander[2])
        corner = frame.marks.mean(axis=0) - scale * marks.mean(axis=0) + wander[:2]
        return (vertices * [*(scale * flat), scale] + [*corner, 0]).astype(np.float32)

    def _picture(
        self, vertices: np.ndarray, points: np.ndarray, texture: np.ndarray | None, size: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Albedo, normals, height and mask of one head, whose vertices lie at `points` of the frame."""
        fine = size * max(1, -(-FINEST // size))
        seen = rasterise(points * np.float32(fine), self.triangles, fine)
        normals = unit(seen.of(vertex_normals(vertices, self.triangles, self._around)))
        scaled = normals if texture is None else normals * seen.of(texture)[:, None]
        found = np.zeros((fine * fine, 5), np.float32)  # a·n, depth, and whether anything is there
        found[seen.pixels] = np.column_stack([scaled, seen.of(points[:, 2]), np.ones(len(scaled))])
        picture = found.reshape(fine, fine, 5)
        picture = np.stack([average_areas(picture[..., k], (size, size)) for k in range(5)], axis=-1)
        share = picture[..., 4]
        mask = share > 0.5
        if not mask.any():
            raise ValueError("heads: expected them to be seen, got a frame that shows nothing of one; choose another")
        picture = picture / np.maximum(share, 1e-6)[..., None]
        if not mask.all():
            rows, columns = nearest_within(mask)
            depth = np.where(mask, picture[..., 3], picture[..., 3][mask].min())
            picture = picture[rows, columns]
            picture[..., 3] = depth
        albedo = np.linalg.norm(picture[..., :3], axis=-1)
        return albedo, unit(picture[..., :3]), 2 * picture[..., 3], mask


def nearest_within(mask: np.ndarray) -> np.ndarray:
    """Row and column (2, H, W) of the pixel within a mask that is nearest to each."""
    return np.asarray(ndimage.distance_transform_edt(~mask, return_distances=False, return_indices=True))


def _turned(vertices: np.ndarray, pitch: float, yaw: float) -> np.ndarray:
    """A head that looks up by `pitch` and to the right of the picture by `yaw` degrees."""
    (c, s), (d, t) = ((np.cos(a), np.sin(a)) for a in np.radians([pitch, yaw]))
    aside = np.array([[d, 0, t], [0, 1, 0], [-t, 0, d]])
    up = np.array([[1, 0, 0], [0, c, s], [0, -s, c]])
    return (vertices @ (up @ aside).T).astype(np.float32)


def load_morphable(path: str | Path) -> Morphable:
    """A morphable head from an `.npz` file, in which every array is checked (see docs/data.md for its layout)."""
    path = Path(path)
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing"
        raise FileNotFoundError(f"{path}: expected a morphable head (.npz), found {found}")
    try:
        arrays = read_npz(path)
        missing = [name for name in ("vertices", "triangles", "identity", "landmarks") if name not in arrays]
        if missing:
            raise ValueError(f"expected an array {missing[0]!r} in it, found {', '.join(sorted(arrays)) or 'none'}")
        count = len(arrays["vertices"])
        arrays.setdefault("expression", np.zeros((0, count, 3), np.float16))
        names = arrays.get("expression_names", np.arange(len(arrays["expression"])))
        head = Morphable(
            *(arrays[name] for name in ("vertices", "triangles", "identity", "expression")),
            expression_names=tuple(map(str, np.atleast_1d(names))),
            landmarks=arrays["landmarks"],
            part=arrays.get("part", np.zeros(count, np.uint8)),
            licence=str(arrays.get("licence", "")),
        )
        return _checked(head)
    except DAMAGE as error:
        raise ValueError(f"{path}: cannot be read as a morphable head ({describe(error)})") from error


def _checked(head: Morphable) -> Morphable:
    """The head with indices as integers, or a ValueError that says what was expected of which array."""
    count = len(head.vertices)
    shapes = {"vertices": (count, 3), "identity": (None, count, 3), "expression": (None, count, 3)}
    shapes |= {"triangles": (None, 3), "landmarks": (68,), "part": (count,)}
    for name, shape in shapes.items():
        array = getattr(head, name)
        if array.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, array.shape, strict=True)):
            wanted = f"({', '.join('n' if n is None else str(n) for n in shape)})"
            raise ValueError(f"{name}: expected shape {wanted}, got {array.shape}")
        if name == "part":
            continue
        if name in ("triangles", "landmarks"):
            if array.dtype.kind not in "iu" or array.size == 0 or array.min() < 0 or array.max() >= count:
                raise ValueError(f"{name}: expected numbers of vertices from 0 to {count - 1}, got others")
        elif array.dtype.kind != "f" or not np.isfinite(array).all():
            raise ValueError(f"{name}: expected finite floating-point numbers, got {array.dtype} or some that are not")
    if len(head.expression_names) != len(head.expression):
        got = f"got {len(head.expression_names)} names for {len(head.expression)}"
        raise ValueError(f"expression_names: expected one for each expression, {got}")
    left, right, mouth = head._marks(head.vertices)
    if not (right[0] > left[0] and min(left[1], right[1]) > mouth[1]):
        raise ValueError("landmarks: expected x to the right and y upwards, got eyes and mouth that lie otherwise")
    return replace(head, triangles=head.triangles.astype(np.int64), landmarks=head.landmarks.astype(np.int64))
