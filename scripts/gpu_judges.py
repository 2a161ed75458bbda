"""The judgements of gpu-check.py: pure functions from reports to rows, so that they are tested without a GPU.

A row is (what, holds, figure, limit). A key that a report lacks raises MissingKey, which names it.
"""
import random
import statistics
from collections import namedtuple

Row = namedtuple("Row", "what holds figure limit")

PIECES = ["driver", "NVML", "CUPTI", "NVRTC", "CUDA headers"]
LAUNCH_BOUND = ("host: launch", "device side")


class MissingKey(Exception):
    """A report lacks a key, or has nothing there."""

    def __init__(self, path):
        super().__init__(f"the report has no `{path}`")


def get(report, path):
    """The value at `path`, such as "device.nvml.gpu_util_mean"."""
    value = report
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
        if value is None:
            raise MissingKey(path)
    return value


def percent(share, digits=1):
    return f"{100 * share:.{digits}f} %"


def gpu_rows(doctor):
    """The rows of doctor's section on the GPU, by subject."""
    for section in get(doctor, "sections"):
        if section.get("title") == "GPU":
            return {row["subject"]: row for row in section["rows"]}
    raise MissingKey("sections: GPU")


def not_usable(doctor):
    """Why cuda:0 cannot be used, in doctor's words; None where it can."""
    rows = gpu_rows(doctor)
    device = rows.get("--device cuda:0")
    if device is None:
        raise MissingKey("sections: GPU: --device cuda:0")
    if device["status"] == "ok":
        return None
    missing = [f"{row['subject']}: {row['finding']}" for row in rows.values()
               if row["status"] != "ok" and row is not device]
    return "; ".join([device["finding"], *missing[:1]])


def doctor(found):
    rows = gpu_rows(found)
    lost = [piece for piece in PIECES if rows.get(piece, {}).get("status") != "ok"]
    figure = f"not found: {', '.join(lost)}" if lost else f"{len(PIECES)} pieces found"
    return [Row("doctor finds every piece", not lost, figure, "all")]


def losses(model, on_cpu, on_gpu):
    """Losses of both devices from the same seed: the first three, and that of the twentieth step."""
    cpu, gpu = get(on_cpu, "training.losses"), get(on_gpu, "training.losses")
    if min(len(cpu), len(gpu)) < 20:
        short = min(len(cpu), len(gpu))
        return [Row(f"{model}: losses as on the CPU", False, f"{short} losses", "20 at least")]
    apart = [abs(g - c) / max(abs(c), 1e-12) for c, g in zip(cpu, gpu)]
    first, later = max(apart[:3]), apart[19]
    return [Row(f"{model}: first 3 losses as on the CPU", first <= 1e-3, f"{first:.1e}", "1e-3"),
            Row(f"{model}: loss of step 20 as on the CPU", later <= 0.02, percent(later), "2 %")]


def planted(found):
    """`doctor --planted-kernels --json`: the timeline against the device's own timer, and beside the plan."""
    rows = []
    for what in ["busy", "idle"]:
        error, plan_error = get(found, f"{what}_error"), get(found, f"{what}_plan_error")
        planned, measured = get(found, f"planned_{what}_ns"), get(found, f"measured_{what}_ns")
        figure = (f"{percent(error, 2)} off the device's timer; {measured / 1e6:.3f} ms of "
                  f"{planned / 1e6:.3f} ms planned ({percent(plan_error, 2)})")
        rows.append(Row(f"planted kernels: {what} time", error <= 0.01, figure, "1 %"))
    recorded, kernels, lost = (get(found, key) for key in ["kernels_recorded", "kernels", "records_lost"])
    figure = f"{recorded} of {kernels} kernels, {lost} records lost"
    return rows + [Row("planted kernels: all recorded, in their place", get(found, "pass"), figure, "pass")]


