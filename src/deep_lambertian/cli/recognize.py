"""Say whose photos these are, by one known photo of each person, or more, under whatever light.

--gallery is a folder or archive: GALLERY/<person>/<photo>, or GALLERY/<person>.jpg. Every photo below --probe is
named, or called unknown; where probes lie in folders of people's names too, the error is counted.
"""

import argparse
from pathlib import Path

from deep_lambertian.cli.options import MODEL, add_inference, print_json, printer_of, tell

EXAMPLE = """examples:
  dln recognize --gallery people/ --probe new-photos/ --out answers.csv
  dln recognize yaleb24 --gallery crops/ --probe probes/ --no-align --linear --json"""
BEST = "yaleb48"  # of the bundled ones, that which is wrong least often


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", nargs="?", default=BEST, help=f"{MODEL} (default: {BEST})")
    add_inference(parser, "person", "photos")
    parser.add_argument("--gallery", type=Path, required=True, metavar="DIR", help="known photos of each person")
    parser.add_argument("--probe", type=Path, required=True, metavar="DIR", help="photos to be named")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the answers as CSV")
    rule = "compare surfaces and detail, surfaces with shadows, or the paper's plain subspaces (default: detail)"
    parser.add_argument("--rule", choices=("detail", "shadow", "plain"), default="detail", help=rule)
    sure = "name nobody who is less likely than this (default: 0.5; 0 always names somebody)"
    parser.add_argument("--threshold", type=float, default=0.5, metavar="P", help=sure)
    parser.add_argument("--no-align", action="store_true", help="look for no face: the photos are cropped already")


def run(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from deep_lambertian.tasks.people import list_people

    if not 0 <= options.threshold <= 1:
        raise ValueError(f"--threshold: expected a probability from 0 to 1, got {options.threshold:g}")
    list_people(options.gallery)  # before the model: a wrong folder costs no time
    list_people(options.probe)
    from deep_lambertian.model import load_model
    from deep_lambertian.tasks.people import UNKNOWN, count_errors, learn_people, recognize_photos, write_answers

    model = load_model(options.model)
    sampler = model.sampler.override(chains=options.chains, iterations=options.iterations)
    read = {"align": not options.no_align, "srgb": not options.linear}
    gallery = learn_people(model, options.gallery, seed=options.seed, sampler=sampler, **read)
    for problem in gallery.problems:
        printer_of(options)(f"left out of the gallery: {problem}")
    answers = recognize_photos(gallery, options.probe, rule=options.rule, threshold=options.threshold)
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
            rest = f"nearest {each.nearest}" if each.label == UNKNOWN else f"next {each.second}"
            answer = each.problem or f"{each.label}  (confidence {each.confidence:.2f}, {rest})"
            tell(f"{each.probe}: {answer}")
    if "error" in figures:
        tell(f"error: {figures['error']:.1f} % ({figures['wrong']} of {figures['judged']})")
    if "strangers" in figures:
        tell(f"strangers: {figures['named']} of {figures['strangers']} were taken for somebody")
    if options.out is not None:
        tell(f"answers: {options.out}")
    return 0
