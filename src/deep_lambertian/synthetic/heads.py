"""Faces that never were: procedural heads under many lights, with their exact albedo, normals, height and lights.

A head is a sum of smooth bumps on an ellipsoid, so its slopes have closed forms: `normals` are the exact normals of
`height` at the pixels' centres, not differences between neighbours. Features narrower than a pixel are widened by its
footprint and lowered in proportion, as a camera would blur them, so a person looks the same at every size.

Coordinates: x right and y up, both from -1 to 1 across the frame, z to the viewer. The frame is that of the cropped
Yale faces, brought to a square: pupils at (±0.59, 0.5), tip of the nose at (0, -0.05), mouth at -0.58, chin at the rim.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from deep_lambertian.data.dataset import Dataset
from deep_lambertian.synthetic import scenes
from deep_lambertian.synthetic.scenes import FOOTPRINT, Options, Params, Scenes, Surface

Number = float | np.ndarray
Relief = tuple[np.ndarray, np.ndarray, np.ndarray]  # a height (n, V) and its slopes along the face's x and y
MIDDLE, BOTH = (1.0,), (1.0, -1.0)  # sides on which a bump is: where it says, and mirrored too
# What varies from person to person: mean and standard deviation. Draws are cut at 2.2 deviations.
PEOPLE: dict[str, tuple[float, float]] = {
    **{"shift_x": (0, 0.03), "shift_y": (0, 0.035), "roll": (0, 0.02), "zoom": (1, 0.03), "yaw": (0, 0.07)},
    **{"pitch": (-0.1, 0.07), "warp_x": (0, 0.012), "warp_y": (0, 0.012), "warp_x2": (0, 0.012), "warp_y2": (0, 0.015)},
    **{"cheek_w": (1.2, 0.06), "jaw_w": (1.04, 0.09), "brow_w": (1.16, 0.06), "chin_y": (1.32, 0.08)},
    **{"crown_y": (2.5, 0.25), "depth": (0.95, 0.08), "temple": (0.05, 0.03), "cheekbone": (0.09, 0.04)},
    **{"cheekbone_y": (-0.13, 0.08), "hollow": (0.02, 0.03), "chin": (0.09, 0.035), "chin_w": (0.26, 0.04)},
    **{"cleft": (-0.01, 0.012), "eye_x": (0.585, 0.025), "eye_y": (0.49, 0.022), "eye_w": (0.225, 0.018)},
    **{"eye_open": (0.085, 0.016), "eye_slant": (0.02, 0.03), "socket": (0.1, 0.025), "ball": (0.07, 0.012)},
    **{"crease": (0.012, 0.006), "bag": (0.008, 0.006), "brow_ridge": (0.06, 0.03), "brow_y": (0.735, 0.03)},
    **{"brow_arch": (0.05, 0.035), "brow_slant": (0.0, 0.05), "brow_thick": (0.068, 0.017), "brow_len": (0.33, 0.03)},
    **{"brow_dark": (0.88, 0.16), "unibrow": (-0.1, 0.2), "nose_root": (0.72, 0.04), "nose_tip": (-0.05, 0.04)},
    **{"nose_rise": (0.35, 0.045), "bridge_w": (0.12, 0.015), "nose_w": (0.19, 0.024), "tip": (0.07, 0.025)},
    **{"tip_w": (0.12, 0.015), "wing": (0.05, 0.018), "wing_x": (0.235, 0.025), "hump": (0.02, 0.025)},
    **{"nostril": (0.55, 0.2), "muzzle": (0.1, 0.03), "mouth_y": (-0.58, 0.03), "mouth_w": (0.43, 0.045)},
    **{"smile": (0.01, 0.03), "upper_lip": (0.065, 0.02), "lower_lip": (0.09, 0.022), "lips_out": (0.027, 0.01)},
    **{"fold": (0.012, 0.008), "philtrum": (0.018, 0.01), "skin": (0.6, 0.13), "hair_tone": (0.17, 0.12)},
    **{"lip_tone": (0.36, 0.13), "iris_tone": (0.11, 0.06), "blush": (0.04, 0.05), "dark_circle": (0.15, 0.08)},
    **{"stubble": (0.18, 0.3), "moustache": (-0.1, 0.25), "fringe": (1.16, 0.16), "fringe_bend": (-0.06, 0.1)},
    **{"parting": (0, 0.3), "side_hair": (1.1, 0.1), "backdrop": (0.1, 0.06)},
    **{f"mole_{k}{i}": (0, s) for i in range(3) for k, s in (("x", 0.45), ("y", 0.45), ("r", 0.012))},
    **{f"blotch_{k}{i}": (0, s) for i in range(4) for k, s in (("x", 4.0), ("y", 4.0), ("phase", 3.0), ("a", 0.02))},
}


@dataclass(frozen=True)
class Bump:
    """A Gaussian on the face: how much it rises, where, how wide it is, and on which of the face's sides.

    `bend` curls its ends up, `lean` lifts its outer end.
    """

    rise: Number
    at: tuple[Number, Number]
    width: tuple[Number, Number]
    sides: tuple[float, ...] = MIDDLE
    bend: Number = 0.0
    lean: Number = 0.0


@dataclass(frozen=True)
class Canvas:
    """Where each pixel lies on the face (n, V), and what can be put there. `soft` is the footprint of a pixel."""

    x: np.ndarray
    y: np.ndarray
    soft: np.float32

    def widen(self, width: Number) -> np.ndarray:
        return np.sqrt(np.float32(width) ** 2 + self.soft**2)

    def gaussian(self, bump: Bump, side: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A bump of height 1 on one side, blurred by the footprint; and the slopes of its logarithm along x and y."""
        (x, y), (width, height), bend, lean = bump.at, bump.width, bump.bend, bump.lean
        wx, wy = self.widen(width), self.widen(height)
        u, v = self.x * side - x, self.y - y
        straight = isinstance(bend, float) and isinstance(lean, float) and bend == lean == 0
        v = v if straight else v - u * (bend * u + lean)
        pu, pv = u * (1 / (wx * wx)), v * (1 / (wy * wy))
        e = np.exp(np.maximum(-0.5 * (u * pu + v * pv), -60)) * (width * height / (wx * wy))
        return e, side * (-pu if straight else pv * (2 * bend * u + lean) - pu), -pv

    def blob(self, at, width, *, side: float = 1.0, bend: Number = 0.0, lean: Number = 0.0) -> np.ndarray:
        """The same without its slopes."""
        return self.gaussian(Bump(1.0, at, width, bend=bend, lean=lean), side)[0]

    def band(self, t, low, high, edge) -> np.ndarray:
        """1 where low < t < high and 0 elsewhere; the blur of the edges takes nothing from the area."""
        scale = 1 / self.widen(edge)
        return np.maximum(logistic((t - low) * scale) - logistic((t - high) * scale), 0)


