#!/usr/bin/env python3
"""Compiles every kernel that trainings on `cuda:0` launch, with NVIDIA's compiler and without a GPU.

    scripts/compile-kernels.py [--models linear,dense] [--precisions f32,bf16] [--cuda 12.4,12.9,13.0]
                               [--capabilities 8.0,9.0,10.0] [--steps 3] [PROGRAM]

Each training runs on the stand-in GPU of tests/gpu, which runs no kernel but has all of them compiled, tuned ones and
those that tuning tries included. PROGRAM is target/release/stallscope; the stand-in is built beside it
(`cargo build --release -p stallscope-stand-in-gpu`); scripts/nvrtc-setup.sh fetches the compilers. Prints a line for
each combination: how many modules were compiled and loaded, and what failed. Exit status: 1 if one failed.
"""
import argparse
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


def commands(model, precision, folder):
    """Digits for small models; pictures of 64 x 64 for the others."""
    sets = [f"model.kind={model}", f"model.precision={precision}", "model.learning_rate=0.001", "warmup_steps=1",
            "device=cuda:0"]
    small = model in ("linear", "dense")
    config = ROOT / "configs" / ("mnist-dense.toml" if small else "resnet50-gpu.toml")
    if small:
        sets += [f"source.path={os.environ.get('MNIST', ROOT / 'data/mnist')}"]
    else:
        sets += [f"source.path={folder}/jpeg", "generate.images=64", "preprocess.size=64", "batch.size=4"]
    return config, sets


def run(program, stand_in, model, precision, cuda, capability, steps):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in NAMES:
            (folder / name).symlink_to(stand_in)
        major, minor = map(int, capability.split("."))
        settings = {"capability": [major, minor], "driver_version": DRIVERS[cuda], "checks": False,
                    "truth": str(folder / "truth"), "violations": str(folder / "violations")}
        (folder / "settings.json").write_text(json.dumps(settings))
        toolkit = ROOT / "target/cuda" / cuda
        # Nothing is taken from an earlier compilation.
        env = {**os.environ, "STAND_IN_GPU": str(folder / "settings.json"), "CUDA_PATH": str(toolkit),
               "LD_LIBRARY_PATH": f"{folder}:{toolkit}/lib", "XDG_CACHE_HOME": str(folder / "cache")}
        config, sets = commands(model, precision, folder)
        sets += [f"steps={steps}"]
        words = [str(program), "run", str(config), "--quiet", "--run-dir", str(folder / "run")]
        words += [word for one in sets for word in ("--set", one)]
        done = subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True)
        truth = json.loads((folder / "truth").read_text()) if (folder / "truth").exists() else {}
        failed = len(re.findall(r"\[Compilation Error\]", done.stderr))
        return done.returncode, truth.get("modules", 0), failed, done.stderr.strip().splitlines()[:1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in [("models", "linear,dense"), ("precisions", "f32,bf16"), ("cuda", "12.4,12.9,13.0"),
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
    print("model     precision  CUDA  device  exit  modules  failed")
    worst = 0
    lists = [getattr(args, name).split(",") for name in ("models", "precisions", "cuda", "capabilities")]
    for model, precision, cuda, capability in itertools.product(*lists):
        # The first compiler for compute capability 10.0 is CUDA 12.8's.
        if capability == "10.0" and cuda == "12.4":
            continue
        code, modules, failed, said = run(program, stand_in, model, precision, cuda, capability, args.steps)
        worst = max(worst, int(code != 0 or failed > 0))
        print(f"{model:9} {precision:9}  {cuda:4}  sm_{capability.replace('.', ''):4} {code:5} {modules:8} {failed:7}",
              *(said if code else []), flush=True)
    sys.exit(worst)


if __name__ == "__main__":
    main()
