use super::event::{Event, What, what};
use super::reader::{Done, Sink, text as read_text};
use super::trace::{Call, Trace};
use super::{AnalyzeError, AnalyzeOptions, ReadError, analyze};
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use serde_json::{Value, json};
use stallscope_core::report::{Report, TraceCategory};
use stallscope_core::timeline::{IntervalSet, Nanos};
use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const STEPS: u64 = 10;

fn slice(cat: &str, name: &str, thread: u64, (start, end): (f64, f64), args: Value) -> Value {
    json!({
        "ph": "X", "cat": cat, "name": name, "pid": 7, "tid": thread,
        "ts": 1e3 * start, "dur": 1e3 * (end - start), "args": args,
    })
}

/// A step every 100 ms: 40 of them waiting for data, then 20 of operators that launch two kernels, which run from 45 to
/// 90. With a copy that the first kernel waits for where `copies`.
fn events(copies: bool) -> Vec<Value> {
    let mut events = Vec::new();
    for step in 0..STEPS {
        let at = |from: f64, until: f64| (100.0 * step as f64 + from, 100.0 * step as f64 + until);
        let number = 10 * step + 1;
        let call = |number: u64| json!({"correlation": number});
        let work =
            |number: u64| json!({"correlation": number, "device": 0, "stream": 7, "bytes": 4096});
        events.push(slice(
            "user_annotation",
            &format!("ProfilerStep#{step}"),
            7,
            at(0.0, 99.0),
            json!({}),
        ));
        let next = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
        events.push(slice("user_annotation", next, 7, at(0.0, 40.0), json!({})));
        events.push(slice(
            "cpu_op",
            "aten::conv2d",
            7,
            at(40.0, 60.0),
            json!({"External id": 3}),
        ));
        events.push(slice(
            "cuda_runtime",
            "cudaLaunchKernel",
            7,
            at(42.0, 43.0),
            call(number),
        ));
        events.push(slice("kernel", "gemm", 7, at(45.0, 70.0), work(number)));
        events.push(slice(
            "cuda_runtime",
            "cudaLaunchKernel",
            7,
            at(55.0, 56.0),
            call(number + 1),
        ));
        events.push(slice("kernel", "relu", 7, at(70.0, 90.0), work(number + 1)));
        events.push(slice(
            "gpu_user_annotation",
            "ProfilerStep#0",
            7,
            at(45.0, 90.0),
            json!({}),
        ));
        if copies {
            events.push(slice(
                "cuda_runtime",
                "cudaMemcpyAsync",
                7,
                at(40.5, 41.0),
                call(number + 2),
            ));
            let name = "Memcpy HtoD (Pinned -> Device)";
            events.push(slice(
                "gpu_memcpy",
                name,
                7,
                at(41.0, 45.0),
                work(number + 2),
            ));
        }
    }
    events
}

fn document(events: &[Value]) -> String {
    let gpus = json!([{"id": 0, "name": "H200"}]);
    json!({"schemaVersion": 1, "deviceProperties": gpus, "traceEvents": events, "traceName": "x"})
        .to_string()
}

fn write(text: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.pt.trace.json");
    fs::write(&path, text).unwrap();
    (folder, path)
}

fn analyzed(text: &[u8]) -> Result<Report, AnalyzeError> {
    let (_folder, path) = write(text);
    analyze(&AnalyzeOptions {
        trace: path,
        ..AnalyzeOptions::default()
    })
}

fn cause(report: &Report, name: &str) -> f64 {
    let own = report.idle_causes.iter().find(|own| own.cause == name);
    own.map_or(0.0, |own| own.ns.millis())
}

fn close(is: f64, wanted: f64, what: &str) {
    assert!(
        (is - wanted).abs() < 0.01,
        "{what}: {is} instead of {wanted}"
    );
}

#[test]
fn waits_and_launches_get_their_time() {
    let report = analyzed(document(&events(false)).as_bytes()).unwrap();
    assert_eq!((report.name.as_str(), report.steps), ("run", STEPS));
    let device = report.device.as_ref().unwrap();
    assert_eq!(device.name, "GPU 0, H200");
    let steps = STEPS as f64;
    close(device.busy_ns.millis(), 45.0 * steps, "busy");
    // From the first batch being asked for to the end of the last kernel.
    close(report.window_ns.millis(), 100.0 * steps - 10.0, "window");
    close(
        cause(&report, "dataloader capacity"),
        40.0 * steps,
        "waiting for data",
    );
    close(
        cause(&report, "host: between steps"),
        10.0 * (steps - 1.0),
        "between",
    );
    // With what it took to begin.
    close(cause(&report, "host: launch"), 5.0 * steps, "launching");
    let verdict = report.verdict.as_ref().unwrap();
    assert_eq!(verdict.title, "loader-bound");
    assert!(
        verdict.line().contains("try `stallscope torch`"),
        "{}",
        verdict.line()
    );
    let timeline = device.timeline.as_ref().unwrap();
    assert_eq!((timeline.kernels, timeline.late), (2 * STEPS, 0));
    assert_eq!(timeline.doubt, None);
}

