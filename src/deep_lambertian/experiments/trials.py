"""Which images of each test subject are shown: the same choices for every method (Sec. 4.1, Fig. 7)."""

from dataclasses import dataclass

import numpy as np

from deep_lambertian.data import Dataset

GALLERY, PROBES = 1, (2, 3, 4)  # subsets: images to learn a person from, and images to recognise


@dataclass(frozen=True)
class Trial:
    """One choice of k images of each of G people: their numbers (G, k) among the person's gallery images."""

    k: int
    images: np.ndarray


@dataclass(frozen=True)
class Test:
    """The gallery images of G people, and the probes of all of them.

    `images[g]` (p, V) are those of person g; `probes` (N, V), `people` (N,) whose they are, and `subsets` (N,) of which
    illumination subset.
    """

    names: tuple[str, ...]
    shape: tuple[int, int]
    images: list[np.ndarray]
    probes: np.ndarray
    people: np.ndarray
    subsets: np.ndarray

    @classmethod
    def of(cls, data: Dataset) -> "Test":
        """From the test subjects' images of subsets 1 to 4."""
        if data.subsets is None:
            raise ValueError("expected images with illumination subsets, such as Yale B's, got some without")
        there = data.present
        gallery = (data.subsets == GALLERY) & there
        lacking = [name for name, row in zip(data.names, gallery, strict=True) if not row.any()]
        if lacking:
            raise ValueError(f"expected images of subset {GALLERY} of every test subject, got none of {lacking}")
        flat = data.images.reshape(*data.images.shape[:2], -1).astype(np.float64)
        people, number = np.nonzero(np.isin(data.subsets, PROBES) & there)
        if not len(people):
            raise ValueError(f"expected images of subsets {PROBES} to recognise, got none")
        return cls(
            data.names,
            data.shape,
            [row[chosen] for row, chosen in zip(flat, gallery, strict=True)],
            flat[people, number],
            people,
            data.subsets[people, number],
        )

    def trials(self, most: int = 7, choices: int = 10, seed: int = 0) -> list[Trial]:
        """For one image every choice, for all of them the only one, and in between `choices` drawn at random.

        A person who has fewer images than are asked for shows all there are, some of them twice.
        """
        counts = [len(images) for images in self.images]
        most = min(most, max(counts))
        found = [Trial(1, np.array([[j % count] for count in counts])) for j in range(max(counts))]
        rng = np.random.default_rng(seed)
        for k in range(2, most):
            for _ in range(choices):
                rows = [np.resize(np.sort(rng.permutation(count)[:k]), k) for count in counts]
                found.append(Trial(k, np.stack(rows)))
        if most > 1:
            found.append(Trial(most, np.stack([np.resize(np.arange(count), most) for count in counts])))
        return found

    def gallery(self, trial: Trial) -> np.ndarray:
        """The images (G, k, V) of a trial."""
        return np.stack([images[chosen] for images, chosen in zip(self.images, trial.images, strict=True)])

    def shown(self, trials: list[Trial]) -> list[tuple[int, tuple[int, ...]]]:
        """Every (person, images) that occurs in some trial, once: what has to be inferred."""
        sets = {
            (person, tuple(sorted({int(j) for j in row})))
            for trial in trials
            for person, row in enumerate(trial.images)
        }
        return sorted(sets, key=lambda each: (len(each[1]), each))
