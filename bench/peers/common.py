"""What the comparisons share: the virtual environment, the peer's settings, calls of Braid, medians."""
import argparse
import hashlib
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"


def log(text):
    print(text, file=sys.stderr, flush=True)


def parser(doc, rounds):
    """The options that every comparison has."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=rounds, help="timed rounds per side")
    p.add_argument("--braid", type=pathlib.Path, default=HERE.parent.parent / "build" / "braid")
    p.add_argument("--peer-only", action="store_true", help="do not run Braid")
    p.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return p


def positive(p, args, *names):
    for name in names:
        if getattr(args, name) < 1:
            p.error(f"--{name.replace('_', '-')} must be 1 or more")


# ---- the environment: stage one runs in any Python, stage two inside the virtual environment


def venv_folder():
    local = HERE / ".venv"
    if local.exists() or os.access(HERE, os.W_OK):
        return local
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    return cache / "braid" / "peer-venv"


def peer_python():
    """The Python with the peers: $BRAID_PEER_PYTHON, else one of a virtual environment that is made here."""
    own = os.environ.get("BRAID_PEER_PYTHON")
    if own:
        path = shutil.which(own)
        if not path:
            sys.exit(f"BRAID_PEER_PYTHON: is '{own}', which cannot be run\ngive the path of a Python that has the packages of "
                     f"{REQUIREMENTS}")
        return pathlib.Path(path)
    return ensure_venv()


def enter(python):
    """Starts the script again in this Python, once."""
    if os.environ.get("BRAID_PEER_INSIDE") != str(python):
        env = os.environ | {"BRAID_PEER_INSIDE": str(python)}
        os.execve(str(python), [str(python), str(pathlib.Path(sys.argv[0]).resolve()), *sys.argv[1:]], env)


def ensure_venv():
    folder = venv_folder()
    python, mark = folder / "bin" / "python", folder / "made-from.txt"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + platform.python_version().encode()).hexdigest()
    if python.exists() and mark.exists() and mark.read_text() == wanted:
        return python
    log(f"making {folder} from {REQUIREMENTS.name} (once; some gigabytes)\n"
        "set BRAID_PEER_PYTHON to use a Python that has these packages instead")
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)], check=True)
    except subprocess.CalledProcessError as e:
        sys.exit(f"could not make the virtual environment: {e}\ncheck the network and the free disk space, then try again")
    mark.write_text(wanted)  # last: an interrupted installation is made again
    return python


def peer_environment(threads):
    """Threads stay on their cores; freed memory stays with the process instead of being zeroed by the kernel at
    every step (glibc gives blocks above 32 MiB back whatever its threshold says, unless mmap is off) and, like
    Braid's, is on huge pages."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_PROC_BIND": "close",
        "OMP_PLACES": "cores",
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        "MALLOC_TOP_PAD_": str(64 << 20),
    }


def start(args):
    """Goes on inside the virtual environment with the peer's settings, and returns torch and the load before."""
    if not args.peer_only and not os.access(args.braid, os.X_OK):
        sys.exit(f"{args.braid} is missing: run `make` in {HERE.parent.parent} first, or use --peer-only")
    if "BRAID_PEER_CPUS" not in os.environ:
        python = peer_python()
        env = os.environ | peer_environment(args.threads)
        env["BRAID_PEER_CPUS"] = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        os.execve(str(python), [str(python), str(pathlib.Path(sys.argv[0]).resolve()), *sys.argv[1:]], env)

    import torch

    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(False)
    load = os.getloadavg()[0]
    if load > 0.5:  # OpenMP threads wait for each other at every operation: one taken core stalls them all
        log(f"warning: the machine is busy (load {load:.1f}); timings will be too slow and scatter")
    log(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    return torch, load


def braid_rows(command):
    """The JSON objects a Braid command prints, run in an environment without the peer's settings."""
    env = {k: v for k, v in os.environ.items() if k not in peer_environment(1) and k != "BRAID_PEER_CPUS"}
    cpus = {int(c) for c in os.environ["BRAID_PEER_CPUS"].split(",")}
    done = subprocess.run(command, env=env, capture_output=True, text=True,
                          preexec_fn=lambda: os.sched_setaffinity(0, cpus))  # OpenMP bound this process to one core
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nfailed with exit code {done.returncode}:\n{done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def times(step, count):
    """Seconds of `count` runs, after one that warms up."""
    step()
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds


def spread(values):
    return (max(values) - min(values)) / statistics.median(values)