#[test]
fn a_step_that_waits_for_its_copy_says_so() {
    let report = analyzed(document(&events(true)).as_bytes()).unwrap();
    close(
        cause(&report, "host: copying to the device"),
        4.0 * STEPS as f64,
        "copying",
    );
    let copies = report.device.unwrap().timeline.unwrap().copies.unwrap();
    assert_eq!((copies.count, copies.pinned_bytes), (STEPS, 4096 * STEPS));
}

#[test]
fn categories_add_up_to_the_steps() {
    let report = analyzed(document(&events(true)).as_bytes()).unwrap();
    let trace = report.profiler_trace.unwrap();
    assert_eq!(trace.steps.len() as u64, STEPS);
    let mean = |category| trace.mean.by_category[&category].millis();
    close(mean(TraceCategory::Kernel), 45.0, "kernels");
    close(mean(TraceCategory::Memcpy), 4.0, "copies");
    close(mean(TraceCategory::Runtime), 0.5, "calls");
    close(mean(TraceCategory::DataLoader), 40.0, "data");
    close(mean(TraceCategory::Cpu), 0.5, "operators");
    for step in trace.steps {
        assert_eq!(step.by_category.values().copied().sum::<Nanos>(), step.ns);
    }
}

#[test]
fn without_a_gpu_operators_keep_the_device_busy() {
    let mut events = events(false);
    events.retain(|event| !["kernel", "cuda_runtime"].contains(&event["cat"].as_str().unwrap()));
    let report = analyzed(document(&events).as_bytes()).unwrap();
    let device = report.device.as_ref().unwrap();
    close(device.busy_ns.millis(), 20.0 * STEPS as f64, "busy");
    close(
        cause(&report, "dataloader capacity"),
        40.0 * STEPS as f64,
        "waiting",
    );
    assert_eq!(device.timeline, None);
}

#[test]
fn work_without_its_call_is_busy_time_all_the_same() {
    let mut events = events(false);
    events.retain(|event| event["cat"] != "cuda_runtime");
    // What the step before the first has launched.
    events.push(slice(
        "kernel",
        "tail",
        7,
        (5.0, 35.0),
        json!({"device": 0, "stream": 7}),
    ));
    let report = analyzed(document(&events).as_bytes()).unwrap();
    let steps = STEPS as f64;
    assert_eq!(report.steps, STEPS);
    let busy = report.device.as_ref().unwrap().busy_ns.millis();
    close(busy, 45.0 * steps + 30.0, "busy");
    close(
        cause(&report, "dataloader capacity"),
        40.0 * steps - 30.0,
        "waiting",
    );
    // Up to the first kernel of each step.
    close(cause(&report, "host: launch"), 5.0 * steps, "launching");
    let lacks = report.profiler_trace.unwrap().lacks;
    assert!(lacks[0].contains("no call that launched"), "{lacks:?}");
}

#[test]
fn a_trace_without_gpu_activity_says_so() {
    let mut events = events(false);
    events.retain(|event| event["cat"] != "kernel");
    let report = analyzed(document(&events).as_bytes()).unwrap();
    assert_eq!(
        report.device.unwrap().name,
        "your training as its host saw it"
    );
    let lacks = report.profiler_trace.unwrap().lacks;
    assert!(lacks[0].contains("ProfilerActivity.CUDA"), "{lacks:?}");
}

/// Only a batch that kernels are launched for is a step.
#[test]
fn a_second_loader_in_a_step_is_part_of_its_wait() {
    let mut events = events(false);
    let next = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
    for step in 0..STEPS {
        let at = |from: f64, until: f64| (100.0 * step as f64 + from, 100.0 * step as f64 + until);
        let number = json!({"correlation": 1000 + step, "device": 0, "stream": 9, "bytes": 7});
        events.push(slice(
            "cuda_runtime",
            "cudaMemcpyAsync",
            7,
            at(40.0, 40.1),
            number.clone(),
        ));
        events.push(slice(
            "gpu_memcpy",
            "Memcpy HtoD (Pinned -> Device)",
            9,
            at(40.1, 40.2),
            number,
        ));
        events.push(slice("user_annotation", next, 7, at(40.2, 41.0), json!({})));
    }
    let report = analyzed(document(&events).as_bytes()).unwrap();
    assert_eq!(report.steps, STEPS);
    close(
        cause(&report, "dataloader capacity"),
        41.0 * STEPS as f64,
        "waiting",
    );
}

