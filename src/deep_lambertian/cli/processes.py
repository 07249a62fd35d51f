"""The options of commands that many processes can share."""

import argparse


def add_process_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("many processes")
    group.add_argument("--coordinator", metavar="HOST:PORT", help="where process 0 listens")
    group.add_argument("--processes", type=int, metavar="N", help="how many processes there are")
    group.add_argument("--process-id", type=int, metavar="I", help="which one this is, from 0")
