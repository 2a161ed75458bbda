//! Where a sample's bytes are touched first, and what mapping costs against reading, from the runs. May use: nothing.

use crate::reproduce::evidence::{Evidence, Passage};
use crate::reproduce::explain::percent;
use crate::reproduce::tables::runs::Typical;
use crate::reproduce::training::seconds as time;

/// Bytes of a page, which a fault brings at least.
const PAGE: f64 = 4096.0;
/// CPU times closer together than this are as good as equal.
const EQUAL: f64 = 0.1;

/// What the runs of one part say, one way of reading each, `mmap` or `pread`; `title` says where the bytes lie.
pub fn explanation(title: &str, ways: &[Typical<'_>]) -> Vec<String> {
    let mut lines: Vec<String> = ways.iter().filter_map(touched_first).collect();
    let named = |name: &str| ways.iter().find(|way| way.name == name);
    if let (Some(mapped), Some(read)) = (named("mmap"), named("pread")) {
        lines.extend(costs(mapped, read));
    }
    lines.extend(ways.iter().filter_map(new_memory));
    lines.extend(ways.first().and_then(most_time));
    lines
        .iter()
        .map(|line| format!("{title}: {line}"))
        .collect()
}

/// At which stage the bytes come into memory, or into the program's sight.
fn touched_first(way: &Typical<'_>) -> Option<String> {
    let (read, decode) = (way.run.passage("read")?, way.run.passage("decode")?);
    let faults = |passage: &Passage| passage.major_faults + passage.minor_faults;
    let bytes = read.bytes_out;
    let name = way.name;
    if decode.major_faults > read.major_faults.max(0.1) {
        return Some(format!(
            "with {name} the bytes are touched first in decode, which takes {:.2} major faults a sample and read {:.2}: \
             what the disk costs is charged to the wrong stage.",
            decode.major_faults, read.major_faults
        ));
    }
    if way.name == "pread" {
        // Hardly a page in fifty.
        let buffer = match faults(&read) * PAGE < 0.02 * bytes {
            true => "a buffer that is there already",
            false => "buffers whose memory is new",
        };
        return Some(format!(
            "with {name} the kernel touches the {} of a sample in read and copies them into {buffer} ({:.2} faults a \
             sample, {:.1} waits); decode is the first to look at them.",
            kibibytes(bytes),
            faults(&read),
            read.voluntary_switches
        ));
    }
    let waits = match read.major_faults >= 0.1 {
        true => format!(", {:.2} of which wait for the disk", read.major_faults),
        false => String::new(),
    };
    Some(format!(
        "with {name} the {} of a sample come into view in read, with {:.2} faults a sample{waits}, {} for each; decode, \
         which looks at them, has {:.2}.",
        kibibytes(bytes),
        faults(&read),
        kibibytes(bytes / faults(&read)),
        faults(&decode)
    ))
}

/// What faults cost against what copies cost, where the bytes come in and where they are let go.
fn costs(mapped: &Typical<'_>, read: &Typical<'_>) -> Option<String> {
    let (m, r) = (mapped.run.passage("read")?, read.run.passage("read")?);
    let (md, rd) = (mapped.run.passage("decode")?, read.run.passage("decode")?);
    let all = |read: &Passage, decode: &Passage| read.cpu() + decode.kernel;
    let (mapping, copying) = (all(&m, &md), all(&r, &rd));
    let cheaper = cheaper(mapping, copying);
    Some(format!(
        "mmap takes {} of CPU time a sample in read for {:.2} faults, pread {} to copy {} ({}). Who is done \
         with the bytes unmaps them or gives the buffer back: decode's kernel time is {} and {}. Taken together {cheaper}, \
         {} of the CPU time of a sample's whole way.",
        time(m.cpu()),
        m.major_faults + m.minor_faults,
        time(r.cpu()),
        kibibytes(r.bytes_out),
        rate(read.run, &r),
        time(md.kernel),
        time(rd.kernel),
        percent((mapping - copying).abs() / whole(read.run)?),
    ))
}

/// How fast `passage` copies; from the disk the same time has the request in it.
fn rate(run: Evidence<'_>, passage: &Passage) -> String {
    let cold = run
        .cache
        .as_ref()
        .is_some_and(|cache| cache.asked == "cold");
    match cold {
        true => "with what asking the disk takes".to_owned(),
        false => format!("{:.1} GB/s", passage.bytes_out / passage.cpu() / 1e9),
    }
}

/// Which takes less CPU time, and by how much.
fn cheaper(mapping: f64, copying: f64) -> String {
    match mapping / copying {
        factor if factor > 1.0 + EQUAL => format!(
            "mapping costs {} more CPU time a sample than copying",
            time(mapping - copying)
        ),
        factor if factor < 1.0 - EQUAL => format!(
            "mapping saves {} of CPU time a sample over copying",
            time(copying - mapping)
        ),
        _ => "mapping and copying cost the same CPU time within a tenth".to_owned(),
    }
}

/// The stage that writes most into memory that is new to it, where one does.
fn new_memory(way: &Typical<'_>) -> Option<String> {
    let stages = super::STAGES.iter().filter(|stage| **stage != "read");
    let passages = stages.filter_map(|stage| Some((*stage, way.run.passage(stage)?)));
    let most = passages.max_by(|a, b| a.1.minor_faults.total_cmp(&b.1.minor_faults));
    let (stage, passage) = most.filter(|(_, passage)| passage.minor_faults >= 1.0)?;
    Some(format!(
        "with {} {stage} is given new memory for what it writes, which takes {:.1} minor faults a sample, {} for each; \
         its kernel time is {}.",
        way.name,
        passage.minor_faults,
        kibibytes(passage.bytes_out / passage.minor_faults),
        time(passage.kernel)
    ))
}

/// CPU time of all stages for a sample.
fn whole(run: Evidence<'_>) -> Option<f64> {
    let stages = super::STAGES.iter().filter_map(|stage| run.passage(stage));
    Some(stages.reduce(|all, next| all.and(&next))?.cpu())
}

/// The stage that takes most of a sample's time, and what its bytes become.
fn most_time(way: &Typical<'_>) -> Option<String> {
    let stages = super::STAGES.iter();
    let passages = stages.filter_map(|stage| Some((*stage, way.run.passage(stage)?)));
    let passages: Vec<(&str, Passage)> = passages.collect();
    let (longest, most) = passages
        .iter()
        .max_by(|a, b| a.1.wall.total_cmp(&b.1.wall))?;
    let all: f64 = passages.iter().map(|(_, passage)| passage.wall).sum();
    let (first, last) = (passages.first()?, passages.last()?);
    Some(format!(
        "{longest} takes most of a sample's time in service ({} of {}, {}); on the way its {} become {}.",
        time(most.wall),
        time(all),
        percent(most.wall / all),
        kibibytes(first.1.bytes_in),
        kibibytes(last.1.bytes_out)
    ))
}

/// What stands beside a row: what the kernel did there that it does not with the other way of reading.
pub fn of_stage(stage: &str, way: &Typical<'_>, ways: &[Typical<'_>]) -> Option<String> {
    let this = way.run.passage(stage)?;
    let other = ways.iter().find(|other| other.name != way.name)?;
    let that = other.run.passage(stage)?;
    let major = this.major_faults - that.major_faults;
    let minor = this.minor_faults - that.minor_faults;
    let told = [(major, "major"), (minor, "minor")];
    let told = told.iter().filter(|(more, _)| *more >= 0.5);
    let told: Vec<String> = told
        .map(|(more, kind)| format!("{more:.1} {kind} faults"))
        .collect();
    (!told.is_empty()).then(|| format!("{} more than with {}", told.join(" and "), other.name))
}