/// At the end of an epoch the loop asks once more than there are batches.
#[test]
fn a_wait_that_no_step_follows_is_part_of_the_next() {
    let mut events = events(false);
    let next = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
    events.push(slice("user_annotation", next, 7, (392.0, 394.0), json!({})));
    let report = analyzed(document(&events).as_bytes()).unwrap();
    assert_eq!(report.steps, STEPS);
    close(
        cause(&report, "dataloader capacity"),
        40.0 * STEPS as f64 + 8.0,
        "waiting",
    );
}

#[test]
fn a_named_range_can_begin_steps() {
    let mut events = events(false);
    for event in &mut events {
        if event["name"].as_str().unwrap().starts_with("ProfilerStep") {
            event["name"] = json!("my step");
        }
    }
    events.retain(|event| !event["name"].as_str().unwrap().starts_with("enumerate"));
    let (folder, path) = write(document(&events).as_bytes());
    let mut options = AnalyzeOptions {
        trace: path,
        ..AnalyzeOptions::default()
    };
    let error = analyze(&options).unwrap_err().to_string();
    assert!(error.contains("it has \"my step\" (10 times)"), "{error}");
    options.step = Some("my stop".to_owned());
    let error = analyze(&options).unwrap_err().to_string();
    assert!(
        error.contains("called \"my stop\"; it has \"my step\""),
        "{error}"
    );
    options.step = Some("my step".to_owned());
    options.out = Some(folder.path().join("out"));
    options.traced_steps = 200;
    let report = analyze(&options).unwrap();
    assert_eq!(report.steps, STEPS);
    let trace = report.trace.unwrap();
    assert!(trace.events > 50 && trace.error.is_none(), "{trace:?}");
    serde_json::from_slice::<Value>(&fs::read(trace.path).unwrap()).unwrap();
}

#[test]
fn other_gpus_are_named_and_can_be_asked_for() {
    let mut events = events(false);
    events.push(slice(
        "kernel",
        "gemm",
        7,
        (50.0, 51.0),
        json!({"correlation": 1, "device": 3}),
    ));
    let (_folder, path) = write(document(&events).as_bytes());
    let of = |device| {
        analyze(&AnalyzeOptions {
            trace: path.clone(),
            device,
            ..AnalyzeOptions::default()
        })
    };
    let trace = of(None).unwrap().profiler_trace.unwrap();
    assert_eq!((trace.device, trace.other_devices), (Some(0), vec![3]));
    let trace = of(Some(3)).unwrap().profiler_trace.unwrap();
    assert_eq!((trace.kernels, trace.kernel_ns), (1, Nanos::from_millis(1)));
    let error = of(Some(5)).unwrap_err().to_string();
    assert!(error.contains("GPU 0, GPU 3"), "{error}");
}