def logistic(t: np.ndarray) -> np.ndarray:
    return 0.5 * np.tanh(0.5 * t) + 0.5


def head_height(c: Canvas, p: Params) -> Relief:
    """The whole head, as a sum of bumps on an ellipsoid."""
    inside, *slopes = head_inside(c, p)
    # An ellipsoid's √(1 - r²), rounded off at the outline, where it would be infinitely steep.
    rounded = np.sqrt(inside * inside + 0.01)
    shell = np.sqrt((inside + rounded) * 0.5) * p["depth"]
    steep = 0.5 * shell / rounded
    height, along_x, along_y = shell + c.x * p["yaw"] + c.y * p["pitch"], *(steep * slope for slope in slopes)
    height, along_x, along_y = (a + b for a, b in zip((height, along_x, along_y), nose_wedge(c, p), strict=True))
    for bump in head_bumps(p):
        for side in bump.sides:
            e, dx, dy = c.gaussian(bump, side)
            e *= bump.rise
            height += e
            along_x += e * dx
            along_y += e * dy
    return height, along_x + p["yaw"], along_y + p["pitch"]


def nose_wedge(c: Canvas, p: Params) -> Relief:
    """What rises from the nose's root, becomes wider on its way, and is cut off below the tip."""
    span = p["nose_root"] - p["nose_tip"]
    along = (p["nose_root"] - c.y) / span
    # 0 far above the root and `along` far below it, smoothly; a step down at the tip, and one to the nose's full width.
    rise, rise_y = (np.maximum(along, 0) + np.log1p(np.exp(-7 * np.abs(along))) / 7), -logistic(7 * along) / span
    edge = 1 / c.widen(0.06)
    cut = logistic((c.y - (p["nose_tip"] - 0.13)) * edge)
    wide, wider = logistic((along - 0.55) * 6), p["nose_w"] - p["bridge_w"]
    width, width_y = p["bridge_w"] + wide * wider, wide * (1 - wide) * wider * (-6 / span)
    across = (c.x - 0.4 * p["yaw"] * rise) / width
    across_y = -(0.4 * p["yaw"] * rise_y + across * width_y) / width
    profile = p["nose_rise"] * cut * np.exp(-np.minimum(0.5 * across * across, 60))  # beyond 60 nothing is left
    height = profile * rise
    return height, -height * across / width, profile * (rise_y + rise * (1 - cut) * edge) - height * across * across_y


