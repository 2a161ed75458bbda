//! Pictures of made-up runs, at several sizes.

use super::figures::{Doing, Figures, Past, States};
use super::frame::{Picture, draw};
use super::rooms::rooms;
use super::snapshot::Snapshot;
use super::status::line;
use super::style::Palette;
use crate::analysis::{
    Cause, Change, Setting, StageTotals, Suggestion, Totals, Verdict, WorkerSummary,
};
use crate::report::IdleCause;
use crate::timeline::{
    HostWork, LaneKind, Layout, Nanos, Pipeline, Stage, StageKind, StageKnobs, ThreadUsage,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;
use std::time::Duration;

fn stage(name: &str) -> Stage {
    let mut all = Pipeline::IMAGES.loader();
    all.find(|stage| stage.name() == name).unwrap()
}

/// A thread that was busy and blocked so many thousandths of `time`, and otherwise starved.
fn worker(name: &str, kind: LaneKind, time: Nanos, busy: u64, blocked: u64) -> WorkerSummary {
    let of = |share: u64| Nanos(time.0 / 1000 * share);
    WorkerSummary {
        name: name.to_owned(),
        kind,
        items: 1,
        busy: of(busy),
        starved: time - of(busy) - of(blocked),
        blocked: of(blocked),
        usage: ThreadUsage::default(),
    }
}

fn stage_totals(stage: Stage, busy: Nanos, units: u64, input_depths: u64) -> StageTotals {
    StageTotals {
        stage,
        busy,
        units,
        input_depths,
    }
}

/// A run that decode starves, after so many seconds.
fn starved(seconds: u64) -> Totals {
    let time = Nanos(seconds * 1_000_000_000);
    let own = |name| LaneKind::Worker(stage(name));
    let step = stage("read").other(StageKind::Step);
    let row = |stage, busy: u64, depth: u64| {
        let units = 100 * seconds;
        stage_totals(stage, Nanos(time.0 / 1000 * busy), units, units * depth)
    };
    Totals {
        time,
        steps: 5 * seconds,
        samples: 160 * seconds,
        device_busy: Nanos(time.0 / 1000 * 312),
        data_wait: Nanos(time.0 / 1000 * 681),
        stages: vec![
            row(stage("read"), 20, 0),
            row(stage("decode"), 1990, 15),
            row(stage("preprocess"), 400, 1),
            row(stage("batch"), 1, 3),
            row(stage("copy"), 20, 0),
            row(step, 0, 0),
        ],
        workers: vec![
            worker("read", own("read"), time, 20, 975),
            worker("decode-0", own("decode"), time, 996, 0),
            worker("decode-1", own("decode"), time, 994, 4),
            worker("preprocess", own("preprocess"), time, 400, 0),
            worker("batch", own("batch"), time, 1, 0),
            worker("copy", own("copy"), time, 20, 0),
            worker("trainer", LaneKind::Trainer, time, 319, 0),
        ],
    }
}

fn cause(kind: Cause, share: f64) -> IdleCause {
    IdleCause {
        cause: kind.to_string(),
        kind,
        stage: kind.stage(),
        ns: Nanos((share * 1e9) as u64),
        share,
    }
}

fn per_stage() -> Layout {
    let knobs = |workers| StageKnobs {
        workers,
        prefetch: 16,
    };
    Layout::PerStage {
        samples: vec![knobs(1), knobs(2), knobs(1)],
        batch: StageKnobs {
            workers: 1,
            prefetch: 2,
        },
    }
}

const COPY: StageKnobs = StageKnobs {
    workers: 1,
    prefetch: 2,
};

fn snapshot(totals: Totals) -> Snapshot {
    let decode = Change::Set(vec![Setting::count("decode.workers", 4, 2)]);
    let evidence = [
        "decode has 2 workers, busy 99.5 %",
        "88 % of device idle is decode capacity",
        "decode capacity is 71 % of the first epoch, 66 % of later ones",
    ];
    Snapshot {
        name: "emulated-gpu".to_owned(),
        device: Some("emulated device"),
        steps: totals.steps + 5,
        steps_in_all: Some(205),
        rooms: rooms(Pipeline::IMAGES, &per_stage(), COPY, 32),
        totals: Some(totals),
        loss: Some(2.3014),
        causes: vec![
            cause(Cause::Capacity(stage("decode")), 0.88),
            cause(Cause::CpuContention, 0.06),
            cause(Cause::Capacity(stage("preprocess")), 0.04),
            cause(Cause::Host(HostWork::Launch), 0.011),
            cause(Cause::WakeUp, 0.004),
            cause(Cause::Unattributed, 0.0),
        ],
        verdict: Some(Verdict {
            title: "loader-bound".to_owned(),
            data_wait_share: 0.681,
            input_wait_share: 0.655,
            evidence: evidence.map(str::to_owned).to_vec(),
            suggestion: Some(Suggestion::new(decode, 1.9)),
            ..Verdict::default()
        }),
        guard: None,
    }
}

/// The figures after runs of `seconds`, one after another.
fn after(seconds: &[u64]) -> (Snapshot, Figures) {
    let mut past = Past::default();
    let told = seconds.iter().map(|seconds| {
        let snapshot = snapshot(starved(*seconds));
        let figures = past.figures(&snapshot).unwrap();
        (snapshot, figures)
    });
    told.last().unwrap()
}

fn drawn_with(
    (width, height): (u16, u16),
    snapshot: &Snapshot,
    figures: Option<&Figures>,
    palette: Palette,
) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let picture = Picture {
        snapshot,
        figures,
        elapsed: Duration::from_secs(12),
        footer: "q or Ctrl-C: stop and print the report",
        palette,
    };
    terminal.draw(|frame| draw(frame, &picture)).unwrap();
    terminal.backend().buffer().clone()
}

