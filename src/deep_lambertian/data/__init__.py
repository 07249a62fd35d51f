"""Everything the model sees comes through here: one call for a clean set of objects under many lights."""

from typing import TYPE_CHECKING

from deep_lambertian.data.registry import loaders
from deep_lambertian.support import lazy_names

if TYPE_CHECKING:
    from deep_lambertian.data.aloi import load_aloi, split_aloi
    from deep_lambertian.data.dataset import Dataset, Skipped
    from deep_lambertian.data.face_collection import load_faces
    from deep_lambertian.data.folder import folder_objects, load_folder, load_photos
    from deep_lambertian.data.morphable import Frame, Heads, Morphable, Variety, load_morphable
    from deep_lambertian.data.yaleb import load_yaleb, protocol
    from deep_lambertian.faces.alignment import Alignment
    from deep_lambertian.faces.find import NoFaceError, SeveralFacesError, find_face
    from deep_lambertian.synthetic.heads import make_faces
    from deep_lambertian.synthetic.solids import make_solids

__all__ = ["Alignment", "Dataset", "Frame", "Heads", "Morphable", "NoFaceError", "SeveralFacesError", "Skipped"]
__all__ += ["Variety", "find_face", "folder_objects", "load_aloi", "load_faces", "load_folder", "load_morphable"]
__all__ += ["load_photos", "load_yaleb", "make_faces", "make_solids", "protocol", "split_aloi"]

HOMES = {
    **{"Alignment": "faces.alignment", "Dataset": "data.dataset", "Skipped": "data.dataset"},
    **{"NoFaceError": "faces.find", "SeveralFacesError": "faces.find", "find_face": "faces.find"},
    **{"folder_objects": "data.folder", "load_photos": "data.folder"},
    **dict.fromkeys(("Frame", "Heads", "Morphable", "Variety", "load_morphable"), "data.morphable"),
    **{"protocol": "data.yaleb", "split_aloi": "data.aloi"},
}
__getattr__, __dir__ = lazy_names(__name__, HOMES | loaders())
