"""A new light goes on around the frame where the face does, and nowhere else."""

import numpy as np
import pytest

from deep_lambertian.faces.alignment import Alignment
from deep_lambertian.photos.placing import REACH, reach_of

SKIN, WALL = np.array([0.5, 0.35, 0.28]), np.array([0.2, 0.25, 0.35])
FRAME = Alignment.from_box((70, 60, 84, 96))


def photo(radius: float, wall: np.ndarray = WALL) -> np.ndarray:
    """A disc of skin, of so many half frames, before a wall, with some noise."""
    y, x = np.mgrid[:220, :220]
    disc = np.hypot((x - 111.5) / 42, (y - 107.5) / 48) < radius
    noise = np.random.default_rng(0).normal(1, 0.02, (220, 220, 1))
    return (np.where(disc[..., None], SKIN, wall) * noise).astype(np.float32)


def changed(colour: np.ndarray) -> np.ndarray:
    """How much of a factor of 2 every pixel of the photo takes."""
    reach = reach_of(colour, FRAME)
    share = np.zeros(colour.shape[:2])
    share[reach.where] = reach.spread(np.full((24, 24), 2.0)) - 1
    return share


def test_it_goes_on_where_the_skin_does():
    share = changed(photo(2.0))
    row = share[108]
    assert row[85:138].min() > 0.95  # within the frame
    assert 0.2 < row[111 + 46] < 0.9  # a tenth beyond its edge
    assert row[: int(111 - 42 * REACH) - 1].max() == 0
    assert np.abs(np.diff(row)).max() < 0.12  # nowhere a step


@pytest.mark.parametrize("wall", [WALL, SKIN / 3, SKIN * 2.5])
def test_what_is_of_another_colour_is_left(wall):
    share = changed(photo(1.0, wall))
    assert share[108, 85:138].min() > 0.95
    assert share[108, 111 + 46 :].max() < 0.15
    assert share[108, : 111 - 46].max() < 0.15


def test_grey_within_the_frame_is_lit_whatever_its_tone():
    """Beards, brows and shadows are parts of the face: likeness counts at the edge alone."""
    colour = photo(2.0)
    colour[115:142, 95:128] /= 5
    assert changed(colour)[115:142, 95:128].min() > 0.9


@pytest.mark.parametrize("box", [(-40, -50, 84, 96), (180, 190, 84, 96), (400, 400, 84, 96)])
def test_a_frame_at_the_edge_or_outside_does_no_harm(box):
    reach = reach_of(photo(2.0), Alignment.from_box(box))
    assert reach.spread(np.ones((24, 24))).shape == photo(2.0)[reach.where].shape[:2]
