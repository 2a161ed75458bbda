"""Running stallscope from a script: one run, its report. Used by the scripts beside this one."""
import json
import os
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BINARY = os.path.join(ROOT, "target/release/stallscope")


def run(*sets, config="loader-train"):
    """The report of the loader alone, with `sets` (KEY=VALUE) over configs/CONFIG.toml; and the major page faults of the
    whole process."""
    with tempfile.TemporaryDirectory() as out:
        command = [BINARY, "run", os.path.join(ROOT, f"configs/{config}.toml"), "--run-dir", out, "--trace", "none",
                   "--quiet", "--mode", "loader-only"]
        for one in sets:
            command += ["--set", one]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"exit {child.returncode}: {' '.join(command)}")
        with open(os.path.join(out, "report.json")) as f:
            report = json.load(f)
    report["major_faults"] = usage.ru_majflt
    return report


def data(*arguments):
    """`stallscope data ARGUMENTS`, without its output."""
    subprocess.run([BINARY, "data", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def prediction(binary, report, *options):
    """What `stallscope predict REPORT OPTIONS` says."""
    command = [str(binary), "predict", str(report), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)["prediction"]


def interval(estimate):
    """A predicted figure and its ends, as columns of a table."""
    return {name: round(estimate[end], 1) for name, end in
            [("samples_per_second", "value"), ("low", "low"), ("high", "high")]}


def cpu_us(report):
    """CPU time of the whole process for a sample of the window, in microseconds."""
    return report["process_cpu_ns"] / 1e3 / report["samples"]


def stage(report, name):
    return next(s for s in report["stages"] if s["stage"] == name)
