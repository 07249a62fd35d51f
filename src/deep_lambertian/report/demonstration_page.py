"""What the demonstration shows: a page about one stranger, and a sheet of several beside the truth."""

from PIL import Image

from deep_lambertian.experiments.demonstration import Demonstration
from deep_lambertian.report.photo_page import Page
from deep_lambertian.support.pictures import grey, normal_colours, sheet


def page(found: Demonstration, number: int = 0) -> Page:
    """The report about one stranger."""
    people, post, figures = found.strangers, found.posts[number], found.figures
    notes = [
        "The face was made by the program, and the model has never seen it: it was trained on other such faces.",
        f"Over {len(found.posts)} strangers, from one image each: normals are off by {figures.normals_deg:.1f}° "
        f"(mean shape {figures.normals_deg_mean_shape:.1f}°), other images are predicted to "
        f"{figures.relighting_rmse:.3f} (mean shape {figures.relighting_rmse_mean_shape:.3f}), and "
        f"{figures.one_shot_error:.1f} % of them are given to the wrong person "
        f"(nearest neighbour {figures.one_shot_error_nearest_neighbor:.1f} %).",
    ]
    lights = people.lights[number, 1:4]
    pictures = [
        ("true albedo", grey(people.albedo[number])),
        ("true normals", normal_colours(people.normals[number])),
    ]
    for i, (light, real) in enumerate(zip(lights, people.images[number, 1:4], strict=True)):
        pictures += [(f"relit, light {i + 1}", grey(post.relight(light))), (f"true, light {i + 1}", grey(real))]
    return Page(
        title="A face from one image",
        inputs=[("the one image", grey(people.images[number, 0]))],
        pictures=pictures,
        scaled_normals=post.scaled_normals,
        colour=None,
        srgb=True,
        posterior=post,
        notes=notes,
    )


def picture(found: Demonstration, count: int = 3) -> Image.Image:
    """A sheet: what one image of each of some strangers gives, beside the truth."""
    rows = []
    for number in range(count):
        people, post = found.strangers, found.posts[number]
        most = float(post.normals_std.max())
        row = [("the one image", grey(people.images[number, 0]))]
        row += [("albedo", grey(post.albedo)), ("true albedo", grey(people.albedo[number]))]
        row += [("normals", normal_colours(post.normals)), ("true normals", normal_colours(people.normals[number]))]
        row += [(f"spread 0-{most:.0f}°", grey(post.normals_std, most))]
        for light, real in zip(people.lights[number, 1:3], people.images[number, 1:3], strict=True):
            row += [("relit", grey(post.relight(light))), ("true", grey(real))]
        rows.append(row)
    return sheet(rows, tile=112)
