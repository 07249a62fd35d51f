"""Many processes as one: JAX's distributed runtime, and arrays that lie on the devices of all of them.

Every process runs the same program on the same data. What is sharded is the work: objects in the E-step and in batch
inference, the rows of a minibatch in contrastive divergence. Results are brought back to every process, so that all of
them go on from the same numbers.
"""

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental.multihost_utils import broadcast_one_to_all, process_allgather
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from deep_lambertian.support.archives import DAMAGE

JOIN_SECONDS = 20  # by then all processes must have been started
MOST_PROCESSES = 10_000
HEARTBEAT_SECONDS = 10  # a peer that has been silent for so long is dead
# Where a scheduler says how many processes it has started (Slurm, Open MPI, Kubernetes' indexed jobs).
CLUSTER_SIZES = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "JOB_COMPLETIONS")
DO = "start them again, as many as you like, to do what is missing"
IF_ONE_DIES = f"one of many processes: if one dies, all stop within 30 s; {DO}"
T = TypeVar("T")


class PeerLostError(OSError):
    """Another process of the run has died or cannot be reached."""


def initialise(
    coordinator: str | None = None,
    processes: int | None = None,
    process_id: int | None = None,
    say: Callable[[str], None] | None = None,
) -> bool:
    """Join the other processes of the run, and whether there are any; there are none where nothing is given and no
    scheduler has started any.

    Must come before anything is computed. `coordinator` is HOST:PORT of process 0. `say` is told what happens if one
    of them dies before JAX is: from then on it ends the others with words of its own.
    """
    given = {"--coordinator": coordinator, "--processes": processes, "--process-id": process_id}
    missing = [name for name, value in given.items() if value is None]
    in_a_cluster = any(int(os.environ.get(name, "1") or 1) > 1 for name in CLUSTER_SIZES)
    if processes == 1 or (len(missing) == 3 and not in_a_cluster):
        return False
    if 0 < len(missing) < 3:
        raise ValueError(f"many processes: expected all of {', '.join(given)}, got no {' and no '.join(missing)}")
    if processes is not None and not 1 <= processes <= MOST_PROCESSES:
        raise ValueError(f"--processes: expected 1 to {MOST_PROCESSES}, got {processes}")
    if processes is not None and process_id is not None and not 0 <= process_id < processes:
        raise ValueError(f"--process-id: expected 0 to {processes - 1}, got {process_id}")
    if coordinator is not None and not re.fullmatch(r".+:[0-9]{1,5}", coordinator):
        raise ValueError(f"--coordinator: expected HOST:PORT, got {coordinator!r}")
    if coordinator is not None and processes is not None and process_id is not None:
        _meet(coordinator, processes, process_id)
    if say is not None:
        say(IF_ONE_DIES)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would keep SIGTERM to itself
    patience: dict[str, Any] = {"initialization_timeout": JOIN_SECONDS, "heartbeat_timeout_seconds": HEARTBEAT_SECONDS}
    try:
        jax.distributed.initialize(coordinator, processes, process_id, **patience)
    except RuntimeError as error:
        where = coordinator or "the scheduler’s address"
        raise PeerLostError(
            f"the processes did not find each other at {where} within {JOIN_SECONDS} s: start all of them, each with "
            f"its own --process-id ({_first_line(error)})"
        ) from error
    return True


def _meet(coordinator: str, processes: int, process_id: int) -> None:
    """Wait until all processes are there, and of one mind on how many they are: the same sentence ends all of them.

    JAX's own runtime would be ended by C++, with a page of its stack, by each of the errors that are found here.
    """
    host, _, port = coordinator.rpartition(":")
    deadline = time.monotonic() + JOIN_SECONDS
    if process_id == 0:
        try:
            server = socket.create_server(("", int(port)))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise OSError(
                f"--coordinator {coordinator}: cannot listen at this port ({reason}); choose another"
            ) from error
        with server:
            wrong = _receive(server, processes, deadline)
    else:
        wrong = _report(host.strip("[]"), int(port), {"process": process_id, "processes": processes}, deadline)
    if wrong:
        raise PeerLostError(f"the processes did not find each other at {coordinator}: {wrong}")


