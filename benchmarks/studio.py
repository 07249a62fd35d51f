"""How long someone waits in a warm studio: from a photo dropped on its page to a surface to relight, and to the end.

It starts `dln studio`, drops photos of a megapixel on its page in a real browser (chromium and playwright, as `make
browser`), and then has it do many small jobs, while the memory of the server is looked at. How long the machine takes
to import JAX at that moment tells how busy it is.
"""

import base64
import io
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from benchmarks.photo import SIZE
from deep_lambertian.report.photo import to_bytes
from deep_lambertian.synthetic.portrait import draw_portrait

JOBS, SWEEPS = 200, 20  # after which memory must be what it was, and of each of these
ARGUMENTS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
# Drop a file, and take the time when the page says that it can be relit, when it is what chains agree on, and the end.
DROP = """([name, bytes]) => new Promise((tell, fail) => {
    const carried = new DataTransfer(), found = {}, start = performance.now();
    carried.items.add(new File([Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0))], name));
    document.addEventListener("relightable", () => (found.first_s ??= (performance.now() - start) / 1000));
    const look = setInterval(() => {
        if (!document.getElementById("found").hidden) found.converged_s ??= (performance.now() - start) / 1000;
        const said = document.getElementById("said").textContent;
        if (said.startsWith("It failed")) fail(new Error(said));
        if (said !== "Done.") return;
        clearInterval(look);
        tell({ ...found, files_s: (performance.now() - start) / 1000 });
    }, 10);
    const dropped = new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true });
    document.getElementById("drop").dispatchEvent(dropped);
})"""
FRAMES = """() => {
    location.hash = "canvas2d";
    const [width, height] = [480, 576], count = 3 * width * height;
    const normals = Float32Array.from({ length: count }, (_, i) => Math.sin(i)), colour = normals.map((v) => 1 + v / 3);
    const made = relighter({ width, height, srgb: true, lights: [[0, 0, 1]], normals, colour, aspect: width / height });
    if (made.mode !== "canvas2d") throw new Error(made.mode);
    const times = [];
    for (let i = 0; i < 200; i++) {
        made.setLight(Math.sin(i / 9), Math.cos(i / 9) / 2, 0.6);
        made.setAmbient(0.2);
        const start = performance.now();
        made.draw();
        times.push(performance.now() - start);
    }
    return times.sort((a, b) => a - b)[100];
}"""


def run(quick: bool = False, seed: int = 0) -> Iterator[tuple[str, dict[str, float]]]:
    """Groups of figures as they are measured."""
    command = [sys.executable, "-m", "deep_lambertian.cli", "studio", "--no-browser", "--json", "--port", "0"]
    started = time.perf_counter()
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    said = ""
    while not said.rstrip().endswith("}"):
        said += server.stdout.readline()
    told = json.loads(said)
    client = httpx.Client(base_url=told["api"], headers={"Authorization": f"Bearer {told['token']}"}, timeout=600)
    try:
        _wait(client)
        yield "start", {"studio.start_s": time.perf_counter() - started}
        photos = [_photo(seed + i) for i in range(1 if quick else 3)]
        yield from _page(told["address"], photos, rounds=1 if quick else 3)
        yield from _memory(client, server.pid, 10 if quick else JOBS)
    finally:
        client.close()
        server.terminate()
        server.wait(20)


def _wait(client: httpx.Client) -> None:
    """Until the process that infers is warm."""
    while (state := client.get("/status").json()["worker"]) != "ready":
        if state == "broken":
            raise ValueError("expected the process that infers to start, got one that does not")
        time.sleep(0.2)


def _photo(seed: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(to_bytes(draw_portrait(seed, size=SIZE).photo, srgb=True)).save(file, "JPEG", quality=92)
    return file.getvalue()


def _page(address: str, photos: list[bytes], rounds: int) -> Iterator[tuple[str, dict[str, float]]]:
    import shutil

    from playwright.sync_api import sync_playwright

    sizes: list[int] = []

    def weigh(answer: Any) -> None:
        if "/static/" in answer.url or answer.url.rstrip("/").count("/") == 2 or "token=" in answer.url:
            sizes.append(len(answer.body()))

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        tab = browser.new_page()
        tab.on("response", weigh)
        tab.goto(address)
        tab.wait_for_timeout(500)
        tab.remove_listener("response", weigh)
        found: list[dict[str, float]] = []
        for _ in range(rounds):
            for number, photo in enumerate(photos):
                begun = time.perf_counter()
                subprocess.run([sys.executable, "-c", "import jax"], check=True)
                busy = time.perf_counter() - begun
                told = tab.evaluate(DROP, [f"{number}.jpg", base64.b64encode(photo).decode()])
                found.append(told | {"import_s": busy})
                tab.goto(address)  # anew: what was found before is not shown
        frame = tab.evaluate(FRAMES)
        browser.close()
    for name in ("first_s", "converged_s", "files_s", "import_s"):
        values = [each[name] for each in found]
        figures = {"median": statistics.median(values), "least": min(values), "most": max(values)}
        yield name, {f"studio.{name}.{what}": value for what, value in figures.items()}
    yield "page", {"studio.frame_ms": frame, "studio.page_kb": sum(sizes[:6]) / 1000}


def _memory(client: httpx.Client, pid: int, jobs: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Megabytes of the server, and of the process that infers, as jobs are done."""
    example, seen = {"example": "1", "iterations": str(SWEEPS), "align": "false"}, []
    for number in range(jobs + 1):
        if number % max(1, jobs // 4) == 0:
            _wait(client)
            child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
            seen.append((number, _resident(pid), _resident(child)))
        job = client.post("/infer", data=example).json()
        with client.stream("GET", f"/results/{job['id']}/events") as events:
            last = [line for line in events.iter_lines() if line.startswith("data: ")][-1]
        if json.loads(last[6:])["state"] != "done":
            raise ValueError(f"expected a job to be done, got {last[:300]}")
    yield "memory", {f"studio.server_mb.after_{number}_jobs": server for number, server, _ in seen}
    yield "worker", {f"studio.worker_mb.after_{number}_jobs": worker for number, _, worker in seen}


def _resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
