//! The report as a page: one HTML file that needs no other, and no network.
//!
//! Invariant: it says nothing that the report's JSON does not hold, but for what a [`Grid`] predicts from it. May use
//! `analysis` and `timeline`.

mod grid;
mod over_time;
mod parts;
mod tables;
mod view;
mod words;

use super::Report;
use super::whole_file::write_whole_file;
pub use grid::{Axis, Grid, Predicted};
use minijinja::{AutoEscape, Environment, Value};
pub use parts::{Badge, Chart, Document, Fact, Figure, Sentence, Table};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// What the file is called, beside report.json.
const FILE: &str = "report.html";

/// The page of `report`; `grid` is what was predicted from it.
pub fn page(report: &Report, grid: Option<&Grid>) -> String {
    render(&view::View::of(report, grid))
}

/// A page of anything else.
pub fn document_page(document: &Document) -> String {
    render(document)
}

fn render(view: &impl Serialize) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let parts = [
        Value::from_serialize(view),
        minijinja::context! {
            css => include_str!("page.css"),
            js => include_str!("page.js"),
            uplot_css => include_str!("uplot/uPlot.min.css"),
            uplot_js => include_str!("uplot/uPlot.iife.min.js"),
        },
    ];
    let context = minijinja::value::merge_maps(parts);
    let page = environment.render_str(include_str!("page.html"), context);
    // The template is part of the program and has no conditions that fail.
    page.unwrap_or_else(|error| format!("<!doctype html><title>stallscope</title><p>{error}"))
}

/// Writes the page of the report at `report_path` beside it, whole or not at all; returns where.
///
/// # Errors
/// What the file system says.
pub fn write_page(report: &Report, grid: Option<&Grid>, report_path: &Path) -> io::Result<PathBuf> {
    let path = report_path.with_file_name(FILE);
    write_page_to(report, grid, &path)?;
    Ok(path)
}

