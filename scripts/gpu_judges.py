"""The judgements of gpu-check.py: pure functions from reports to rows, so that they are tested without a GPU.

A row is (what, holds, figure, limit). A key that a report lacks raises MissingKey, which names it.
"""
import random
import statistics
from collections import namedtuple

from gpu_smi import bus_id

Row = namedtuple("Row", "what holds figure limit")

MIB = 1 << 20
# Of runs with CUPTI and without, for its cost; fewer are judged all the same, and marked.
PAIRS = 15
PIECES = ["driver", "NVML", "CUPTI", "NVRTC", "CUDA headers"]
LAUNCH_BOUND = ("host: launch", "device side")


class MissingKey(Exception):
    """A report lacks a key, or has nothing there."""

    def __init__(self, path):
        super().__init__(f"the report has no `{path}`")


def get(report, path):
    """The value at `path`, such as "device.nvml.gpu_util.mean"."""
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
    """Losses of both devices from the same seed: the first three, and that of the twentieth step.

    Tuned products may round their factors to TF32, and normalising a few values by their own deviation magnifies that. The
    limits are at least three times what scripts/tf32_losses.py finds (benches/results/2026-11-27-tf32.txt).
    """
    first_limit, later_limit = {"resnet18": (2e-2, 0.15), "resnet50": (0.35, 0.2)}.get(model, (1e-3, 0.02))
    cpu, gpu = get(on_cpu, "training.losses"), get(on_gpu, "training.losses")
    if min(len(cpu), len(gpu)) < 20:
        short = min(len(cpu), len(gpu))
        return [Row(f"{model}: losses as on the CPU", False, f"{short} losses", "20 at least")]
    apart = [abs(g - c) / max(abs(c), 1e-12) for c, g in zip(cpu, gpu)]
    first, later = max(apart[:3]), apart[19]
    return [Row(f"{model}: first 3 losses as on the CPU", first <= first_limit, f"{first:.1e}", f"{first_limit:.0e}"),
            Row(f"{model}: loss of step 20 as on the CPU", later <= later_limit, percent(later), percent(later_limit, 0))]


def ahead(waiting, running):
    """Losses of steps that are waited for, and of those that run ahead: the same data, the same arithmetic."""
    losses = [get(report, "training.losses")[:20] for report in (waiting, running)]
    if min(map(len, losses)) < 20:
        return [Row("running ahead changes no loss", False, f"{min(map(len, losses))} losses", "20")]
    apart = max(abs(b - a) / max(abs(a), 1e-12) for a, b in zip(*losses))
    return [Row("running ahead changes no loss of 20", apart <= 1e-3, f"{apart:.1e}", "1e-3")]


def precision(name, f32, reduced):
    """Mean loss of 20 steps beside that in f32: rounding moves single steps by more."""
    losses = [get(report, "training.losses")[:20] for report in (f32, reduced)]
    if min(map(len, losses)) < 20:
        return [Row(f"{name}: mean loss of 20 steps as in f32", False, f"{min(map(len, losses))} losses", "20")]
    means = [statistics.mean(some) for some in losses]
    apart = abs(means[1] - means[0]) / max(abs(means[0]), 1e-12)
    # NaN compares as false.
    return [Row(f"{name}: mean loss of 20 steps as in f32", apart <= 0.05, f"{means[0]:.4f}, {means[1]:.4f}", "5 %")]


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
    ran = f"few pairs: {len(pairs)} of {PAIRS}" if len(pairs) < PAIRS else f"{len(pairs)} pairs"
    if len(pairs) < 3:
        return [Row(what, False, ran, "3 pairs at least")]
    costs = [1 - cupti / events for cupti, events in pairs]
    low, high = interval(costs)
    figure = f"{percent(statistics.median(costs))} (95 %: {percent(low)} to {percent(high)}; {ran})"
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
    copies = get(report, "device.timeline.copies")
    share, time = copies["overlapped_share"], copies["ns"] / max(get(report, "window_ns"), 1)
    busy = get(report, "device.busy_share")
    figure = f"{percent(share)} of copies that take {percent(time)} of the time, busy {percent(busy)}"
    return [Row("saturated: copies beside kernels", share >= beside(busy), figure, "busy less 5 points")]


def beside(busy):
    """The least share of copies' time beside kernels: they meet one about as often as any moment of the run does."""
    return busy - 0.05


