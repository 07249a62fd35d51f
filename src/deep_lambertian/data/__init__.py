"""Everything the model sees comes through here: one call for a clean set of objects under many lights."""

from typing import TYPE_CHECKING

from deep_lambertian.lazy import lazy_names

if TYPE_CHECKING:
    from deep_lambertian.data.alignment import Alignment
    from deep_lambertian.data.aloi import load_aloi, split_aloi
    from deep_lambertian.data.dataset import Dataset, Skipped
    from deep_lambertian.data.faces import load_faces
    from deep_lambertian.data.find_faces import NoFaceError, SeveralFacesError, find_face
    from deep_lambertian.data.folder import folder_objects, load_folder, load_photos
    from deep_lambertian.data.generated import make_faces, make_solids
    from deep_lambertian.data.yaleb import load_yaleb, protocol

__all__ = [
    "Alignment",
    "Dataset",
    "NoFaceError",
    "SeveralFacesError",
    "Skipped",
    "find_face",
    "folder_objects",
    "load_aloi",
    "load_faces",
    "load_folder",
    "load_photos",
    "load_yaleb",
    "make_faces",
    "make_solids",
    "protocol",
    "split_aloi",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Alignment": "alignment",
        "Dataset": "dataset",
        "NoFaceError": "find_faces",
        "SeveralFacesError": "find_faces",
        "Skipped": "dataset",
        "find_face": "find_faces",
        "folder_objects": "folder",
        "load_aloi": "aloi",
        "load_faces": "faces",
        "load_folder": "folder",
        "load_photos": "folder",
        "load_yaleb": "yaleb",
        "make_faces": "generated",
        "make_solids": "generated",
        "protocol": "yaleb",
        "split_aloi": "aloi",
    },
)