/// As the table shows bytes.
fn kibibytes(bytes: f64) -> String {
    format!("{:.0} KiB", bytes / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;
    use crate::reproduce::fixture::{nanos, stage, thread};
    use crate::reproduce::outcome::Measurement;
    use crate::timeline::ThreadUsage;

    /// What a stage's thread did for each of 100 samples: user and kernel microseconds, major and minor faults.
    type Did = (f64, f64, f64, f64);

    fn run(read: Did, decode: Did) -> Report {
        let thread = |stage: &str, (user, kernel, major, minor): Did| {
            let usage = ThreadUsage {
                at: nanos(1e9),
                user: nanos(user * 1e5),
                system: nanos(kernel * 1e5),
                voluntary_switches: 100,
                major_faults: (major * 100.0) as u64,
                minor_faults: (minor * 100.0) as u64,
                ..ThreadUsage::default()
            };
            thread(stage, usage)
        };
        let mut decoded = stage("decode", 100.0, 1.0, 1.5, 95e3);
        decoded.bytes_out = 60_000_000;
        Report {
            samples: 100,
            steps: 10,
            window_ns: nanos(1e9),
            stages: vec![stage("read", 100.0, 1.0, 0.05, 95e3), decoded],
            workers: vec![thread("read", read), thread("decode", decode)],
            ..Report::default()
        }
    }

    /// A way of reading: `mmap` or `pread`.
    fn way<'a>(name: &'a str, run: &'a Report) -> Typical<'a> {
        Typical {
            name,
            run: Evidence::of(run),
            rate: Measurement::default(),
        }
    }

    fn said(mapped: &Report, read: &Report) -> String {
        explanation("Warm", &[way("mmap", mapped), way("pread", read)]).join("\n")
    }

    #[test]
    fn faults_and_copies_are_held_against_each_other() {
        let mapped = run((10.0, 40.0, 0.0, 2.0), (1300.0, 30.0, 0.0, 0.0));
        let read = run((5.0, 20.0, 0.0, 0.0), (1300.0, 10.0, 0.0, 0.0));
        let told = said(&mapped, &read);
        assert!(
            told.contains("with mmap the 93 KiB of a sample come into view in read, with 2.00 faults a sample, 46 KiB for each"),
            "{told}"
        );
        assert!(
            told.contains(
                "with pread the kernel touches the 93 KiB of a sample in read and copies them"
            ),
            "{told}"
        );
        assert!(
            told.contains("pread 25.0 us to copy 93 KiB (3.8 GB/s)"),
            "{told}"
        );
        assert!(
            told.contains("mapping costs 45.0 us more CPU time a sample than copying, 3.4 %"),
            "{told}"
        );
        assert!(
            told.contains("decode takes most of a sample's time"),
            "{told}"
        );
        assert!(!told.contains("new memory"), "{told}");
        // The other way about.
        let contrary = said(
            &run((5.0, 5.0, 0.0, 2.0), (1300.0, 10.0, 0.0, 0.0)),
            &run((5.0, 60.0, 0.0, 0.0), (1300.0, 10.0, 0.0, 0.0)),
        );
        assert!(
            contrary.contains("mapping saves 55.0 us of CPU time a sample over copying"),
            "{contrary}"
        );
    }

    #[test]
    fn a_row_tells_of_faults_that_the_other_way_does_not_have() {
        let (mapped, read) = (
            run((5.0, 5.0, 1.0, 1.5), (1300.0, 10.0, 0.0, 0.0)),
            run((5.0, 60.0, 0.0, 0.1), (1300.0, 10.0, 0.0, 0.0)),
        );
        let ways = [way("mmap", &mapped), way("pread", &read)];
        let told = |stage: &str, at: usize| of_stage(stage, &ways[at], &ways);
        assert_eq!(
            told("read", 0).as_deref(),
            Some("1.0 major faults and 1.4 minor faults more than with pread")
        );
        assert_eq!(told("read", 1), None);
        assert_eq!(told("decode", 0), None);
    }

    #[test]
    fn bytes_that_decode_touches_first_are_told() {
        let read = run((5.0, 20.0, 0.0, 0.0), (1300.0, 10.0, 0.0, 0.0));
        let cold = said(
            &run((1.0, 100.0, 1.0, 1.0), (1300.0, 30.0, 0.0, 0.0)),
            &read,
        );
        assert!(
            cold.contains("2.00 faults a sample, 1.00 of which wait for the disk"),
            "{cold}"
        );
        let fresh = said(&run((5.0, 5.0, 0.0, 2.0), (1300.0, 90.0, 0.0, 10.0)), &read);
        assert!(
            fresh.contains("with mmap decode is given new memory for what it writes, which takes 10.0 minor faults"),
            "{fresh}"
        );
        let growing = said(
            &read,
            &run((5.0, 60.0, 0.0, 24.0), (1300.0, 10.0, 0.0, 0.0)),
        );
        assert!(
            growing.contains("into buffers whose memory is new (24.00 faults"),
            "{growing}"
        );
        let lazy = said(
            &run((1.0, 1.0, 0.0, 0.0), (1300.0, 130.0, 1.0, 23.0)),
            &read,
        );
        assert!(
            lazy.contains("with mmap the bytes are touched first in decode"),
            "{lazy}"
        );
    }
}
