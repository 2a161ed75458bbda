#!/usr/bin/env python3
"""Compiles every kernel that trainings on `cuda:0` launch, with NVIDIA's compiler and without a GPU.

    scripts/compile-kernels.py [--models linear,dense] [--precisions f32,bf16,plain] [--cuda 12.4,12.9,13.0]
                               [--capabilities 8.0,9.0,10.0] [--steps 3] [PROGRAM]

Each training runs on the stand-in GPU of tests/gpu, which runs no kernel but has all of them compiled: fused ones, and all
that tuning tries. `plain` times a network's passes by kernels that are neither fused nor tuned instead. A kernel that several
models share is compiled once for a compiler and device. PROGRAM is target/release/stallscope; the stand-in is built beside it
(`cargo build --release -p stallscope-stand-in-gpu`); scripts/nvrtc-setup.sh fetches the compilers. Prints a line for each
combination: how many modules were loaded, how many of them were compiled for it, and what failed. Exit status: 1 if one failed.
"""
import argparse
import functools
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = ["libcuda.so", "libcuda.so.1", "libcupti.so.12", "libnvidia-ml.so.1"]
# What a driver of that CUDA says of itself.
DRIVERS = {"12.4": 12040, "12.9": 12090, "13.0": 13000}


def words(model, precision, folder, steps):
    """Digits for small models; pictures of 64 x 64 for the others."""
    small = model in ("linear", "dense")
    if precision == "plain":
        return None if small else ["time-kernels", "--model", model, "--kernels", "plain", "--batch", "4", "--size", "64",
                                   "--repeats", "1", "--device", "cuda:0"]
    sets = [f"model.kind={model}", f"model.precision={precision}", "model.learning_rate=0.001", "warmup_steps=1",
            "device=cuda:0", f"steps={steps}"]
    config = ROOT / "configs" / ("mnist-dense.toml" if small else "resnet50-gpu.toml")
    if small:
        sets += [f"source.path={os.environ.get('MNIST', ROOT / 'data/mnist')}"]
    else:
        sets += [f"source.path={folder}/jpeg", "generate.images=64", "preprocess.size=64", "batch.size=4"]
    return ["run", str(config), "--quiet", "--run-dir", f"{folder}/run", *(word for one in sets for word in ("--set", one))]


def compiled(cache):
    """Kernels that CubeCL keeps in `cache`: its table of them has an entry for each."""
    return sum(path.read_bytes().count(b'"key":') for path in cache.rglob("ptx/toc.json.log"))


def run(program, stand_in, words, cuda, capability, cache):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in NAMES:
            (folder / name).symlink_to(stand_in)
        major, minor = map(int, capability.split("."))
        settings = {"capability": [major, minor], "driver_version": DRIVERS[cuda], "checks": False,
                    "truth": str(folder / "truth"), "violations": str(folder / "violations")}
        (folder / "settings.json").write_text(json.dumps(settings))
        toolkit = ROOT / "target/cuda" / cuda
        env = {**os.environ, "STAND_IN_GPU": str(folder / "settings.json"), "CUDA_PATH": str(toolkit),
               "LD_LIBRARY_PATH": f"{folder}:{toolkit}/lib", "XDG_CACHE_HOME": str(cache)}
        before = compiled(cache)
        done = subprocess.run([str(program), *words(folder)], env=env, cwd=folder, capture_output=True, text=True)
        truth = json.loads((folder / "truth").read_text()) if (folder / "truth").exists() else {}
        failed = len(re.findall(r"\[Compilation Error\]", done.stderr))
        return done.returncode, truth.get("modules", 0), compiled(cache) - before, failed, done.stderr.strip().splitlines()[:1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in [("models", "linear,dense"), ("precisions", "f32,bf16,plain"), ("cuda", "12.4,12.9,13.0"),
                          ("capabilities", "8.0,9.0,10.0")]:
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("program", nargs="?", default=ROOT / "target/release/stallscope", type=pathlib.Path)
    args = parser.parse_args()
    program = args.program.resolve()
    library = "libstallscope_stand_in_gpu.so"
    stand_in = next((path for path in [program.parent / library, program.parent / "deps" / library] if path.exists()), None)
    if stand_in is None:
        sys.exit(f"compile-kernels: {library} is not beside {program}; cargo build --release -p stallscope-stand-in-gpu")
    print("model     kernels  CUDA  device  exit  modules  compiled  failed")
    worst = 0
    models, precisions, versions, capabilities = (
        getattr(args, name).split(",") for name in ("models", "precisions", "cuda", "capabilities"))
    for cuda, capability in itertools.product(versions, capabilities):
        # The first compiler for compute capability 10.0 is CUDA 12.8's.
        if capability == "10.0" and cuda == "12.4":
            continue
        # Nothing is taken from an earlier compilation.
        with tempfile.TemporaryDirectory() as cache:
            for model, precision in itertools.product(models, precisions):
                command = functools.partial(words, model, precision, steps=args.steps)
                if command("") is None:
                    continue
                code, modules, made, failed, said = run(program, stand_in, command, cuda, capability, pathlib.Path(cache))
                worst = max(worst, int(code != 0 or failed > 0))
                device = f"sm_{capability.replace('.', '')}"
                print(f"{model:9} {precision:7}  {cuda:4}  {device:6} {code:5} {modules:8} {made:9} {failed:7}",
                      *(said if code else []), flush=True)
    sys.exit(worst)


if __name__ == "__main__":
    main()