/// The same to `path`.
///
/// # Errors
/// What the file system says.
pub fn write_page_to(report: &Report, grid: Option<&Grid>, path: &Path) -> io::Result<()> {
    write_whole_file(path, page(report, grid).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::predict::Estimate;
    use crate::analysis::{Cause, CauseTotals, InputBound, PartOfWindow, Verdict, Waits};
    use crate::report::{DeviceReport, IdleCause, Machine, Status, TimelineReport, TimelineSource};
    use crate::timeline::{Nanos, Pipeline, Stage};
    use std::time::{Duration, Instant};

    /// A second, a quarter of it busy.
    fn report() -> Report {
        let name = "a </script><b>& b".to_owned();
        let mut report = Report::new(name, Machine::default(), serde_json::Value::Null);
        let kind = Cause::Capacity(Stage::DECODE);
        let idle = Nanos::from_millis(750);
        report.pipeline = Pipeline::IMAGES;
        report.status = Status::Complete;
        report.steps = 10;
        report.samples_per_second = 100.0;
        report.window_ns = Nanos::from_millis(1_000);
        report.device = Some(DeviceReport {
            name: "cpu".to_owned(),
            busy_ns: Nanos::from_millis(250),
            idle_ns: idle,
            busy_share: 0.25,
            ..DeviceReport::default()
        });
        report.idle_causes = vec![IdleCause {
            cause: kind.to_string(),
            kind,
            stage: kind.stage(),
            ns: idle,
            share: 1.0,
        }];
        report.over_time.bins = [0, 500].map(bin).to_vec();
        report.verdict = Some(Verdict {
            input_bound: InputBound::Highly,
            title: "loader-bound".to_owned(),
            evidence: vec!["decode has 1 worker".to_owned(), "the rest".to_owned()],
            ..Verdict::default()
        });
        report
    }

    /// Half a second, half of it idle.
    fn bin(start: u64) -> PartOfWindow {
        let mut causes = CauseTotals::default();
        causes.add(Cause::Capacity(Stage::DECODE), Nanos::from_millis(250));
        PartOfWindow {
            start: Nanos::from_millis(start),
            length: Nanos::from_millis(500),
            idle: Nanos::from_millis(250),
            causes,
            steps: 5,
            samples: 50,
            data_waits: Waits {
                count: 5,
                total: Nanos::from_millis(40),
                max: Nanos::from_millis(20),
            },
            ..PartOfWindow::default()
        }
    }

    fn data(page: &str) -> serde_json::Value {
        let from = page.split_once("id=\"data\">").unwrap().1;
        serde_json::from_str(from.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn a_page_says_what_the_report_does() {
        let page = page(&report(), None);
        for words in [
            "<h1>Loader-bound: decode has 1 worker</h1>",
            "25.0 %",
            "decode capacity",
            "75.0 %",
            "all workers of decode were busy",
        ] {
            assert!(page.contains(words), "{words}");
        }
        assert!(!page.contains("What would help"));
        let over_time = &data(&page)["over_time"];
        assert_eq!(over_time["seconds"], serde_json::json!([0.0, 0.5]));
        let rows = |chart: usize| &over_time["charts"][chart]["rows"];
        assert_eq!(rows(0)[1]["values"], serde_json::json!([0.5, 0.5]));
        // 40 ms in 5 waits; nothing of queues is known.
        assert_eq!(rows(1)[0]["values"], serde_json::json!([8.0, 8.0]));
        assert_eq!(rows(1)[1]["values"], serde_json::json!([20.0, 20.0]));
        assert_eq!(over_time["charts"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn names_cannot_break_the_page() {
        let page = page(&report(), None);
        assert!(page.contains("a &lt;&#x2f;script&gt;&lt;b&gt;&amp; b"));
        assert_eq!(page.matches("</script>").count(), 3);
    }

    /// Nothing is asked of a host as the page opens.
    #[test]
    fn a_page_needs_no_network() {
        let page = page(&report(), None);
        for asks in ["src=\"", "href=\"http", "@import", "url("] {
            assert!(!page.contains(asks), "{asks}");
        }
    }

    #[test]
    fn sliders_find_what_was_simulated() {
        let axis = |name: &str, values: &[&str], is_setting| Axis {
            name: name.to_owned(),
            flag: format!("--{name}={{}}"),
            values: values.iter().map(ToString::to_string).collect(),
            now: 0,
            is_setting,
        };
        let axes = vec![
            axis("workers", &["1", "2"], true),
            axis("speed", &["1", "4"], false),
        ];
        let until = Instant::now() + Duration::from_secs(3_600);
        let grid = Grid::of(axes, 100.0, until, |places, _| {
            Some(Predicted {
                rate: Estimate::exactly([100.0, 190.0][places[0]] + [0.0, 9.0][places[1]]),
                busy: None,
            })
        });
        let page = page(&report(), Some(&grid));
        assert!(page.contains("1.90x"), "the change of a setting");
        assert!(!page.contains("1.99x"), "another device is no setting");
        assert_eq!(data(&page)["grid"]["points"][3]["rate"]["value"], 199.0);
    }

    #[test]
    fn a_page_of_something_else_has_only_that() {
        let document = Document {
            title: "sweep of <x>".to_owned(),
            verdict: Sentence::of("the best is 4 workers"),
            charts: vec![Chart {
                title: "Rates".to_owned(),
                reading: String::new(),
                svg: "<svg></svg>".to_owned(),
            }],
            tables: vec![Table::new(
                "Points",
                "",
                ["workers"],
                vec![vec!["4".to_owned()]],
            )],
            ..Document::default()
        };
        let page = document_page(&document);
        for words in [
            "sweep of &lt;x&gt;",
            "<h1>The best is 4 workers</h1>",
            "<svg></svg>",
            "<h2>Points</h2>",
        ] {
            assert!(page.contains(words), "{words}");
        }
        assert!(!page.contains(include_str!("uplot/uPlot.iife.min.js")));
        assert!(!page.contains("What would help"));
    }

    #[test]
    fn a_gpus_timeline_says_whose_it_is() {
        let mut report = report();
        let device = report.device.as_mut().unwrap();
        device.timeline = Some(TimelineReport {
            source: TimelineSource::Events,
            fallback: Some("no <CUPTI>".to_owned()),
            ..TimelineReport::default()
        });
        let page = page(&report, None);
        assert!(page.contains("GPU timeline: not by CUPTI: no &lt;CUPTI&gt;."));
        assert!(page.contains("cpu; by CUDA events"));
    }

    #[test]
    fn a_run_that_failed_says_so() {
        let mut report = Report::new("x".to_owned(), Machine::default(), serde_json::Value::Null);
        report.status = Status::Failed;
        report.error = Some("cannot read <it>".to_owned());
        let page = page(&report, None);
        assert!(page.contains("The run failed.") && page.contains("cannot read &lt;it&gt;"));
        assert!(page.contains("No verdict: the run ended before its first measured step"));
    }
}
