"""Tests of gpu_judges.py on made-up reports: `gpu-check.py --self-test`."""
import copy
import unittest

import gpu_judges as judges
import gpu_smi

GIB = 1 << 30
REPORT = {
    "samples_per_second": 1000.0,
    "steps": 10,
    "window_ns": 1_000_000,
    "written_at_unix_seconds": 1000.0,
    "training": {"losses": [2.0] * 22},
    "idle_causes": [{"cause": "decode capacity", "stage": "decode", "ns": 10_000, "share": 1.0},
                    {"cause": "unattributed", "stage": None, "ns": 0, "share": 0.0}],
    "device": {
        "busy_share": 0.99,
        "idle_ns": 10_000,
        "timeline": {"source": "cupti", "fallback": None, "version": 24, "records": 5000, "lost": 0, "late": 0,
                     "kernels": 2000, "kernel_ns": 990_000, "preparation_ns": 60_000_000_000,
                     "copies": {"count": 10, "bytes": 4000, "pinned_bytes": 4000, "ns": 50_000,
                                "overlapped_ns": 48_500, "overlapped_share": 0.97}},
        "memory": {"in_use_bytes": GIB, "reserved_bytes": 20 * GIB, "peak_in_use_bytes": 2 * GIB,
                   "peak_reserved_bytes": 20 * GIB, "total_bytes": 140 * GIB},
        "nvml": {"pci_bus_id": "0000:3B:00.0", "samples": 50, "gpu_util": {"mean": 0.999, "max": 1.0},
                 "memory_used_bytes": {"mean": 20.0 * GIB, "max": 21.0 * GIB}},
    },
    "stages": [{"stage": "copy", "items": 10, "bytes_out": 4000}],
}


def report(**paths):
    """REPORT with values changed; `__` stands for a dot, and None leaves the key out."""
    changed = copy.deepcopy(REPORT)
    for path, value in paths.items():
        *parents, last = path.split("__")
        place = changed
        for key in parents:
            place = place[key]
        place[last] = value
    return changed


def doctor(**status):
    rows = [{"subject": piece, "status": status.get(piece, "ok"), "finding": "seen"} for piece in judges.PIECES]
    device = {"subject": "--device cuda:0", "status": status.get("device", "ok"), "finding": "needs a driver"}
    return {"sections": [{"title": "Memory", "rows": []}, {"title": "GPU", "rows": [*rows, device]}]}