def head_bumps(p: Params) -> list[Bump]:
    """All that stands out from the ellipsoid, or lies deeper, but for the nose's wedge."""
    root, tip = p["nose_root"], p["nose_tip"]
    nose = [
        Bump(p["tip"], (0, tip - 0.02), (p["tip_w"], 0.09)),
        Bump(p["wing"], (p["wing_x"], tip - 0.08), (0.085, 0.075), BOTH),
        Bump(p["hump"], (0, 0.5 * (root + tip) + 0.05), (0.07, 0.12)),
        Bump(-0.05, (0, root - 0.13), (0.14, 0.09)),
        Bump(-0.03, (0.115, tip - 0.14), (0.06, 0.035), BOTH),
        Bump(-0.015, (p["wing_x"] + 0.13, tip - 0.06), (0.05, 0.09), BOTH),
    ]
    ex, ey, ew, eo, slant = p["eye_x"], p["eye_y"], p["eye_w"], p["eye_open"], p["eye_slant"]
    brow, brow_y, bend = p["brow_ridge"], p["brow_y"], -0.9 * eo / ew**2
    brows_eyes_cheeks = [
        Bump(brow, (ex - 0.08, brow_y + 0.06), (0.34, 0.12), BOTH, bend=-0.25, lean=p["brow_slant"]),
        Bump(0.5 * brow, (0, brow_y), (0.2, 0.12)),
        Bump(-p["socket"], (ex - 0.06, ey + 0.01), (0.25, 0.13), BOTH),
        Bump(-0.07, (0.32, ey + 0.03), (0.1, 0.12), BOTH),
        Bump(p["ball"], (ex, ey + 0.01), (0.17, 0.085), BOTH, lean=slant),
        Bump(0.014, (ex, ey + eo + 0.02), (0.13, 0.024), BOTH, bend=bend, lean=slant),
        Bump(-p["crease"], (ex, ey + eo + 0.07), (0.14, 0.024), BOTH, bend=bend, lean=slant),
        Bump(0.01, (ex, ey - 0.7 * eo - 0.025), (0.12, 0.025), BOTH, bend=-0.6 * bend, lean=slant),
        Bump(p["bag"], (ex - 0.04, ey - 0.17), (0.15, 0.04), BOTH, bend=0.5),
        Bump(p["cheekbone"], (0.6, p["cheekbone_y"]), (0.26, 0.25), BOTH, lean=0.25),
        Bump(-p["hollow"], (0.78, -0.5), (0.2, 0.25), BOTH),
        Bump(-p["temple"], (1.0, 0.75), (0.18, 0.3), BOTH),
    ]
    my, mw, up, low, smile = p["mouth_y"], p["mouth_w"], p["upper_lip"], p["lower_lip"], p["smile"] / p["mouth_w"] ** 2
    mouth_and_chin = [
        Bump(p["muzzle"], (0, my + 0.02), (0.28, 0.32)),
        Bump(p["lips_out"], (0.1, my + 0.5 * up), (0.55 * mw - 0.05, 0.55 * up), BOTH, bend=smile - 0.3),
        Bump(1.3 * p["lips_out"], (0, my - 0.5 * low), (0.5 * mw, 0.5 * low), bend=0.5 + smile),
        Bump(-0.026, (0, my), (0.5 * mw, 0.026), bend=smile),
        Bump(-0.025, (mw + 0.02, my + smile * mw**2), (0.06, 0.06), BOTH),
        Bump(-0.035, (0, my - low - 0.075), (0.22, 0.06), bend=0.4),
        Bump(-p["philtrum"], (0, 0.5 * (my + tip) - 0.04), (0.04, 0.09)),
        Bump(-p["fold"], (0.43, 0.5 * (my + tip) + 0.03), (0.08, 0.09), BOTH, bend=-1.5, lean=-1.5),
        Bump(p["chin"], (0, -1.02), (p["chin_w"], 0.16)),
        Bump(np.minimum(p["cleft"], 0), (0, -0.97), (0.035, 0.08)),
    ]
    return nose + brows_eyes_cheeks + mouth_and_chin