#[test]
fn order_and_packing_do_not_matter() {
    let wanted = analyzed(document(&events(true)).as_bytes()).unwrap();
    let mut shuffled = events(true);
    shuffled.reverse();
    shuffled.rotate_left(17);
    let figures = |report: &Report| {
        let steps = report.profiler_trace.as_ref().unwrap().steps.clone();
        (report.idle_causes.clone(), report.window_ns, steps)
    };
    let got = analyzed(document(&shuffled).as_bytes()).unwrap();
    assert_eq!(figures(&got), figures(&wanted));
    let pretty = serde_json::to_string_pretty(&json!({"traceEvents": shuffled})).unwrap();
    assert_eq!(
        figures(&analyzed(pretty.as_bytes()).unwrap()),
        figures(&wanted)
    );
    let array = json!(shuffled).to_string();
    assert_eq!(
        figures(&analyzed(array.as_bytes()).unwrap()),
        figures(&wanted)
    );
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(array.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    assert_eq!(figures(&analyzed(&packed).unwrap()), figures(&wanted));
    // Without its end it gives what it has.
    let cut = analyzed(&packed[..packed.len() * 9 / 10]).unwrap();
    assert!(cut.profiler_trace.unwrap().losses.cut.is_some());
}

#[test]
fn what_cannot_be_used_is_counted() {
    let mut all: Vec<String> = events(false).iter().map(Value::to_string).collect();
    all.insert(
        3,
        r#"{"ph": "X", "cat": "kernel", "name": "a", "ts": 5, "dur": -3}"#.to_owned(),
    );
    all.insert(
        5,
        r#"{"ph": "X", "cat": "kernel", "name": "b", "dur": 3}"#.to_owned(),
    );
    all.insert(
        7,
        r#"{"ph": "X", "cat": "kernel", "name": "c", "ts": 1e300, "dur": 3}"#.to_owned(),
    );
    all.insert(
        9,
        r#"{"ph": "X", "cat": "kernel", "name": "broken}", "ts": }"#.to_owned(),
    );
    all.insert(11, "17".to_owned());
    all.insert(13, all[4].clone());
    // A name with a quote in it, and what does not belong there.
    all.insert(
        17,
        r#"{"ph": "X", "cat": "cpu_op", "name": "5" disk", "ts": 3}"#.to_owned(),
    );
    all.insert(19, "{}}".to_owned());
    // Kineto has written a bandwidth like that.
    all.insert(18, r#"{"ph": "X", "cat": "cpu_op", "name": "d", "tid": 7, "ts": 41000, "dur": 1, "args": {"GB/s": inf}}"#.to_owned());
    let text = format!("{{\"traceEvents\": [{}]}}", all.join(","));
    let losses = analyzed(text.as_bytes())
        .unwrap()
        .profiler_trace
        .unwrap()
        .losses;
    // Two, the name, an empty object and the brace behind it.
    assert_eq!((losses.malformed, losses.without_time), (5, 2));
    assert_eq!(
        (losses.backwards, losses.of_device, losses.cut),
        (1, 3, None)
    );
    let twice = events(false)
        .iter()
        .chain(&events(false))
        .map(Value::to_string)
        .collect::<Vec<_>>();
    let text = format!("[{}]", twice.join(","));
    let report = analyzed(text.as_bytes()).unwrap();
    assert_eq!(report.steps, STEPS);
    assert_eq!(report.profiler_trace.unwrap().losses.twice, 4 * STEPS);
}

#[test]
fn what_is_no_trace_is_refused() {
    for (text, says) in [
        ("", "nothing at byte 0"),
        ("hello", "no JSON object or array at byte 0"),
        ("{\"a\": 1}", "no traceEvents"),
        ("{\"a\": [1, 2", "no value of \"a\""),
        ("[1, 2, 3]", "no steps"),
        ("{\"traceEvents\": []}", "no steps"),
        ("{\"traceEvents\": 3}", "no traceEvents"),
    ] {
        let error = analyzed(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    let missing = analyze(&AnalyzeOptions {
        trace: "/nowhere/trace.json".into(),
        ..AnalyzeOptions::default()
    });
    assert!(matches!(
        missing,
        Err(AnalyzeError::Read(ReadError::Open { .. }))
    ));
}

/// Counts what comes.
#[derive(Default)]
struct Counting {
    known: u64,
}

impl Sink for Counting {
    fn wants(&self, _: &str) -> bool {
        true
    }

    fn header(&mut self, _: &str, _: Value) {}

    fn event(&mut self, event: &Event<'_>) {
        self.known += u64::from(what(event.cat.text(), event.name.text()) != What::Else);
    }
}

fn count(mut text: &[u8]) -> Option<(u64, Done)> {
    let mut counting = Counting::default();
    let done = read_text(&mut text, &mut counting).ok()?;
    Some((counting.known, done))
}

/// Cut anywhere, a trace gives the events that are whole, and says that it is cut.
#[test]
fn a_trace_that_is_cut_anywhere_gives_what_is_whole() {
    let text = document(&events(false)[..12]);
    let begins = text.find("[{\"args\"").unwrap();
    let ends = text.rfind("],\"traceName\"").unwrap();
    let mut before = 0;
    for length in begins + 1..text.len() {
        let (known, done) = count(&text.as_bytes()[..length]).unwrap();
        assert_eq!((done.malformed, done.cut.is_some()), (0, true), "{length}");
        assert!(known >= before, "{length}");
        before = known;
        if length > ends {
            assert_eq!(done.events, 12);
        }
    }
    assert_eq!(count(text.as_bytes()).unwrap().1.cut, None);
}

proptest! {
    /// Whatever a file holds, reading it ends, and in no panic.
    #[test]
    fn damaged_traces_are_read_as_far_as_they_go(
        at in 0_usize..4_000,
        bytes in proptest::collection::vec(any::<u8>(), 1..40),
        cuts in any::<bool>(),
    ) {
        let mut text = document(&events(true)[..20]).into_bytes();
        let at = at.min(text.len() - 1);
        let until = (at + bytes.len()).min(text.len());
        text.splice(at..until, bytes);
        if cuts {
            text.truncate(at + 40);
        }
        if let Some((known, done)) = count(&text) {
            prop_assert!(known <= done.events);
        }
        // Nothing is wanted of it but an end.
        drop(analyzed(&text));
    }
}

/// From the first of the works that steps 5 to 9 launched to the end of their last: how long in all, and how long none of them was
/// in progress.
fn idle_of_steps(path: &Path) -> (Nanos, Nanos) {
    let mut file = fs::File::open(path).unwrap();
    let trace = Trace::read(&mut file, "trace", None).unwrap();
    let zero = trace.zero();
    let mut numbers = HashSet::new();
    for step in &trace.steps {
        let name = &*trace.texts[step.name as usize];
        if (5..=9).any(|number| name == format!("ProfilerStep#{number}")) {
            let own = |call: &&Call| {
                step.span.start <= call.span.start && call.span.start < step.span.end
            };
            numbers.extend(trace.calls.iter().filter(own).map(|call| call.correlation));
        }
    }
    let mut set = IntervalSet::new();
    for work in trace
        .works
        .iter()
        .filter(|work| numbers.contains(&work.correlation))
    {
        set.insert(work.span.since(zero));
    }
    let (first, last) = (set.parts().first().unwrap(), set.parts().last().unwrap());
    let window = last.end - first.start;
    (window, window - set.length())
}

/// Two traces of ResNet-50 with what PyTorch's TensorBoard plugin, HTA and Perfetto's engine say of them.
#[test]
fn real_traces_give_their_known_answers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/kineto");
    let Ok(entries) = fs::read_dir(&folder) else {
        eprintln!("skipped: {} is not there", folder.display());
        return;
    };
    // Microseconds: Kernel, Memcpy, Memset, Runtime, DataLoader, CPU Exec, Other, step; kernels and their time; the GPU's idle
    // time by HTA, and of how much.
    let known = [
        (
            "num_workers_0",
            [98589, 1915, 89, 2908, 59262, 13674, 1156, 177_592],
            8772,
            Some(591_532),
            (327_463, 830_494),
        ),
        (
            "num_workers_4",
            [99145, 3160, 98, 10564, 1186, 22665, 4251, 141_068],
            8868,
            None,
            (164_699, 677_173),
        ),
    ];
    let paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    for (name, times, kernels, kernel_time, hta) in known {
        let path = paths
            .iter()
            .find(|path| path.to_string_lossy().contains(name))
            .unwrap();
        let report = analyze(&AnalyzeOptions {
            trace: path.clone(),
            ..AnalyzeOptions::default()
        });
        let trace = report.unwrap().profiler_trace.unwrap();
        assert_eq!(trace.kernels, kernels, "{name}");
        if let Some(time) = kernel_time {
            assert_eq!(trace.kernel_ns.0 / 1000, time, "{name}");
        }
        let mean = |category| trace.mean.by_category[&category].0 as f64 / 1e3;
        let got = [
            mean(TraceCategory::Kernel),
            mean(TraceCategory::Memcpy),
            mean(TraceCategory::Memset),
            mean(TraceCategory::Runtime),
            mean(TraceCategory::DataLoader),
            mean(TraceCategory::Cpu),
            mean(TraceCategory::Other),
            trace.mean.ns.0 as f64 / 1e3,
        ];
        for (place, (got, wanted)) in got.into_iter().zip(times).enumerate() {
            let wanted = f64::from(wanted);
            // They are rounded to whole microseconds.
            let bound = (0.001 * wanted).max(0.51);
            assert!(
                (got - wanted).abs() <= bound,
                "{name}, {place}: {got} instead of {wanted}"
            );
        }
        let losses = &trace.losses;
        let lost = losses.malformed + losses.without_time + losses.backwards;
        assert_eq!(lost, 0, "{name}");
        let (window, idle) = idle_of_steps(path);
        for (got, wanted) in [(window, hta.1), (idle, hta.0)] {
            let (got, wanted) = (got.0 as f64 / 1e3, f64::from(wanted));
            let off = (got - wanted).abs() / wanted;
            assert!(off <= 0.005, "{name}: {got} instead of HTA's {wanted}");
        }
    }
}
