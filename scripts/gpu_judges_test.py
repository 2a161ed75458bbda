"""Tests of gpu_judges.py on made-up reports: `gpu-check.py --self-test`."""
import copy
import unittest

import gpu_judges as judges

REPORT = {
    "samples_per_second": 1000.0,
    "window_ns": 1_000_000,
    "training": {"losses": [2.0] * 22},
    "idle_causes": [{"cause": "decode capacity", "stage": "decode", "ns": 10_000, "share": 1.0},
                    {"cause": "unattributed", "stage": None, "ns": 0, "share": 0.0}],
    "device": {"busy_share": 0.99, "copies": {"overlapped_share": 0.97}, "nvml": {"gpu_util_mean": 0.999}},
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
        def judge(**off):
            gpu = [2.0] * 22
            for step, loss in off.items():
                gpu[int(step[1:])] = loss
            return judges.losses("linear", REPORT, report(training__losses=gpu))
        self.holds(judge(), True, True)
        self.holds(judge(s2=2.003), False, True)
        self.holds(judge(s3=2.003), True, True)
        self.holds(judge(s19=2.05), True, False)
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
        self.holds(judges.cupti_cost([(990, 1000)] * 2), False)
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
        self.holds(judges.overlapped(report(device__copies__overlapped_share=0.9)), False)
        self.lacks("device.copies.overlapped_share", judges.overlapped, report(device__copies=None))

    def test_side_by_side(self):
        self.holds(judges.side_by_side("raw", REPORT), True)
        self.holds(judges.side_by_side("raw", report(device__nvml__gpu_util_mean=99.0)), False)
        self.lacks("device.nvml.gpu_util_mean", judges.side_by_side, "raw", report(device__nvml=None))

    def test_options(self):
        quarter = report(stages=[{"stage": "copy", "items": 10, "bytes_out": 1000}])
        self.holds(judges.on_device(REPORT, quarter), True, True)
        self.holds(judges.on_device(REPORT, REPORT), False, True)
        self.lacks("stages: copy", judges.on_device, REPORT, report(stages=[]))
        self.holds(judges.compared("copy.pinned", REPORT, report(samples_per_second=980.0)), True)
        self.holds(judges.compared("copy.pinned", REPORT, report(samples_per_second=950.0)), False)

    def test_memory(self):
        self.holds(judges.out_of_memory(3, "", 64), True, True)
        self.holds(judges.out_of_memory(1, "panicked", None), False, False)
        self.holds(judges.out_of_memory(None, "", None), False, False)
        self.holds(judges.size_fits(64, 0), True)
        self.holds(judges.size_fits(64, 3), False)
        self.holds(judges.size_fits(None, None), False)


def main():
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Judgements)
    return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1