def _receive(server: socket.socket, processes: int, deadline: float) -> str:
    """What process 0 has to say when all others have come, or it has waited long enough; nothing if all is well."""
    there: dict[int, socket.socket] = {}
    strangers, wrong = [], ""
    while len(there) < processes - 1 and not wrong and (left := deadline - time.monotonic()) > 0:
        server.settimeout(left)
        try:
            peer, _ = server.accept()
            strangers.append(peer)
            peer.settimeout(2)
            hello = json.loads(peer.makefile("rb").readline(1000))
            number, counted = int(hello["process"]), int(hello["processes"])
        except DAMAGE:  # time is up, or somebody else knocks
            continue
        if counted != processes:
            wrong = f"process {number} was started with --processes {counted}, process 0 with --processes {processes}"
        elif number in there:
            wrong = f"two were started with --process-id {number}; each needs its own, from 0 to {processes - 1}"
        there[number] = peer
    if not wrong and (missing := [str(i) for i in range(1, processes) if i not in there]):
        wrong = (
            f"no process {' and no '.join(missing[:8])} came within {JOIN_SECONDS} s; start all {processes} together"
        )
    for peer in strangers:
        with suppress(OSError), peer:
            peer.sendall(json.dumps(wrong).encode() + b"\n")
    return wrong


def _report(host: str, port: int, hello: dict[str, int], deadline: float) -> str:
    """What another process hears from process 0, whom it looks for until then."""
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection((host, port), timeout=left) as peer:
                peer.sendall(json.dumps(hello).encode() + b"\n")
                peer.settimeout(left + 5)  # process 0 may have begun to wait a little later
                return str(json.loads(peer.makefile("rb").readline(1000)))
        except DAMAGE:
            time.sleep(0.2)
    return f"no process 0 answered there within {JOIN_SECONDS} s; start all {hello['processes']} together"


@contextmanager
def peers(kept: str = "the last checkpoint is intact") -> Iterator[None]:
    """Turn the failure of a collective operation into a message that says what happened, what is kept, what to do."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        raise PeerLostError(
            f"process {jax.process_index()} of {jax.process_count()}: another process has died or cannot be reached; "
            f"{kept}, start all processes again, as many as you like, to go on from it ({_first_line(error)})"
        ) from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


def is_first() -> bool:
    """Whether this process is the one that writes files and talks to the user."""
    return jax.process_index() == 0


def is_shared(mesh: Mesh) -> bool:
    """Whether devices of other processes belong to the mesh; if not, its work is this process's own affair."""
    return any(device.process_index != jax.process_index() for device in mesh.devices.flat)


def place(tree: Any, mesh: Mesh, spec: PartitionSpec) -> Any:
    """Arrays that every process holds, on the devices of all of the mesh's processes; with one, they are left alone."""
    if not is_shared(mesh):
        return tree

    def put(value: Any) -> jax.Array:
        array = np.asarray(value)
        return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda index: array[index])

    return jax.tree.map(put, tree)


def gather(tree: Any) -> Any:
    """The whole of arrays that lie on many devices, as NumPy arrays on every process."""
    if jax.process_count() == 1:
        return jax.tree.map(np.asarray, tree)
    return jax.tree.map(lambda x: np.asarray(process_allgather(x, tiled=True)), tree)


def agree(tree: Any) -> Any:
    """The arrays as the first process has them, on every process: rounding must not drive them apart."""
    if jax.process_count() == 1:
        return tree
    return jax.tree.map(np.asarray, broadcast_one_to_all(tree))


def collect(value: Any) -> list[Any]:
    """The value of each process, something that JSON can hold, on every process. All of them wait for the last."""
    if jax.process_count() == 1:
        return [value]
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    lengths = np.asarray(process_allgather(np.array([len(text)], np.int32))).reshape(-1)
    filled = np.pad(text, (0, int(lengths.max()) - len(text)))
    rows = np.asarray(process_allgather(filled))
    return [json.loads(bytes(row[:length])) for row, length in zip(rows, lengths, strict=True)]


def together(work: Callable[[], T]) -> T:
    """Do `work`, in which processes exchange nothing, on every process; if it fails on one, it fails on all.

    Without this the others would wait, where processes next exchange something, for one that has ended.
    """
    result, error = None, None
    try:
        result = work()
    except Exception as caught:
        error = caught
    failures = collect(None if error is None else _first_line(error))
    if error is not None:
        raise error
    for process, message in enumerate(failures):
        if message is not None:
            raise OSError(f"process {process} of {len(failures)} has failed: {message}")
    return result  # type: ignore[return-value]