def head_inside(c: Canvas, p: Params) -> Relief:
    """1 in the middle of the head's outline, 0 on it and negative outside; and its slopes."""
    jaw, brow = logistic((c.y + 0.4) * -6), logistic((c.y - 0.55) * 6)
    jaw_w, brow_w = p["jaw_w"] - p["cheek_w"], p["brow_w"] - p["cheek_w"]
    width = p["cheek_w"] + jaw * jaw_w + brow * brow_w
    width_y = 6 * (brow * (1 - brow) * brow_w - jaw * (1 - jaw) * jaw_w)
    across, up, down = c.x / width, np.maximum(c.y, 0) / p["crown_y"], np.minimum(c.y, 0) / p["chin_y"]
    inside = 1 - (across * across + up * up + (down * down) ** 3)
    slope_y = across * across * width_y / width - up / p["crown_y"] - 3 * down * (down * down) ** 2 / p["chin_y"]
    return inside, -2 * across / width, 2 * slope_y


def head_albedo(c: Canvas, p: Params) -> np.ndarray:
    """Skin, and on it brows, eyes, lips, beard, moles and hair, each painted over what is there (n, V)."""
    x, y, skin, hair = c.x, c.y, p["skin"], p["hair"]
    tip_y, ex, ey, ew, eo = p["nose_tip"], p["eye_x"], p["eye_y"], p["eye_w"], p["eye_open"]
    my, mw, smile = p["mouth_y"], p["mouth_w"], p["smile"] / p["mouth_w"] ** 2

    tone = np.zeros_like(x)
    for i in range(4):
        tone += p[f"blotch_a{i}"] * np.sin(p[f"blotch_x{i}"] * x + p[f"blotch_y{i}"] * y + p[f"blotch_phase{i}"])
    for side in (-1.0, 1.0):
        tone -= p["blush"] * c.blob((0.6, 0.0), (0.22, 0.18), side=side)
        tone -= 0.25 * c.blob((0.85, ey + 0.12), (0.2, 0.14), side=side)
        tone -= p["dark_circle"] * c.blob((ex - 0.04, ey - 0.14), (0.2, 0.06), side=side, bend=0.4)
        tone -= 0.22 * c.blob((ex, ey + eo + 0.05), (0.22, 0.06), side=side, bend=-0.9 * eo / ew**2)
        tone -= 0.3 * c.blob((p["wing_x"] + 0.07, tip_y - 0.09), (0.03, 0.07), side=side)
        tone -= 0.2 * c.blob((0.3, ey + 0.06), (0.08, 0.12), side=side)
        tone -= 5 * p["fold"] * c.blob((0.43, 0.5 * (my + tip_y) + 0.03), (0.08, 0.07), side=side, bend=-1.5, lean=-1.5)
    tone -= 0.1 * c.blob((0, my - p["lower_lip"] - 0.07), (0.2, 0.03), bend=0.4)
    albedo = skin * (1 + tone)

    def paint(mask, colour):
        nonlocal albedo
        albedo += mask * (colour - albedo)

    # Beard: over the jaw, around the mouth and on the upper lip, but not on the lips.
    jaw = logistic((-0.32 - y + 0.25 * x * x) * 9) * (1 - 0.5 * c.blob((0, my), (0.3, 0.1)))
    paint(np.minimum(0.75 * np.maximum(p["stubble"], 0) * jaw, 0.75), hair)
    lip_top = my + p["upper_lip"] + 0.09
    paint(np.minimum(1.6 * np.maximum(p["moustache"], 0), 0.85) * c.blob((0, lip_top), (0.26, 0.05), bend=-0.8), hair)

    # Lips: the upper one with its bow, the lower one fuller; the line between them is dark.
    u, line = x / mw, my + smile * x * x
    taper = np.maximum(1 - u * u, 0)
    bow = 1 - 0.25 * c.blob((0, my + p["upper_lip"]), (0.05, 0.3)) + 0.1 * u * u
    lips = c.band(y, line - p["lower_lip"] * taper**0.7, line + p["upper_lip"] * taper * bow, 0.012)
    paint(0.9 * lips, skin * (1 - np.maximum(p["lip_tone"], 0.05)))
    paint(0.85 * c.blob((0, my), (0.62 * mw, 0.026), bend=smile), 0.2 * skin)

    for side in (-1.0, 1.0):
        hole = c.blob((0.115, tip_y - 0.135), (0.06, 0.026), side=side, bend=-3.0, lean=0.15)
        paint(p["nostril"] * hole, 0.12 * skin)
        paint_eye(c, p, side, paint)
        paint_brow(c, p, side, paint)
    for i in range(3):
        r = np.maximum(p[f"mole_r{i}"], 0)
        paint(0.6 * c.blob((p[f"mole_x{i}"], p[f"mole_y{i}"]), (r + 1e-4, r + 1e-4)), 0.4 * skin)

    # What is not face: backdrop and neck beyond the outline, hair at the sides and over the forehead.
    paint(logistic(head_inside(c, p)[0] / c.widen(0.03) * -1.5), p["backdrop"])
    paint(logistic((np.abs(x) - (p["side_hair"] - 0.14 * y * y)) / c.widen(0.02)) * logistic((y + 0.2) * 8), hair)
    fringe = p["fringe"] + p["fringe_bend"] * (x - p["parting"]) ** 2
    paint(logistic((y - fringe) / c.widen(0.03)), hair)
    return np.clip(albedo, 0.02, 1)


