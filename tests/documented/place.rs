//! A folder that the documented commands are run in, as in a checkout.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A command that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(300);
/// Steps of a small run. A window is to be long enough for whatever is said of runs that are.
const STEPS: u64 = 20;
/// Images of a small data set: more than the 512 of which each is looked for in the page cache.
const IMAGES: u64 = 520;

pub struct Place {
    folder: TempDir,
    small: bool,
}

impl Place {
    /// Where runs and data are `small`, or as documented.
    pub fn new(small: bool) -> Place {
        let folder = tempfile::tempdir().unwrap();
        for name in ["configs", "pipelines"] {
            let to = folder.path().join(name);
            fs::create_dir(&to).unwrap();
            for file in fs::read_dir(super::root().join(name)).unwrap() {
                let file = file.unwrap();
                if file.path().is_dir() {
                    continue;
                }
                let text = fs::read_to_string(file.path()).unwrap();
                let text = if small { smaller(&text) } else { text };
                fs::write(to.join(file.file_name()), text).unwrap();
            }
        }
        Place { folder, small }
    }

    /// What `command` prints, or says where it fails.
    pub fn run(&self, command: &str) -> Vec<String> {
        let arguments = ["cargo run --release -- ", "stallscope "];
        let arguments = arguments.iter().find_map(|name| command.strip_prefix(name));
        let arguments = arguments.unwrap_or_else(|| panic!("`{command}` is not of this program"));
        let mut arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        // Another attempt is to find nothing of the one before.
        if let Some(out) = arguments.iter().position(|argument| argument == "--out") {
            fs::remove_dir_all(self.folder.path().join(&arguments[out + 1])).ok();
        }
        let steps = arguments.iter().position(|argument| argument == "--steps");
        if let Some(steps) = steps.filter(|_| self.small) {
            arguments[steps + 1] = STEPS.to_string();
        }
        let (succeeded, out, error) = output(self.folder.path(), &arguments);
        let text = if succeeded { &out } else { &error };
        assert!(
            succeeded || error.starts_with("error: "),
            "{command}: {error}"
        );
        text.trim_end().lines().map(str::to_owned).collect()
    }
}

/// A configuration with fewer steps and images.
fn smaller(config: &str) -> String {
    let smaller = config.lines().map(|line| {
        let set = |key: &str, most: u64| {
            let value = line.strip_prefix(key)?.split_whitespace().next()?;
            let value: u64 = value.parse().ok()?;
            Some(format!("{key}{}\n", value.min(most)))
        };
        set("steps = ", STEPS)
            .or_else(|| set("images = ", IMAGES))
            .unwrap_or_else(|| format!("{line}\n"))
    });
    smaller.collect()
}

/// Whether the program succeeds with `arguments` in `folder`, and its two outputs.
fn output(folder: &Path, arguments: &[String]) -> (bool, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stallscope"))
        .args(arguments)
        .current_dir(folder)
        .env("COLUMNS", "160")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = reading(child.stdout.take().unwrap());
    let error = reading(child.stderr.take().unwrap());
    let deadline = Instant::now() + DEADLINE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().ok();
            child.wait().ok();
            panic!("{arguments:?} takes more than {DEADLINE:?}");
        }
        thread::sleep(Duration::from_millis(20));
    };
    (status.success(), out.join().unwrap(), error.join().unwrap())
}

fn reading(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
