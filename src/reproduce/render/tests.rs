//! What is shown of a table that is made up.

use super::*;
use crate::analysis::predict::Estimate;
use crate::report::page::document_page;
use crate::reproduce::{
    Cell, ChartKind, Column, DataOrigin, DataUsed, Hardware, Measurement, Provenance, Row, Source,
    Span, Unit,
};

fn column(name: &str, unit: Unit) -> Column {
    Column {
        name: name.to_owned(),
        unit,
    }
}

fn predicted(cell: Cell, value: f64, low: f64, high: f64) -> Cell {
    Cell {
        predicted: Some(Estimate { value, low, high }),
        ..cell
    }
}

fn row(name: &str, settings: &[&str], cells: Vec<Cell>, reason: &str) -> Row {
    Row {
        name: name.to_owned(),
        settings: settings
            .iter()
            .map(|setting| (*setting).to_owned())
            .collect(),
        cells,
        reason: (!reason.is_empty()).then(|| reason.to_owned()),
    }
}

const NO_GPU: &str = "not run: no GPU here; scripts/gpu-check.sh runs it where there is one";

/// A ladder of three rungs: everything on the first, a remark on the second, nothing measured on the third.
fn rungs() -> Part {
    let published = |value: f64| Some(Span::of(value));
    let first = vec![
        Cell::measured(&[0.351, 0.3504, 0.3588]).beside(published(0.35)),
        Cell::measured(&[512.25, 508.0, 515.5]),
        Cell::measured(&[7188.0, 7302.0, 7211.0]).beside(published(7200.0)),
        Cell::measured(&[194.2]).beside(Span::range(194.0, 256.0)),
        Cell::not_run(NO_GPU),
    ];
    let second = vec![
        predicted(Cell::measured(&[0.55, 0.561, 0.5466]), 0.57, 0.53, 0.61).beside(published(0.55)),
        predicted(Cell::measured(&[802.5, 791.0, 812.0]), 830.0, 772.0, 889.0),
        Cell::measured(&[4590.0, 4601.0, 4499.0]).beside(published(5400.0)),
        Cell::measured(&[151.0]).beside(Span::range(9.0, 11.0)),
        Cell::not_run(NO_GPU),
    ];
    let third = vec![
        predicted(
            Cell::not_run("not run: the disk was full, and then some"),
            0.95,
            0.9,
            0.97,
        )
        .beside(published(0.95)),
        Cell {
            remark: Some("stopped: <out of memory> & no smaller batch was tried".to_owned()),
            ..Cell::default()
        },
        Cell::default().beside(published(3000.0)),
        Cell::default(),
        Cell::not_run(NO_GPU),
    ];
    Part {
        name: "rungs".to_owned(),
        title: "The ladder on an emulated accelerator".to_owned(),
        rows_are: "strategy".to_owned(),
        columns: vec![
            column("GPU-Util (AU, as MLPerf Storage defines it)", Unit::Share),
            column("samples/s", Unit::PerSecond),
            column("training time", Unit::Minutes),
            column("an epoch with evaluation", Unit::Seconds),
            column("on a GPU", Unit::Seconds),
        ],
        rows: vec![
            row(
                "default settings",
                &[],
                first,
                "91 % of device idle is decode capacity: one thread in the trainer's own decodes each sample before \
                 the device may begin, and the device waits for 23.1 ms of every step",
            ),
            row(
                "num_workers: six processes that each assemble whole batches",
                &["num_workers=6", "prefetch_factor=2"],
                second,
                "1.57x the rung before; what bound is read, *not* decode | so more workers buy nothing",
            ),
            row("shuffling optimised", &["order=blocks"], third, ""),
        ],
        charted: vec![0, 2, 3, 4],
        chart: ChartKind::Bars,
    }
}

/// Two lines that cross, one with a published twin, and one that was never measured.
fn widths() -> Part {
    let rows = [
        ("64", 0.0021, 0.0052, Some(0.0026)),
        ("128", 0.0029, 0.0053, None),
        ("256", 0.0049, 0.0055, Some(0.0065)),
        ("512", 0.0101, 0.0061, None),
        ("1024", 0.0322, 0.0079, Some(0.0284)),
        ("2048", 0.1205, 0.0166, None),
    ];
    let rows = rows.map(|(name, cpu, gpu, printed)| {
        let around = |value: f64| Cell::measured(&[0.93 * value, value, 1.1 * value]);
        let published = printed.map(|value| Span::range(0.9 * value, 1.1 * value));
        let cells = vec![
            around(cpu).beside(published),
            around(gpu),
            Cell::not_run(NO_GPU),
        ];
        row(name, &[], cells, "")
    });
    Part {
        name: "layer widths".to_owned(),
        title: "Time of a step over the width of the first layer".to_owned(),
        rows_are: "width of the first layer".to_owned(),
        columns: vec![
            column("CPU", Unit::Seconds),
            column("emulated GPU", Unit::Seconds),
            column("GPU", Unit::Seconds),
        ],
        rows: rows.to_vec(),
        charted: vec![0, 1, 2],
        chart: ChartKind::Lines,
    }
}