def paint_eye(c: Canvas, p: Params, side: float, paint: Callable) -> None:
    ex, ey, ew, eo = p["eye_x"], p["eye_y"], p["eye_w"], p["eye_open"]
    u = side * c.x - ex
    v = c.y - ey - p["eye_slant"] * u
    arc = 1 - (u / ew) ** 2
    top, bottom = eo * arc, -0.65 * eo * arc
    opening = c.band(v, bottom, top, 0.01)
    paint(opening, 0.55 * p["skin"] + 0.25)
    r = np.sqrt(u * u + 1.2 * (v - 0.012) ** 2)
    paint(opening * logistic((0.105 - r) / c.widen(0.006) * 1.5), np.maximum(p["iris_tone"], 0.06))
    paint(opening * logistic((0.045 - r) / c.widen(0.006) * 1.5), 0.02)
    lash = np.exp(-np.minimum(0.5 * ((v - top - 0.008) / c.widen(0.024)) ** 2, 60))
    lash *= 0.024 / c.widen(0.024) * logistic((arc + 0.1) * 14)
    paint(0.85 * lash, 0.06)
    lid = np.exp(-np.minimum(0.5 * ((v - bottom) / c.widen(0.014)) ** 2, 60))
    paint(0.4 * lid * 0.014 / c.widen(0.014) * logistic((arc - 0.05) * 14), 0.25 * p["skin"])


