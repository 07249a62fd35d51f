"""Say whose photos these are, by one known photo of each person, or more, under whatever light.

--gallery is a folder or archive: GALLERY/<person>/<photo>, or GALLERY/<person>.jpg. Every photo below --probe is
named; where probes lie in folders of people's names too, the error is counted.
"""

import argparse
from pathlib import Path

from deep_lambertian.cli.options import add_inference, print_json, printer_of

EXAMPLE = """examples:
  dln recognize yaleb24 --gallery people/ --probe new-photos/ --out answers.csv
  dln recognize yaleb24 --gallery crops/ --probe probes/ --no-align --linear --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_inference(parser, "person", "photos")
    parser.add_argument("--gallery", type=Path, required=True, metavar="DIR", help="known photos of each person")
    parser.add_argument("--probe", type=Path, required=True, metavar="DIR", help="photos to be named")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the answers as CSV")
    rule = "distance to images with shadows, weighted by the learned noise, or to the plain subspace (default: shadow)"
    parser.add_argument("--rule", choices=("shadow", "plain"), default="shadow", help=rule)
    parser.add_argument("--no-align", action="store_true", help="look for no face: the photos are cropped already")


def run(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from deep_lambertian.tasks.people import list_people

    list_people(options.gallery)  # before the model: a wrong folder costs no time
    list_people(options.probe)
    from deep_lambertian.model import load_model
    from deep_lambertian.tasks.people import count_errors, learn_people, recognize_photos, write_answers

    model = load_model(options.model)
    sampler = model.sampler.override(chains=options.chains, iterations=options.iterations)
    read = {"align": not options.no_align, "srgb": not options.linear}
    gallery = learn_people(model, options.gallery, seed=options.seed, sampler=sampler, **read)
    for problem in gallery.problems:
        printer_of(options)(f"left out of the gallery: {problem}")
    answers = recognize_photos(gallery, options.probe, rule=options.rule)
    if all(each.problem for each in answers):
        raise ValueError(f"{options.probe}: expected photos that can be named, got none: {answers[0].problem}")
    if options.out is not None:
        write_answers(options.out, answers)
    figures = count_errors(answers, gallery.names)
    if options.json:
        listed = [{k: None if v != v else v for k, v in asdict(each).items()} for each in answers]
        print_json({"people": gallery.names, **figures, "answers": listed})
        return 0
    if not options.quiet:
        for each in answers:
            answer = each.problem or f"{each.label}  (confidence {each.confidence:.2f}, next {each.second})"
            print(f"{each.probe}: {answer}")
    if "error" in figures:
        print(f"error: {figures['error']:.1f} % ({figures['wrong']} of {figures['judged']})")
    if options.out is not None:
        print(f"answers: {options.out}")
    return 0