def timeline(report):
    """Where the GPU's timeline is from, whether it is whole, and whether the causes add up."""
    told = get(report, "device.timeline")
    source, why = told["source"], told.get("fallback")
    records, lost, late = told["records"], told["lost"], told["late"]
    causes, idle = sum(cause["ns"] for cause in get(report, "idle_causes")), get(report, "device.idle_ns")
    steps = max(get(report, "steps"), 1)
    return [Row("the timeline is CUPTI's", source == "cupti", f"{source}: {why}" if why else source, "cupti"),
            Row("CUPTI's records lost or late", records > 0 and lost + late == 0,
                f"{lost} lost, {late} late of {records}", "none of some"),
            Row("kernels in the measured steps", told["kernels"] > 0,
                f"{told['kernels'] / steps:.0f} a step, {told['kernel_ns'] / steps / 1e6:.2f} ms a step", "some"),
            Row("causes add up to device idle", causes == idle, f"{causes - idle} ns apart", "to the nanosecond")]


def device_memory(report):
    memory = get(report, "device.memory")
    in_use, reserved = memory["peak_in_use_bytes"], memory["peak_reserved_bytes"]
    total = memory.get("total_bytes")
    figure = f"in use {in_use // MIB} MiB, reserved {reserved // MIB} MiB, of {(total or 0) // MIB} MiB"
    rows = [Row("device memory as its allocator counts it", 0 < in_use <= reserved <= (total or 0), figure, "in order")]
    used = get(report, "device.nvml.memory_used_bytes.max")
    # NVML counts the context and the kernels, too.
    return rows + [Row("reserved memory within what NVML says is used", reserved <= used,
                       f"{reserved // MIB} MiB of {used / MIB:.0f} MiB", "no more")]


def side_by_side(name, report):
    """GPU-Util and device busy of one setting; which is the larger is a finding and no failure."""
    util, busy = get(report, "device.nvml.gpu_util.mean"), get(report, "device.busy_share")
    figure = f"GPU-Util {percent(util)}, busy {percent(busy)}, {get(report, 'samples_per_second'):.0f} images/s"
    in_range = 0 <= util <= 1 and 0 < busy <= 1
    return [Row(f"side by side: {name}", in_range, figure, "both measured")]


def as_nvidia_smi(report, readings):
    """`readings` are gpu_smi's, of all GPUs. The window ended about when the report was written."""
    place = get(report, "device.nvml.pci_bus_id")
    readings = [reading for reading in readings if reading.gpu == bus_id(place)]
    if len(readings) < 10:
        figure = f"nvidia-smi gave {len(readings)} readings of the GPU at {place}"
        return [Row("NVML as nvidia-smi", False, figure, "10 at least")]
    end = get(report, "written_at_unix_seconds")
    utils = [reading.util for reading in readings if end - get(report, "window_ns") / 1e9 <= reading.at <= end]
    util = get(report, "device.nvml.gpu_util.mean")
    used, said = get(report, "device.nvml.memory_used_bytes.max"), max(reading.used_bytes for reading in readings)
    smi = statistics.mean(utils) if utils else float("nan")
    return [Row("GPU-Util as nvidia-smi's", abs(util - smi) <= 0.1, f"{percent(util)}, nvidia-smi {percent(smi)}",
                "10 points"),
            Row("memory used as nvidia-smi's", abs(used - said) <= max(0.05 * said, 1024 * MIB),
                f"{used / MIB:.0f} MiB, nvidia-smi {said / MIB:.0f} MiB", "5 % or 1 GiB")]


def preparation(first, again):
    """What compiling and tuning took the first time and, with all of it kept, the second."""
    times = [get(report, "device.timeline.preparation_ns") / 1e9 for report in (first, again)]
    figure = f"{times[0]:.1f} s, {times[1]:.1f} s"
    return [Row("preparation: first use, then again", 0 < times[1] <= times[0] + 2, figure, "no longer again (2 s)")]


def fallback(source, report, by_cupti):
    """What is said without CUPTI, beside what CUPTI says. Events miss the gaps within a step."""
    told = get(report, "device.timeline")
    busy, cupti = get(report, "device.busy_share"), get(by_cupti, "device.busy_share")
    named = told["source"] == source and bool(told.get("fallback"))
    rows = [Row(f"gpu.timeline = {source}: named with its reason", named, f"{told['source']}: {told.get('fallback')}",
                "both")]
    figure = f"busy {percent(busy)}, by CUPTI {percent(cupti)}; {pace(report)}"
    enough = busy >= cupti - 0.03 if source == "events" else 0 < busy <= 1
    limit = "CUPTI's at least (3 points)" if source == "events" else "some"
    return rows + [Row(f"gpu.timeline = {source}: device busy", enough, figure, limit)]


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