def paint_brow(c: Canvas, p: Params, side: float, paint: Callable) -> None:
    u = side * c.x - p["eye_x"] + 0.03
    t = u / p["brow_len"]
    middle = p["brow_y"] + p["brow_slant"] * u + p["brow_arch"] * (0.4 + t - t * t * t - t * t)
    thick = p["brow_thick"] * np.clip(1.05 - 0.55 * t, 0.15, 1.3)
    body = c.band(c.y, middle - thick, middle + thick, 0.018) * c.band(t, -1.0, 1.0, 0.1)
    strands = 0.1 * np.exp(-0.5 * (110 * c.soft) ** 2) * np.sin(110 * (side * c.x - 0.6 * c.y) + 2 * np.sin(31 * c.y))
    paint(np.clip(p["brow_dark"] + strands, 0, 0.95) * body, p["hair"])
    paint(np.clip(p["unibrow"], 0, 0.6) * c.blob((0, p["brow_y"] - 0.02), (0.14, 0.05)), p["hair"])


def face_canvas(p: Params, size: int) -> tuple[Canvas, tuple]:
    """The pixels on the face, after shift, roll, zoom and a slight asymmetry, and the Jacobian of that map."""
    x, y = scenes.pixel_centres(size)
    x, y = x - p["shift_x"], y - p["shift_y"]
    c, s = np.cos(p["roll"]) / p["zoom"], np.sin(p["roll"]) / p["zoom"]
    x, y = c * x + s * y, c * y - s * x
    one, two = 2.1 * x + 1.3 * y + 0.4, 1.2 * x - 2.3 * y + 1.9
    bent, slopes = [], []
    for t, (tx, ty), a, b in ((x, (c, s), p["warp_x"], p["warp_x2"]), (y, (-s, c), p["warp_y2"], p["warp_y"])):
        bent.append(t + a * np.sin(one) + b * np.sin(two))
        a, b = a * np.cos(one), b * np.cos(two)  # by which the waves' arguments count, whose slopes are constant
        along_x = tx + a * (2.1 * c - 1.3 * s) + b * (1.2 * c + 2.3 * s)
        slopes.append((along_x, ty + a * (2.1 * s + 1.3 * c) + b * (1.2 * s - 2.3 * c)))
    return Canvas(bent[0], bent[1], np.float32(FOOTPRINT * 2 / size)), tuple(slopes)


def face_surface(p: Params, size: int) -> Surface:
    canvas, ((xx, xy), (yx, yy)) = face_canvas(p, size)
    height, along_x, along_y = head_height(canvas, p)
    slope_x, slope_y, shape = along_x * xx + along_y * yx, along_x * xy + along_y * yy, (-1, size, size)
    z = 1 / np.sqrt(1 + slope_x**2 + slope_y**2)
    normals = np.stack([-slope_x * z, -slope_y * z, z], axis=-1).reshape(*shape, 3)
    return head_albedo(canvas, p).reshape(shape), normals, height.reshape(shape), None


def draw_people(count: int, seed: int) -> Params:
    """The parameters of `count` people, of whom the first are the same however many follow."""
    z = np.clip(np.random.default_rng([seed, 0]).standard_normal((count, len(PEOPLE))), -2.2, 2.2)
    mean, spread = np.array(list(PEOPLE.values())).T
    rows = (mean + spread * z).astype(np.float32)
    p = {name: rows[:, k, None] for k, name in enumerate(PEOPLE)}
    p["hair"] = p["skin"] * np.maximum(p["hair_tone"], 0.08)
    return p


def draw_faces(count: int, images: int = 1, size: int = 24, seed: int = 0, **options: Unpack[Options]) -> Scenes:
    """`count` people of `size`×`size` pixels, each in `images` images.

    The seed and a person's place in the batch decide who it is, whatever the count, the size and the number of images.
    """
    scenes.check_drawable(count, images, size, options)
    return scenes.draw_scenes(face_surface, draw_people(count, seed), images, size, seed, **options)


def make_faces(
    count: int = 100, images: int = 10, size: int = 24, seed: int = 0, **options: Unpack[Options]
) -> Dataset:
    """Synthetic faces as a data set. The truth is in `info["albedo"]` and `info["normals"]`."""
    return scenes.as_dataset(draw_faces(count, images, size, seed, **options), "face", seed)