class Judgements(unittest.TestCase):
    def holds(self, rows, *expected):
        self.assertEqual([row.holds for row in rows], list(expected), rows)

    def lacks(self, key, judge, *arguments):
        with self.assertRaises(judges.MissingKey) as raised:
            judge(*arguments)
        self.assertIn(key, str(raised.exception))

    def test_doctor(self):
        self.holds(judges.doctor(doctor()), True)
        rows = judges.doctor(doctor(CUPTI="missing"))
        self.holds(rows, False)
        self.assertIn("CUPTI", rows[0].figure)
        self.assertIsNone(judges.not_usable(doctor()))
        self.assertIn("needs a driver; driver: seen", judges.not_usable(doctor(device="missing", driver="missing")))
        self.lacks("GPU", judges.doctor, {"sections": []})

    def test_losses(self):
        def judge(model="linear", **off):
            gpu = [2.0] * 22
            for step, loss in off.items():
                gpu[int(step[1:])] = loss
            return judges.losses(model, REPORT, report(training__losses=gpu))
        self.holds(judge(), True, True)
        self.holds(judge(s2=2.003), False, True)
        self.holds(judge(s3=2.003), True, True)
        self.holds(judge(s19=2.05), True, False)
        self.holds(judge("resnet18", s2=2.03, s19=2.2), True, True)
        self.holds(judge("resnet18", s2=2.05, s19=2.4), False, False)
        self.holds(judge("resnet50", s2=2.6, s19=2.5), True, False)
        self.holds(judges.losses("linear", REPORT, report(training__losses=[2.0])), False)
        self.lacks("training.losses", judges.losses, "linear", REPORT, report(training__losses=None))

    def test_planted(self):
        found = {"kernels": 60, "kernels_recorded": 60, "records_lost": 0, "pass": True,
                 "planned_busy_ns": 228_000_000, "measured_busy_ns": 228_100_000,
                 "planned_idle_ns": 108_500_000, "measured_idle_ns": 108_400_000,
                 "busy_error": 0.0004, "idle_error": 0.0009, "busy_plan_error": 0.02, "idle_plan_error": 0.02}
        self.holds(judges.planted(found), True, True, True)
        self.holds(judges.planted({**found, "idle_error": 0.02, "pass": False}), True, False, False)
        self.holds(judges.planted({**found, "busy_error": 0.011, "pass": False}), False, True, False)
        lost = {**found, "kernels_recorded": 59, "pass": False}
        self.holds(judges.planted(lost), True, True, False)
        self.assertIn("59 of 60", judges.planted(lost)[2].figure)
        self.lacks("busy_error", judges.planted, {"planned_busy_ns": 1, "measured_busy_ns": 1})

    def test_cupti_cost(self):
        self.holds(judges.cupti_cost([(990, 1000)] * 5), True)
        self.holds(judges.cupti_cost([(960, 1000)] * 5), False)
        for count, holds, ran in [(2, False, "few pairs: 2 of 15"), (14, True, "few pairs: 14 of 15"),
                                  (15, True, "; 15 pairs)")]:
            rows = judges.cupti_cost([(990, 1000)] * count)
            self.holds(rows, holds)
            self.assertIn(ran, rows[0].figure)
            self.assertEqual("few" in rows[0].figure, count < 15, rows)
        low, high = judges.interval([0.0, 0.01, 0.02, 0.03, 0.04])
        self.assertTrue(0.0 <= low < 0.02 < high <= 0.04, (low, high))

    def test_starved(self):
        self.holds(judges.starved(REPORT), True)
        wake_up = {"cause": "wake-up", "stage": None, "ns": 20_000, "share": 1.0}
        self.holds(judges.starved(report(idle_causes=[*REPORT["idle_causes"], wake_up])), False)
        self.holds(judges.starved(report(idle_causes=[])), False)
        self.lacks("idle_causes", judges.starved, {})

    def test_saturated(self):
        self.holds(judges.saturated(REPORT, report(samples_per_second=1019.0)), True, True)
        self.holds(judges.saturated(report(samples_per_second=970.0), REPORT), False, True)
        causes = [{"cause": "decode capacity", "stage": "decode", "ns": 80_000, "share": 1.0}]
        idle = report(device__busy_share=0.92, idle_causes=causes)
        self.holds(judges.saturated(idle, REPORT), True, False)
        launch = [{"cause": "host: launch", "stage": None, "ns": 80_000, "share": 1.0}]
        idle = report(device__busy_share=0.92, idle_causes=launch)
        self.holds(judges.saturated(idle, REPORT), True, True)
        self.lacks("samples_per_second", judges.saturated, REPORT, {})

    def test_overlapped(self):
        self.holds(judges.overlapped(REPORT), True)
        self.holds(judges.overlapped(report(device__timeline__copies__overlapped_share=0.9)), False)
        self.lacks("device.timeline.copies", judges.overlapped, report(device__timeline__copies=None))
        self.lacks("device.timeline.copies", judges.overlapped, report(device__timeline=None))

    def test_side_by_side(self):
        self.holds(judges.side_by_side("raw", REPORT), True)
        self.holds(judges.side_by_side("raw", report(device__nvml__gpu_util__mean=99.0)), False)
        self.lacks("device.nvml.gpu_util.mean", judges.side_by_side, "raw", report(device__nvml=None))

    def test_options(self):
        quarter = report(stages=[{"stage": "copy", "items": 10, "bytes_out": 1000}])
        self.holds(judges.on_device(REPORT, quarter), True, True)
        self.holds(judges.on_device(REPORT, REPORT), False, True)
        self.lacks("stages: copy", judges.on_device, REPORT, report(stages=[]))
        self.holds(judges.compared("copy.pinned", REPORT, report(samples_per_second=980.0)), True)
        self.holds(judges.compared("copy.pinned", REPORT, report(samples_per_second=950.0)), False)
        self.holds(judges.compared("copy.pinned", REPORT, report(samples_per_second=950.0), any_speed=True), True)

    def test_copied_as_asked(self):
        pageable = report(device__timeline__copies__pinned_bytes=0)
        self.holds(judges.copied_as_asked("copy.pinned", pageable, REPORT), True)
        self.holds(judges.copied_as_asked("copy.pinned", REPORT, REPORT), False)
        alone = report(device__timeline__copies__overlapped_share=0.0)
        self.holds(judges.copied_as_asked("copy.overlap", alone, REPORT), True)
        self.holds(judges.copied_as_asked("copy.overlap", alone, alone), False)

    def test_timeline(self):
        self.holds(judges.timeline(REPORT), True, True, True, True)
        self.holds(judges.timeline(report(device__timeline__source="events")), False, True, True, True)
        self.holds(judges.timeline(report(device__timeline__late=1)), True, False, True, True)
        self.holds(judges.timeline(report(device__timeline__records=0)), True, False, True, True)
        self.holds(judges.timeline(report(device__timeline__kernels=0)), True, True, False, True)
        self.holds(judges.timeline(report(device__idle_ns=10_001)), True, True, True, False)

    def test_device_memory(self):
        self.holds(judges.device_memory(REPORT), True, True)
        self.holds(judges.device_memory(report(device__memory__peak_reserved_bytes=GIB)), False, True)
        self.holds(judges.device_memory(report(device__memory__peak_reserved_bytes=30 * GIB)), True, False)
        self.holds(judges.device_memory(report(device__memory__total_bytes=None)), False, True)
        self.lacks("device.memory", judges.device_memory, report(device__memory=None))

    def test_nvidia_smi(self):
        here, other = gpu_smi.bus_id("00000000:3B:00.0"), gpu_smi.bus_id("00000000:86:00.0")

        def readings(gpu=here, at=999.999, util=0.99, used=21.2 * GIB):
            return [gpu_smi.Reading(gpu, at + 0.0001 * number, util, used) for number in range(10)]
        self.holds(judges.as_nvidia_smi(REPORT, readings()), True, True)
        self.holds(judges.as_nvidia_smi(REPORT, readings(util=0.2)), False, True)
        self.holds(judges.as_nvidia_smi(REPORT, readings(at=0.0)), False, True)
        self.holds(judges.as_nvidia_smi(REPORT, readings(used=30 * GIB)), True, False)
        self.holds(judges.as_nvidia_smi(REPORT, []), False)
        # Another GPU, idle or full, whatever its place in nvidia-smi's list, says nothing of this one.
        neighbour = readings(other, util=0.0, used=70 * GIB)
        self.holds(judges.as_nvidia_smi(REPORT, neighbour + readings()), True, True)
        rows = judges.as_nvidia_smi(REPORT, neighbour)
        self.holds(rows, False)
        self.assertIn("0 readings of the GPU at 0000:3B:00.0", rows[0].figure)
        self.holds(judges.as_nvidia_smi(report(device__nvml__pci_bus_id="0000:86:00.0"), neighbour), False, False)
        self.lacks("device.nvml.pci_bus_id", judges.as_nvidia_smi, report(device__nvml=None), readings())

    def test_readings_of_nvidia_smi(self):
        found = gpu_smi.parse("00000000:3B:00.0, 98, 20480\n", 1.0)
        self.assertEqual(found, ((0, 0x3B, 0, 0), 1.0, 0.98, 20 * GIB))
        for line in ["00000000:3B:00.0, [N/A], 20480", "98, 20480", "No devices were found", "3B, 98, 20480"]:
            self.assertIsNone(gpu_smi.parse(line, 1.0), line)
        self.assertEqual(gpu_smi.bus_id("0000:3b:00.0"), gpu_smi.bus_id(" 00000000:3B:00.0"))
        self.assertNotEqual(gpu_smi.bus_id("0001:3B:00.0"), gpu_smi.bus_id("0000:3B:00.0"))
        self.assertNotEqual(gpu_smi.bus_id("0000:3B:00.1"), gpu_smi.bus_id("0000:3B:00.0"))

    def test_preparation(self):
        again = report(device__timeline__preparation_ns=5_000_000_000)
        self.holds(judges.preparation(REPORT, again), True)
        self.holds(judges.preparation(again, REPORT), False)

    def test_fallback(self):
        events = report(device__timeline__source="events", device__timeline__fallback="asked for")
        self.holds(judges.fallback("events", events, REPORT), True, True)
        self.holds(judges.fallback("host", events, REPORT), False, True)
        events["device"]["busy_share"] = 0.9
        self.holds(judges.fallback("events", events, REPORT), True, False)
        self.holds(judges.fallback("events", REPORT, REPORT), False, True)

    def test_ahead(self):
        same, off = report(), report(training__losses=[2.0] * 10 + [2.1] * 12)
        self.assertTrue(judges.ahead(same, same)[0].holds)
        self.assertFalse(judges.ahead(same, off)[0].holds)
        self.assertFalse(judges.ahead(same, report(training__losses=[2.0]))[0].holds)

    def test_precision(self):
        self.holds(judges.precision("bf16", REPORT, report(training__losses=[2.05] * 20)), True)
        self.holds(judges.precision("bf16", REPORT, report(training__losses=[2.2] * 20)), False)
        self.holds(judges.precision("f16", REPORT, report(training__losses=[float("nan")] * 20)), False)
        self.holds(judges.precision("f16", REPORT, report(training__losses=[])), False)

    def test_kernels(self):
        def timed(forward, *backward):
            return {"passes": [{"forward_ns": forward * 10**6, "backward_ns": one * 10**6} for one in backward]}
        rows = judges.kernels("vgg16", timed(10, 20, 20, 90), timed(30, 60))
        self.holds(rows, True)
        self.assertIn("10.0 + 20.0 ms, plain 30.0 + 60.0 ms: 3.00x", rows[0].figure)
        self.holds(judges.kernels("vgg16", timed(30, 61), timed(30, 60)), False)
        self.lacks("passes", judges.kernels, "vgg16", timed(1, 1), {})

    def test_products(self):
        def timed(*times):
            return {"matmul": [{"n": 64 << place, "ns": [one, one, 99 * one]} for place, one in enumerate(times)]}
        cpu = timed(10, 80, 640)
        rows = judges.products(cpu, timed(50, 50, 60), timed(50, 50, 120))
        self.holds(rows, True, True)
        self.assertIn("from 128 rows on", rows[0].figure)
        self.assertIn("2.00x", rows[1].figure)
        self.assertIn("from 64 rows on", judges.products(cpu, timed(5, 5, 5), cpu)[0].figure)
        # Faster in the middle alone is no crossover.
        self.holds(judges.products(cpu, timed(50, 50, 700), timed(50, 50, 120)), False, False)
        self.lacks("matmul", judges.products, cpu, {}, cpu)

    def test_table(self):
        def reproduced(remark, measured):
            cells = [{"remark": remark, "measured": measured}]
            return {"table": "gpu-util", "parts": [{"rows": [{"name": "num_workers", "cells": cells}]}]}
        figure = {"median": 0.5}
        self.holds(judges.table(reproduced(None, figure)), True)
        self.holds(judges.table(reproduced("not predicted: no", figure)), True)
        self.holds(judges.table(reproduced("not run: no driver", None)), False)
        self.holds(judges.table(reproduced("not run: not asked for", None)), False)
        both = reproduced("not run: not asked for", None)
        both["parts"] += reproduced(None, figure)["parts"]
        self.holds(judges.table(both), True)
        self.lacks("parts", judges.table, {"table": "gpu-util"})

    def test_memory(self):
        self.holds(judges.out_of_memory(3, "", 64), True, True)
        self.holds(judges.out_of_memory(1, "panicked", None), False, False)
        self.holds(judges.out_of_memory(None, "", None), False, False)
        self.holds(judges.size_fits(64, 0, "memory"), True, True)
        self.holds(judges.size_fits(64, 3, "most"), False, False)
        self.holds(judges.size_fits(None, None, "refused"), False)


def main():
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Judgements)
    return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1
