"""Open a local page: drop photos, watch the inference, drag the light, download.

The page is for this machine alone: it is served on 127.0.0.1, and its address holds a random token. Photos and results
lie in a temporary folder that is deleted at the end, unless --keep names one. The model stays loaded and compiled, so
that the next photo waits for neither. Programs may use it too, through the API: see docs/studio.md.
"""

import argparse
from pathlib import Path

from deep_lambertian.cli.options import print_json, printer_of, tell, whole

EXAMPLE = """examples:
  dln studio
  dln studio --model yaleb48 --keep results
  dln studio --port 8000 --no-browser"""
PORT = 8427  # unless another is asked for, or another studio has it
NEEDED = "dln studio needs a few more packages: pip install 'deep-lambertian[studio]'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    model = "a bundled model's name (see dln models) or a model file (default: yaleb24)"
    parser.add_argument("--model", metavar="NAME", default="yaleb24", help=model)
    parser.add_argument("--port", type=whole(0, 65535), help=f"where to listen (default: {PORT}, or any that is free)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, and open nothing")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep photos and results in this folder")


def run(options: argparse.Namespace) -> None:
    import secrets
    import signal
    import sys

    try:
        import python_multipart  # noqa: F401
        import uvicorn

        from deep_lambertian.studio.server import make_app
    except ImportError as error:
        raise ValueError(NEEDED) from error
    from deep_lambertian import models

    models.find(options.model)  # before anything is started: a wrong name costs no time
    listening = _listen(options.port)
    port, token = listening.getsockname()[1], secrets.token_urlsafe(24)
    worker = [sys.executable, "-m", "deep_lambertian.studio.worker", options.model]
    keep = None if options.keep is None else options.keep.absolute()
    app = make_app(worker, token, port, model=options.model, keep=keep, seed=options.seed)
    address = f"http://127.0.0.1:{port}/?token={token}"
    if options.json:
        print_json({"address": address, "api": f"http://127.0.0.1:{port}/api/v1", "token": token})
    else:
        tell(f"studio: {address}")
        printer_of(options)("press Ctrl-C to end it")
    sys.stdout.flush()
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        # a terminal that is closed ends the studio as Ctrl-C does, so that photos are deleted
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    if not options.no_browser:
        import webbrowser

        webbrowser.open(address)
    settings = {"log_level": "warning", "access_log": False, "ws": "none", "timeout_graceful_shutdown": 1}
    uvicorn.Server(uvicorn.Config(app, lifespan="on", **settings)).run(sockets=[listening])


def _listen(port: int | None):
    """A socket on this machine's own address; where the usual port is taken, any that is free."""
    import socket

    for wanted in (PORT, 0) if port is None else (port,):
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", wanted))
            listening.listen(128)
            return listening
        except OSError as error:
            listening.close()
            if wanted == port:
                raise ValueError(f"--port: expected one that is free, got {port} ({error.strerror})") from error
    raise ValueError("no port of this machine is free")