fn reproduction() -> Reproduction {
    Reproduction {
        schema: Reproduction::SCHEMA.to_owned(),
        schema_version: Reproduction::SCHEMA_VERSION,
        table: "gpu-util".to_owned(),
        title: "The GPU-Util ladder: strategies, each on top of the one before".to_owned(),
        sources: vec![Source {
            title: "A. Writer, On utilization (part 2), 2023".to_owned(),
            url: Some("https://example.org/ladder_(2)".to_owned()),
            setup: Some("one V100, ImageNet's subset".to_owned()),
        }],
        made: Provenance {
            command: "stallscope reproduce gpu-util --repeats 3".to_owned(),
            date: "2026-11-22".to_owned(),
            stallscope_version: "0.1.0".to_owned(),
            machine: Hardware {
                processor: "AMD EPYC 7B13".to_owned(),
                cores: 2.0,
                memory_bytes: Some(24 << 30),
                operating_system: "Linux 6.1".to_owned(),
                gpu: None,
            },
            seed: 7,
            data: vec![DataUsed {
                name: "pictures".to_owned(),
                path: "data/pictures".to_owned(),
                origin: DataOrigin::Generated,
            }],
            configs: vec!["../../configs/reproduce/gpu-util.toml".to_owned()],
        },
        parts: vec![rungs(), widths()],
        explanation: vec![
            "Of what the first rung waited for, 91 % was decoding; the second took that away and what is left is the \
             disk's, which a cheaper format and long blocks help against."
                .to_owned(),
        ],
        notes: vec!["AU stands in the place of GPU-Util: there is no GPU to ask.".to_owned()],
    }
}

#[test]
fn terminal_text() {
    insta::assert_snapshot!(terminal(&reproduction(), 80));
}

#[test]
fn markdown_page() {
    insta::assert_snapshot!(markdown(&reproduction()));
}

#[test]
fn the_page_has_every_part_with_its_chart() {
    let page = document_page(&page(&reproduction(), 0.0));
    let parts = [
        "The GPU-Util ladder",
        "Of what the first rung waited for, 91 % was decoding",
        "stallscope reproduce gpu-util --repeats 3",
        "A. Writer, On utilization",
        "AU stands in the place of GPU-Util",
        NO_GPU,
    ];
    for words in parts {
        // As the template escapes them.
        assert!(page.contains(&words.replace('/', "&#x2f;")), "{words}");
    }
    for part in &reproduction().parts {
        // Of its chart and of its table.
        let heading = format!("<h2>{}</h2>", part.title);
        assert_eq!(page.matches(&heading).count(), 2, "{heading}");
    }
    assert_eq!(page.matches("<svg ").count(), 2);
}

#[test]
fn charts_say_what_was_measured_and_what_was_not() {
    let reproduction = reproduction();
    let words = |part: usize| -> Vec<String> {
        let svg = svg(&reproduction, &reproduction.parts[part]).unwrap();
        let title = format!("<title>{}</title>", reproduction.parts[part].title);
        assert!(svg.contains(&title) && svg.contains("prefers-color-scheme:dark"));
        texts(&svg).into_iter().map(|(words, _)| words).collect()
    };
    let said = |words: &[String], wanted: &[&str]| {
        for wanted in wanted {
            assert!(
                words.iter().any(|words| words == wanted),
                "{wanted}: {words:?}"
            );
        }
    };
    let bars = [
        "The ladder on an emulated accelerator",
        "gpu-util: AMD EPYC 7B13, 2026-11-22",
        "published",
        "predicted before it was measured, with its interval",
        "measured: median, least and most of 1 to 3 runs",
        "default settings",
        "assemble whole batches",
        "training time",
        "0",
        "50 %",
        "100 min",
        "35.1 %",
        "57.0 %",
        "55 %",
        "3 min 14 s..4 min 16 s",
        "not run: the disk was full, and then s...",
        "on a GPU: not run: no GPU here; scripts/gpu-check.sh runs it where there is one",
    ];
    said(&words(0), &bars);
    let lines = [
        "CPU",
        "emulated GPU",
        "published",
        "measured: median, least and most of 3 runs",
        "where measured lines cross: near 290",
        "width of the first layer",
        "1024",
        "20 ms",
        "GPU: not run: no GPU here; scripts/gpu-check.sh runs it where there is one",
    ];
    said(&words(1), &lines);
}