/// The characters, without spaces at the ends of lines.
fn drawn(size: (u16, u16), snapshot: &Snapshot, figures: Option<&Figures>) -> String {
    let buffer = drawn_with(size, snapshot, figures, Palette::PLAIN);
    let rows = buffer.content().chunks(size.0.into());
    let lines = rows.map(|row| {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_starved_run_fits_the_smallest_usual_terminal() {
    let (snapshot, figures) = after(&[10, 11, 12]);
    insta::assert_snapshot!(drawn((80, 24), &snapshot, Some(&figures)));
}

#[test]
fn more_room_shows_more_causes_and_each_thread() {
    let (snapshot, figures) = after(&[10, 11, 12]);
    insta::assert_snapshot!(drawn((120, 40), &snapshot, Some(&figures)));
}

#[test]
fn a_narrow_terminal_has_a_line_for_each_stage() {
    let (snapshot, figures) = after(&[10, 11, 12]);
    insta::assert_snapshot!(drawn((64, 20), &snapshot, Some(&figures)));
}

#[test]
fn a_low_terminal_keeps_what_matters_most() {
    let (snapshot, figures) = after(&[10, 11, 12]);
    insta::assert_snapshot!(drawn((80, 13), &snapshot, Some(&figures)));
}

#[test]
fn before_the_first_measured_step_it_says_so() {
    let early = Snapshot {
        steps: 2,
        totals: None,
        loss: None,
        causes: Vec::new(),
        verdict: None,
        ..snapshot(Totals::default())
    };
    insta::assert_snapshot!(drawn((80, 12), &early, None));
}

#[test]
fn whole_batch_workers_are_one_box_with_the_stages_that_share_them() {
    let time = Nanos(10_000_000_000);
    let step = stage("read").other(StageKind::Step);
    let busy = |share: u64| Nanos(time.0 / 1000 * share);
    let totals = Totals {
        stages: vec![
            stage_totals(stage("read"), busy(60), 900, 0),
            stage_totals(stage("decode"), busy(2100), 900, 0),
            stage_totals(stage("preprocess"), busy(600), 900, 0),
            stage_totals(stage("batch"), busy(30), 30, 0),
            stage_totals(stage("copy"), busy(20), 30, 15),
            stage_totals(step, busy(310), 30, 0),
        ],
        workers: vec![
            worker("worker-0", LaneKind::BatchWorker, time, 950, 50),
            worker("worker-1", LaneKind::BatchWorker, time, 930, 50),
            worker("worker-2", LaneKind::BatchWorker, time, 910, 50),
            worker("copy", LaneKind::Worker(stage("copy")), time, 20, 0),
            worker("trainer", LaneKind::Trainer, time, 310, 0),
        ],
        ..starved(10)
    };
    let layout = Layout::WholeBatch {
        num_workers: 3,
        prefetch_factor: 2,
    };
    let snapshot = Snapshot {
        rooms: rooms(Pipeline::IMAGES, &layout, COPY, 32),
        ..snapshot(totals)
    };
    let figures = Past::default().figures(&snapshot).unwrap();
    assert_eq!(figures.rows[0].name, "workers");
    assert_eq!(figures.rows[2].doing, Doing::Part(0.7), "decode");
    insta::assert_snapshot!(drawn((100, 24), &snapshot, Some(&figures)));
}

#[test]
fn a_line_says_the_same_in_short() {
    let mut past = Past::default();
    let mut at = |totals: Option<Totals>, seconds| {
        let snapshot = Snapshot {
            totals,
            ..snapshot(Totals::default())
        };
        line(&snapshot, &mut past, Duration::from_secs(seconds))
    };
    assert_eq!(at(None, 3), "stallscope 0:03  no step is measured yet");
    at(Some(starved(10)), 10);
    insta::assert_snapshot!(at(Some(starved(12)), 75));
}

#[test]
fn no_size_breaks_it() {
    let (snapshot, figures) = after(&[10, 11, 12]);
    for width in (0..130).step_by(3) {
        for height in 0..45 {
            let figures = (width % 2 == 0).then_some(&figures);
            drawn_with((width, height), &snapshot, figures, Palette::PLAIN);
        }
    }
}

#[test]
fn without_colours_there_are_none() {
    let (snapshot, figures) = after(&[10, 11, 12]);
    let colours = |palette| {
        let buffer = drawn_with((80, 24), &snapshot, Some(&figures), palette);
        let cells = buffer.content().iter();
        cells.filter(|cell| cell.fg != Color::Reset).count()
    };
    assert_eq!(colours(Palette::PLAIN), 0);
    assert!(colours(Palette::COLOURED) > 100);
}

#[test]
fn now_is_the_last_second() {
    let mut past = Past::default();
    let mut at = |seconds: f64, samples: u64, busy: f64| {
        let nanos = |seconds: f64| Nanos((seconds * 1e9) as u64);
        let time = nanos(seconds);
        let decode = LaneKind::Worker(stage("decode"));
        let mut decodes = worker("decode", decode, time, 0, 0);
        decodes.busy = nanos(busy);
        let totals = Totals {
            time,
            samples,
            steps: samples / 10,
            device_busy: nanos(busy),
            workers: vec![decodes],
            ..Totals::default()
        };
        let figures = past.figures(&snapshot(totals)).unwrap();
        (
            figures.samples_per_second.now.round(),
            figures.device_busy.now,
            figures.workers[0].1,
        )
    };
    let states = |busy, starved| States {
        busy,
        starved,
        blocked: 0.0,
    };
    // Shorter than a second: since the beginning.
    assert_eq!(at(0.5, 50, 0.5), (100.0, 1.0, states(1.0, 0.0)));
    assert_eq!(at(1.0, 100, 1.0), (100.0, 1.0, states(1.0, 0.0)));
    assert_eq!(at(1.5, 400, 1.0), (350.0, 0.5, states(0.5, 0.5)));
    assert_eq!(at(2.0, 700, 1.0), (600.0, 0.0, states(0.0, 1.0)));
    // No step since.
    assert_eq!(at(2.0, 700, 1.0), (600.0, 0.0, states(0.0, 1.0)));
    // A step of five seconds.
    assert_eq!(
        at(7.0, 710, 5.0),
        (2.0, 0.8, states(0.8, 0.19999999999999996))
    );
}

#[test]
fn a_run_is_left_what_its_steps_take() {
    let (_, figures) = after(&[10]);
    // 150 steps are left, and 5 were done a second.
    assert_eq!(figures.left, Some(Duration::from_secs(30)));
}
