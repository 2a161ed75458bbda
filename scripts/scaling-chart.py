#!/usr/bin/env python3
"""The chart of docs/prediction.md: what one run says of 1 to 512 workers on 1 to 256 cores.

    stallscope run configs/emulated-gpu.toml --set num_workers=1 --set page_cache=warm --run-dir PROFILE
    python3 scripts/scaling-chart.py PROFILE                     (minutes: `stallscope predict` for each point)
    python3 scripts/scaling-chart.py --redraw                    (from the numbers that lie in docs/)

Writes docs/scaling.csv, a line for each point, and docs/scaling.svg. Run it from anywhere.
"""

import argparse
import csv
import json
import math
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

WORKERS = sorted({whole for power in range(10) for whole in (2**power, 3 * 2**power // 2) if whole <= 512})
CORES = [1, 4, 16, 64, 256]
# More steps than are simulated: the window is one of a long run.
STEPS = ["steps=100000", "warmup_steps=2000"]
PANELS = {
    "memory": {
        "title": "Data in memory, a device that never binds",
        "speedup": 10_000,
        "sets": ["emulated.launch=0ms", "emulated.copy_bandwidth=100000GB/s"],
    },
    "network": {
        "title": "Reads wait 10 ms, a device as fast as 8 H100",
        "speedup": 8,
        "sets": ["device=emulated:resnet50-h100", "storage.emulate=custom", "storage.latency=10ms"],
    },
}
COLUMNS = ["panel", "cores", "num_workers", "samples_per_second", "low", "high", "bound", "bound_by", "device_busy"]


def predict(binary, report, panel, cores, workers):
    """A line of the table."""
    sets = [f"num_workers={workers}", *STEPS, *PANELS[panel]["sets"]]
    command = [str(binary), "predict", str(report), "--json", "--cores", str(cores)]
    command += ["--device-speedup", str(PANELS[panel]["speedup"])]
    command += [word for text in sets for word in ("--set", text)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    prediction = json.loads(done.stdout)["prediction"]
    rate = prediction["samples_per_second"]
    return {
        "panel": panel,
        "cores": cores,
        "num_workers": workers,
        "samples_per_second": round(rate["value"], 1),
        "low": round(rate["low"], 1),
        "high": round(rate["high"], 1),
        "bound": round(prediction["bound_samples_per_second"], 1),
        "bound_by": prediction["bound_by"],
        "device_busy": round(prediction["device_busy"]["value"], 4),
    }


def predict_all(binary, report):
    rows = []
    for panel in PANELS:
        for cores in CORES:
            rows += [predict(binary, report, panel, cores, workers) for workers in WORKERS]
            last = rows[-1]
            print(f"{panel}, {cores} cores: {last['samples_per_second']:.0f} samples/s with 512 workers", flush=True)
    return rows


def read(path):
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    text = {"panel", "bound_by"}
    return [{key: value if key in text else float(value) for key, value in row.items()} for row in rows]


# The drawing. Sizes are pixels of a picture 800 wide.
WIDTH, HEIGHT = 800, 478
TOP, BOTTOM = 96, 406
LEFTS, PANEL_WIDTH = [48, 430], 272
LEAST, MOST = 50, 250_000

LIGHT = {
    "surface": "#fcfcfb", "ink": "#0b0b0b", "text": "#52514e", "grid": "#e4e3df", "axis": "#c3c2b7",
    "lines": ["#b7d3f6", "#86b6ef", "#5598e7", "#2a78d6", "#1c5cab"],
}  # fmt: skip
DARK = {
    "surface": "#1a1a19", "ink": "#ffffff", "text": "#c3c2b7", "grid": "#2c2c2a", "axis": "#4a4a47",
    "lines": ["#184f95", "#1c5cab", "#2a78d6", "#5598e7", "#86b6ef"],
}  # fmt: skip


def colors(of):
    """Rules for one theme. No variables: not every renderer of SVG knows them."""
    lines = "".join(f" .c{place} {{ stroke: {color} }}" for place, color in enumerate(of["lines"]))
    return (
        f"  .surface {{ fill: {of['surface']} }} text {{ fill: {of['text']} }} .ink {{ fill: {of['ink']} }}\n"
        f"  .grid {{ stroke: {of['grid']} }} .axis {{ stroke: {of['axis']} }} .lead {{ stroke: {of['text']} }}\n"
        f"  .halo {{ stroke: {of['surface']} }} .bound {{ stroke: {of['ink']} }}{lines}\n"
        f"  .bend {{ fill: {of['surface']}; stroke: {of['ink']} }}\n"
    )


STYLE = f"""
  text {{ font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }}
  .title {{ font-size: 16px; font-weight: 600 }} .panel {{ font-size: 13px; font-weight: 600 }}
  .halo {{ stroke-width: 4; stroke-linejoin: round }}
  .line {{ fill: none; stroke-width: 4.5; stroke-linejoin: round; stroke-linecap: round }}
  .bound {{ fill: none; stroke-width: 1.2; stroke-dasharray: 5 4 }}
  .bend {{ stroke-width: 1.5 }} .lead {{ fill: none }}
{colors(LIGHT)}  @media (prefers-color-scheme: dark) {{
{colors(DARK)}  }}
"""


def label(text, x, y, anchor="start", more=""):
    """Text that is readable over lines: a copy of it as a halo below."""
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}'
    return f'<text class="halo" {where}>{text}</text><text class="ink" {where}>{text}</text>'


class Panel:
    """One pair of axes."""

    def __init__(self, left, rows):
        self.left, self.rows = left, rows

    def x(self, workers):
        return self.left + PANEL_WIDTH * math.log2(workers) / 9

    def y(self, rate):
        share = math.log(rate / LEAST) / math.log(MOST / LEAST)
        return BOTTOM - share * (BOTTOM - TOP)

    def path(self, points):
        return "M" + " L".join(f"{self.x(workers):.1f} {self.y(rate):.1f}" for workers, rate in points)

    def line(self, cores):
        return sorted((row for row in self.rows if row["cores"] == cores), key=lambda row: row["num_workers"])

    def bends(self, line):
        """Where the bound goes over from workers to something else: workers, samples/s and what binds from there."""
        for before, after in zip(line, line[1:]):
            if before["bound_by"] == "workers" != after["bound_by"]:
                workers = after["bound"] / before["bound"] * before["num_workers"]
                yield workers, after["bound"], after["bound_by"]

    def bound(self, line):
        points = [(row["num_workers"], row["bound"]) for row in line]
        return sorted(points + [bend[:2] for bend in self.bends(line)])

    def axes(self, title):
        right = self.left + PANEL_WIDTH
        yield f'<text class="panel ink" x="{self.left}" y="{TOP - 12}">{title}</text>'
        for rate, name in ((100, "100"), (1_000, "1k"), (10_000, "10k"), (100_000, "100k")):
            y = self.y(rate)
            yield f'<line class="grid" x1="{self.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{self.left - 7}" y="{y + 4:.1f}" text-anchor="end">{name}</text>'
        for power in range(10):
            x = self.x(2**power)
            yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{BOTTOM}" y2="{BOTTOM + 4}"/>'
            yield f'<text x="{x:.1f}" y="{BOTTOM + 18}" text-anchor="middle">{2**power}</text>'
        yield f'<line class="axis" x1="{self.left}" x2="{right}" y1="{BOTTOM}" y2="{BOTTOM}"/>'
        yield f'<text x="{self.left + PANEL_WIDTH / 2}" y="{BOTTOM + 36}" text-anchor="middle">num_workers</text>'

    def lines(self):
        lines = [self.line(cores) for cores in CORES]
        # The fewest cores last: where lines lie on each other each still shows up to its bend.
        for place, line in reversed(list(enumerate(lines))):
            points = [(row["num_workers"], row["samples_per_second"]) for row in line]
            yield f'<path class="line c{place}" d="{self.path(points)}"/>'
        for line in lines:
            yield f'<path class="bound" d="{self.path(self.bound(line))}"/>'
        for line in lines:
            for workers, rate, by in self.bends(line):
                if by == "cores":
                    yield f'<circle class="bend" cx="{self.x(workers):.1f}" cy="{self.y(rate):.1f}" r="4"/>'

    def names(self):
        """How many cores, at the end of each line; lines that end at one place have one name."""
        ends = []
        for cores in reversed(CORES):
            y = self.y(self.line(cores)[-1]["samples_per_second"])
            if ends and abs(ends[-1][0] - y) < 3:
                ends[-1][1].insert(0, str(cores))
            else:
                ends.append((y, [str(cores)]))
        lowest = 0
        for y, names in ends:
            lowest = max(y + 4, lowest + 14)
            unit = "core" if names == ["1"] else "cores"
            x = self.left + PANEL_WIDTH + 8
            yield label(f"{', '.join(names)} {unit}", x, lowest)

    def slope(self):
        """Along the rise: workers bind."""
        rings = [bend for cores in CORES for bend in self.bends(self.line(cores))][:2]
        x = sum(self.x(workers) for workers, _, _ in rings) / 2
        y = sum(self.y(rate) for _, rate, _ in rings) / 2
        angle = math.degrees(math.atan2(self.y(1) - self.y(2), self.x(2) - self.x(1)))
        turned = f"translate({x:.1f} {y:.1f}) rotate({-angle:.1f})"
        yield label("workers bind", 0, -9, "middle", f' transform="{turned}"')

    def cores_bind(self):
        """Says of one line where the cores bind, and where the device does."""
        for workers, rate, by in self.bends(self.line(4)):
            x, y = self.x(workers), self.y(rate)
            if by == "cores":
                yield f'<path class="lead" d="M{x + 3:.1f} {y + 4:.1f} L{x + 18:.1f} {y + 18:.1f}"/>'
                yield label(f"4 cores bind from {workers:.0f} workers on", x + 21, y + 26)
        last = self.line(CORES[-1])[-1]
        if last["bound_by"] == "device":
            text = f"the device binds: {last['bound']:,.0f} samples/s"
            yield label(text, self.left + PANEL_WIDTH, self.y(last["bound"]) - 10, "end")


def legend():
    y = HEIGHT - 13
    entries = [
        (f'<path class="line c2" d="M0 {y - 4} h28"/>', 28, "simulated"),
        (f'<path class="bound" d="M0 {y - 4} h28"/>', 28, "analytic bound"),
        (f'<circle class="bend" cx="5" cy="{y - 4}" r="4"/>', 10, "the cores begin to bind"),
    ]
    x = LEFTS[0]
    for mark, width, text in entries:
        yield f'<g transform="translate({x} 0)">{mark}<text x="{width + 7}" y="{y}">{text}</text></g>'
        x += width + 7 + 6.3 * len(text) + 26


def draw(rows):
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" aria-labelledby="title what">',
        '<title id="title">Samples per second by workers and cores, predicted from one run with one worker</title>',
        '<desc id="what">Two log-log charts of samples per second over num_workers from 1 to 512, a line for each of '
        "1, 4, 16, 64 and 256 cores, with the analytic bound dashed. All numbers are in scaling.csv.</desc>",
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" class="surface"/>',
        f'<text class="title ink" x="{LEFTS[0]}" y="30">Samples/s, predicted from one run with one worker</text>',
        f'<text x="{LEFTS[0]}" y="50">JPEG images of configs/emulated-gpu.toml in batches of 32; a line for each '
        "number of cores</text>",
    ]
    for left, (name, panel) in zip(LEFTS, PANELS.items()):
        axes = Panel(left, [row for row in rows if row["panel"] == name])
        for some in (axes.axes(panel["title"]), axes.lines(), axes.names(), axes.slope(), axes.cores_bind()):
            parts += some
    return "\n".join([*parts, *legend(), "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", nargs="?", type=Path, help="the folder of a run, or its report.json")
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/stallscope")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="the folder of scaling.csv and scaling.svg")
    parser.add_argument("--redraw", action="store_true", help="only draw the numbers of scaling.csv")
    args = parser.parse_args()
    table = args.out / "scaling.csv"
    if not args.redraw:
        if args.report is None:
            parser.error("it needs the report of a run, or --redraw")
        rows = predict_all(args.binary, args.report)
        with table.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    picture = args.out / "scaling.svg"
    picture.write_text(draw(read(table)))
    print(f"{table}\n{picture}")


if __name__ == "__main__":
    main()