#[test]
fn json_reads_back_as_it_was() {
    let mut reproduction = reproduction();
    // Its figures are products, whose last digit JSON's reader may round another way.
    reproduction.parts.truncate(1);
    let read: Reproduction = serde_json::from_str(&json(&reproduction)).unwrap();
    assert_eq!(read, reproduction);
}

#[test]
fn no_table_is_wider_than_a_terminal() {
    let mut wide = reproduction();
    let part = &mut wide.parts[0];
    for column in &mut part.columns {
        column.unit = Unit::Seconds;
    }
    for row in &mut part.rows {
        for cell in &mut row.cells {
            *cell = predicted(Cell::measured(&[194.2, 256.1]), 200.0, 180.0, 260.0)
                .beside(Span::range(194.0, 256.0));
        }
    }
    for line in terminal(&wide, 80)
        .lines()
        .chain(terminal(&reproduction(), 80).lines())
    {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn a_chart_is_named_only_where_there_is_one() {
    let reproduction = reproduction();
    let [bars, lines] = &reproduction.parts[..] else {
        panic!("two parts");
    };
    assert_eq!(chart_file(bars).as_deref(), Some("rungs.svg"));
    assert_eq!(chart_file(lines).as_deref(), Some("layer-widths.svg"));
    let mut none = bars.clone();
    none.charted.clear();
    let mut nothing = bars.clone();
    // Nowhere has it a figure.
    nothing.charted = vec![4];
    let mut missing = bars.clone();
    missing.charted = vec![9];
    let mut unnumbered = lines.clone();
    for row in &mut unnumbered.rows {
        row.name.insert(0, 'w');
    }
    for part in [none, nothing, missing, unnumbered] {
        assert_eq!(chart_file(&part), None);
        assert_eq!(svg(&reproduction, &part), None);
    }
}

/// The attribute `name` of an element.
fn attribute(element: &str, name: &str) -> Option<String> {
    let rest = element.split_once(&format!(" {name}=\""))?.1;
    Some(rest.split('"').next()?.to_owned())
}

/// Left, top, right, bottom of each text, by the letters of a common font (0.55 of its size on average).
fn texts(svg: &str) -> Vec<(String, [f64; 4])> {
    let place = |element: &str| {
        let (element, words) = element.split_once(">\n").unwrap();
        let element = format!(" {element}");
        let words = words.split("\n<").next().unwrap();
        let number = |name| attribute(&element, name).unwrap().parse::<f64>().unwrap();
        let (x, y, size) = (number("x"), number("y"), number("font-size"));
        let width = 0.55 * size * words.chars().count() as f64;
        let left = match attribute(&element, "text-anchor").unwrap().as_str() {
            "start" => x,
            "middle" => x - 0.5 * width,
            _ => x - width,
        };
        let top = match attribute(&element, "dy").unwrap().as_str() {
            "0.76em" => y,
            "0.5ex" => y - 0.5 * size,
            _ => y - size,
        };
        (
            words.to_owned(),
            [left, top, left + width, top + 0.9 * size],
        )
    };
    svg.split("<text").skip(1).map(place).collect()
}

#[test]
fn texts_of_charts_do_not_overlap_and_stay_on_the_page() {
    let reproduction = reproduction();
    for part in &reproduction.parts {
        let svg = svg(&reproduction, part).unwrap();
        let width: f64 = attribute(&svg, "width").unwrap().parse().unwrap();
        let height: f64 = attribute(&svg, "height").unwrap().parse().unwrap();
        let texts = texts(&svg);
        assert!(texts.len() > 20);
        for (place, (words, one)) in texts.iter().enumerate() {
            assert!(one[0] >= 0.0 && one[2] <= width, "{words}: {one:?}");
            assert!(one[1] >= 0.0 && one[3] <= height, "{words}: {one:?}");
            for (others, other) in &texts[place + 1..] {
                let apart = one[2] <= other[0]
                    || other[2] <= one[0]
                    || one[3] <= other[1]
                    || other[3] <= one[1];
                assert!(apart, "{words} {one:?} and {others} {other:?}");
            }
        }
    }
}

#[test]
fn figures_that_are_none_are_shown_as_such() {
    let mut strange = reproduction();
    for part in &mut strange.parts {
        for row in &mut part.rows {
            row.cells.pop();
            row.cells[0].measured = Some(Measurement {
                median: f64::NAN,
                low: f64::NEG_INFINITY,
                high: f64::INFINITY,
                runs: 2,
            });
        }
    }
    for part in &strange.parts {
        let svg = svg(&strange, part).unwrap();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
    let text = terminal(&strange, 80) + &markdown(&strange);
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}