def compared(what, off, on, any_speed=False):
    """An option that may only help, within noise."""
    gain = get(on, "samples_per_second") / get(off, "samples_per_second")
    figure = f"{pace(off)} -> {pace(on)}"
    return [Row(f"{what} off -> on", any_speed or gain >= 0.97, figure, "none" if any_speed else "no slower (3 %)")]


def copied_as_asked(key, off, on):
    """Whether the GPU saw the option: what memory copies came from, and how much of their time kernels ran."""
    shares = []
    for report in (off, on):
        copies = get(report, "device.timeline.copies")
        pinned = copies["pinned_bytes"] / max(copies["bytes"], 1)
        shares.append(pinned if key == "copy.pinned" else copies["overlapped_share"])
    what = "bytes from pinned memory" if key == "copy.pinned" else "copy time beside kernels"
    least, limit = 0.95, "95 % at least"
    if key == "copy.overlap":
        least, limit = beside(get(on, "device.busy_share")), "busy less 5 points at least"
    return [Row(f"{key} off -> on: {what}", shares[0] <= 0.05 and shares[1] >= least,
                f"{percent(shares[0])} -> {percent(shares[1])}", f"5 % at most, {limit}")]


def kernels(model, optimised, plain):
    """What fusion and tuning are worth in a model's passes; how much is a finding and no failure."""
    def median(timed, *directions):
        passes = get(timed, "passes")
        return statistics.median(sum(one[f"{direction}_ns"] for direction in directions) for one in passes) / 1e6
    both = [median(timed, "forward", "backward") for timed in (optimised, plain)]
    parts = [f"{median(timed, 'forward'):.1f} + {median(timed, 'backward'):.1f} ms" for timed in (optimised, plain)]
    figure = f"{parts[0]}, plain {parts[1]}: {both[1] / both[0]:.2f}x"
    return [Row(f"{model}: optimised against plain kernels", both[0] <= both[1], figure, "no slower")]


def table(reproduced):
    """A published table: all that was to be run has figures. What they are is a finding and no failure."""
    name = get(reproduced, "table")
    rows = [row for part in get(reproduced, "parts") for row in part["rows"]]
    meant = ("not asked for", "it would only take long")
    missing = [f"{row['name']}: {cell['remark']}" for row in rows for cell in row["cells"]
               if (cell["remark"] or "").startswith("not run") and not cell["remark"].endswith(meant)]
    found = sum(cell["measured"] is not None for row in rows for cell in row["cells"])
    figure = f"{found} figures" + (f"; {missing[0]}" if missing else "")
    return [Row(f"reproduce {name}", found > 0 and not missing, figure, "all that was to be run")]


def products(cpu, optimised, plain):
    """Matrix products: from which size on the GPU is the faster, and what tuning is worth at the largest."""
    times = [{one["n"]: statistics.median(one["ns"]) for one in get(timed, "matmul")}
             for timed in (cpu, optimised, plain)]
    sizes = sorted(times[0])
    slower = [n for n in sizes if times[1][n] >= times[0][n]]
    crossover = next((n for n in sizes if not slower or n > slower[-1]), None)
    largest = sizes[-1]
    figure = ", ".join(f"{n}: {times[0][n] / 1e6:.3g} / {times[1][n] / 1e6:.3g}" for n in sizes)
    rows = [Row("matrix products: the GPU is faster", crossover is not None,
                f"from {crossover} rows on; CPU / GPU in ms: {figure}", f"at {largest} rows")]
    gain = times[2][largest] / times[1][largest]
    return rows + [Row(f"matrix products: tuned against plain at {largest} rows", gain >= 0.97, f"{gain:.2f}x",
                       "no slower (3 %)")]


def out_of_memory(status, said, size):
    status = "no answer in time" if status is None else status
    return [Row("out of memory: exit status", status == 3, str(status), "3"),
            Row("out of memory: a size that fits in the message", size is not None,
                f"batch.size={size}" if size else f"none in {said[-160:]!r}", "one")]


def size_fits(answer, status, limited_by):
    """`limited_by` is what the search says, or why there is no answer."""
    status = "no answer in time" if status is None else status
    if answer is None:
        return [Row("batch-size: its answer", False, f"none: {limited_by[-160:]!r}", "a size")]
    return [Row(f"batch-size: its answer {answer} runs", status == 0, f"exit status {status}", "0"),
            Row("batch-size: it met the end of the memory", limited_by == "memory", limited_by, "memory")]
