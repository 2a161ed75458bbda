//! What the loader's workers can run on: cores, affinity, quota, and who else is using them.
//!
//! May use: `checklist`, `proc_file`, `machine`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::checklist::{Row, Section};
use super::proc_file;
use crate::machine;

pub fn section() -> Section {
    Section {
        title: "Processor",
        rows: vec![cores(), quota(), load()],
    }
}

/// What the recorder reads beside its own clock.
pub fn measuring() -> Section {
    Section {
        title: "Measuring",
        rows: vec![run_delay(), timer()],
    }
}

fn cores() -> Row {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let allowed = proc_file::field("/proc/self/status", "Cpus_allowed_list:").unwrap_or_default();
    let (online, usable) = (count(&online), count(&allowed));
    let model = proc_file::field("/proc/cpuinfo", "model name").unwrap_or_default();
    let model = model.trim_start_matches([':', ' ', '\t']);
    let named = if model.is_empty() {
        String::new()
    } else {
        format!(" ({model})")
    };
    let row = match (online, usable) {
        (Some(online), Some(usable)) if usable < online => Row::warning(
            "cores",
            format!("{usable} of {online} usable: the process is bound to {allowed}{named}"),
            "start it without taskset, or give the container more CPUs, if it should use them all",
        ),
        (Some(online), _) => Row::ok("cores", format!("{online} usable{named}")),
        (None, _) => Row::ok("cores", format!("{} usable{named}", parallelism())),
    };
    row.fact("online_cores", online)
        .fact("usable_cores", usable)
}

fn parallelism() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn quota() -> Row {
    match machine::cpu_quota_cores() {
        None => Row::ok("CPU quota", "none"),
        Some(cores) => Row::warning(
            "CPU quota",
            format!("{cores:.2} cores' worth of time: beyond it all threads are stopped until the next period"),
            "raise the container's CPU limit, or use no more workers than it has cores",
        )
        .fact("quota_cores", cores),
    }
}

fn load() -> Row {
    let path = "/proc/loadavg";
    let text = fs::read_to_string(path).unwrap_or_default();
    let Some(load) = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse::<f64>().ok())
    else {
        return proc_file::unreadable("load", path);
    };
    let cores = parallelism();
    let finding =
        format!("{load:.2} threads running on {cores} cores, averaged over the last minute");
    let is_quiet = load <= 0.5 * cores as f64;
    let remedy = "wait until other programs are done: figures will vary";
    Row::judged("load", finding, is_quiet, remedy).fact("load_1min", load)
}

fn run_delay() -> Row {
    let path = "/proc/thread-self/schedstat";
    let remedy =
        "use a kernel built with CONFIG_SCHED_INFO; without it CPU contention cannot be measured";
    match fs::read_to_string(path).map(|text| run_delay_nanos(&text)) {
        Ok(Some(nanos)) => Row::ok(
            "run delay",
            format!("{path} is readable: CPU contention can be measured"),
        )
        .fact("run_delay_nanos", nanos),
        Ok(None) => Row::missing(
            "run delay",
            format!("{path} is not in the known format"),
            remedy,
        ),
        Err(error) => Row::missing("run delay", format!("{path}: {error}"), remedy),
    }
}

/// The second of `running waiting slices`, where the thread is being counted at all.
fn run_delay_nanos(text: &str) -> Option<u64> {
    let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().ok());
    let (running, waiting, slices) = (numbers.next()??, numbers.next()??, numbers.next()??);
    // A process that got here has run: all zero means that the kernel keeps no account.
    (running + waiting + slices > 0).then_some(waiting)
}

/// How late a sleeping thread wakes: what an emulated device and a timed wait are exposed to.
fn timer() -> Row {
    let asked = Duration::from_millis(1);
    let mut late: Vec<Duration> = (0..51)
        .map(|_| {
            let start = Instant::now();
            thread::sleep(asked);
            start.elapsed().saturating_sub(asked)
        })
        .collect();
    late.sort();
    let (median, worst) = (late[late.len() / 2], late[late.len() - 1]);
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let finding = format!(
        "a 1 ms sleep ends {} us late (median), {} us at worst (of {})",
        micros(median),
        micros(worst),
        late.len()
    );
    let is_prompt = median <= Duration::from_micros(500);
    let remedy =
        "a quieter machine, or one that is not virtual: waits will look longer than they are";
    Row::judged("timer", finding, is_prompt, remedy)
        .fact("median_late_us", micros(median))
        .fact("worst_late_us", micros(worst))
}

/// How many CPUs a list such as `0-3,8` names.
fn count(list: &str) -> Option<u64> {
    let mut total = 0;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        total += last.checked_sub(first)? + 1;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_cpu_lists() {
        assert_eq!(count("0-3,8\n"), Some(5));
        assert_eq!(count("0"), Some(1));
        assert_eq!(count(""), None);
        assert_eq!(count("3-1"), None);
    }

    #[test]
    fn reads_run_delay_only_where_it_is_kept() {
        assert_eq!(run_delay_nanos("12 34 5\n"), Some(34));
        assert_eq!(run_delay_nanos("0 0 0\n"), None);
        assert_eq!(run_delay_nanos("soup"), None);
    }
}