def interval(values, draws=2000, seed=0):
    """The 95 % bootstrap interval of the median."""
    generator = random.Random(seed)
    medians = sorted(statistics.median(generator.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def cupti_cost(pairs):
    """`pairs` are samples/s with CUPTI and with events only."""
    what = "cost of CUPTI, device-only"
    if len(pairs) < 3:
        return [Row(what, False, f"{len(pairs)} pairs", "3 pairs at least")]
    costs = [1 - cupti / events for cupti, events in pairs]
    low, high = interval(costs)
    figure = f"{percent(statistics.median(costs))} (95 %: {percent(low)} to {percent(high)}; {len(pairs)} pairs)"
    return [Row(what, statistics.median(costs) < 0.03, figure, "below 3 %")]


def top_cause(report):
    causes = [cause for cause in get(report, "idle_causes") if cause["ns"] > 0]
    return max(causes, key=lambda cause: cause["ns"], default={"cause": "none", "share": 0.0, "stage": None})


def starved(report):
    top = top_cause(report)
    figure = f"{top['cause']}, {percent(top['share'])} of idle"
    return [Row("starved: top cause of idle", top["stage"] == "decode", figure, "decode")]


def saturated(report, device_only):
    reached = get(report, "samples_per_second") / get(device_only, "samples_per_second")
    busy, window = get(report, "device.busy_share"), get(report, "window_ns")
    causes = get(report, "idle_causes")
    other = sum(cause["ns"] for cause in causes if cause["cause"] not in LAUNCH_BOUND) / window
    return [Row("saturated: samples/s of device-only's", reached >= 0.98, percent(reached), "98 % at least"),
            Row("saturated: device busy, or else launch-bound", busy >= 0.97 or other <= 0.03,
                f"busy {percent(busy)}, idle not launch-bound {percent(other)}", "97 %, or 3 %")]


def overlapped(report):
    share = get(report, "device.copies.overlapped_share")
    return [Row("saturated: copies beside kernels", share >= 0.95, percent(share), "95 % at least")]


def side_by_side(name, report):
    """GPU-Util and device busy of one setting; which is the larger is a finding and no failure."""
    util, busy = get(report, "device.nvml.gpu_util_mean"), get(report, "device.busy_share")
    figure = f"GPU-Util {percent(util)}, busy {percent(busy)}, {get(report, 'samples_per_second'):.0f} images/s"
    in_range = 0 <= util <= 1 and 0 < busy <= 1
    return [Row(f"side by side: {name}", in_range, figure, "both measured")]


def bytes_a_step(report):
    for stage in get(report, "stages"):
        if stage["stage"] == "copy" and stage["items"]:
            return stage["bytes_out"] / stage["items"]
    raise MissingKey("stages: copy")


def pace(report):
    return f"{get(report, 'samples_per_second'):.0f} images/s, busy {percent(get(report, 'device.busy_share'))}"


def on_device(host, device):
    ratio = bytes_a_step(device) / bytes_a_step(host)
    figure = f"{percent(ratio)} of {bytes_a_step(host) / 1e6:.1f} MB"
    return [Row("preprocess.on = device: bytes copied a step", ratio <= 0.26, figure, "a quarter"),
            Row("preprocess.on = device: pace", True, f"{pace(host)} -> {pace(device)}", "none")]


def compared(what, off, on):
    """An option that may only help, within noise."""
    gain = get(on, "samples_per_second") / get(off, "samples_per_second")
    figure = f"{pace(off)} -> {pace(on)}"
    return [Row(f"{what} off -> on", gain >= 0.97, figure, "no slower (3 %)")]


def out_of_memory(status, said, size):
    status = "no answer in time" if status is None else status
    return [Row("out of memory: exit status", status == 3, str(status), "3"),
            Row("out of memory: a size in the message", size is not None,
                f"batch.size={size}" if size else f"none in {said[-80:]!r}", "one that fits")]


def size_fits(answer, status):
    status = "no answer in time" if status is None else status
    if answer is None:
        return [Row("batch-size: its answer", False, "none", "a size")]
    return [Row(f"batch-size: its answer {answer} runs", status == 0, f"exit status {status}", "0")]
