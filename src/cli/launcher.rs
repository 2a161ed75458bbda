//! Which of several processes this is that a launcher has started: torchrun, mpirun or Slurm's srun. May use: `config`.

use crate::config::{ConfigError, Settings};
use std::fs::read_to_string;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The variables of a launcher that say which process this is, and how many there are. Those of Slurm come last: what is
/// started within one of its jobs has them, too.
const VARIABLES: [(&str, &str); 4] = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    // A batch script has a SLURM_PROCID, too, but is no task of a step.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

/// The keys that name them.
const INDEX: &str = "rank.index";
const WORLD_SIZE: &str = "rank.world_size";

type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The rank and the number of processes that the first launcher tells of which has started more than one.
fn launched(variable: Variable) -> Option<(usize, usize)> {
    let mut told = VARIABLES.iter().filter_map(|(rank, of)| {
        let number = |name| variable(name)?.parse::<usize>().ok();
        Some((number(rank)?, number(of)?))
    });
    told.find(|(rank, of)| *of > 1 && rank < of)
}

/// The settings of the experiment `config` with `sets`, and what the launcher says of the rank where they do not.
///
/// # Errors
/// As of [`Settings::load`].
pub(super) fn load_with_rank(config: &Path, sets: &[String]) -> Result<Settings, ConfigError> {
    let settings = Settings::load(config, sets)?;
    let Some((rank, of)) = launched(&variable) else {
        return Ok(settings);
    };
    let typed = settings.typed_keys();
    let value = |key: &str| typed.iter().find(|typed| typed.key == key);
    if value(WORLD_SIZE).is_some_and(|typed| typed.value == "1") {
        // A run by itself, whoever started it.
        return Ok(settings);
    }
    let told = [(INDEX, rank), (WORLD_SIZE, of)];
    let told = told.into_iter().filter(|(key, _)| value(key).is_none());
    let told = told.map(|(key, value)| format!("{key}={value}"));
    Settings::load(
        config,
        &sets.iter().cloned().chain(told).collect::<Vec<_>>(),
    )
}

/// What tells apart one start of a launcher from others, and is the same for all of its processes: what Slurm (`JOB.STEP`)
/// or torchrun calls it; `None` where only this machine knows.
pub(super) fn run_name() -> Option<String> {
    named(&variable)
}

fn named(variable: Variable) -> Option<String> {
    let slurm = || {
        variable("SLURM_STEP_NUM_TASKS")?;
        Some(format!(
            "{}.{}",
            variable("SLURM_JOB_ID")?,
            variable("SLURM_STEP_ID")?
        ))
    };
    // What a user calls it: torchrun itself takes "none", or draws a UUID on one machine.
    let torchrun =
        || variable("TORCHELASTIC_RUN_ID").filter(|name| name != "none" && !is_uuid(name));
    let name = torchrun().or_else(slurm)?;
    let allowed = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' => letter,
        _ => '-',
    };
    Some(name.chars().map(allowed).collect())
}

fn is_uuid(name: &str) -> bool {
    let groups: Vec<&str> = name.split('-').collect();
    let is_hex = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    lengths == [8, 4, 4, 4, 12] && groups.iter().all(is_hex)
}

/// When the process that started this one began, in whole seconds: whoever asks gets the same answer.
pub(super) fn begun() -> Option<SystemTime> {
    let parent = read_to_string(format!("/proc/{}/stat", nix::unistd::getppid())).ok()?;
    // Behind the name, which may have spaces: the state is the third field, the start the 22nd.
    let mut fields = parent.rsplit_once(')')?.1.split_whitespace();
    let ticks: u64 = fields.nth(22 - 3)?.parse().ok()?;
    let each = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    let system = read_to_string("/proc/stat").ok()?;
    let booted = system
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?;
    let seconds = booted.trim().parse::<u64>().ok()? + ticks / u64::try_from(each).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn among<'a>(variables: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| {
            let known = variables.iter().find(|(variable, _)| *variable == name);
            known.map(|(_, value)| (*value).to_owned())
        }
    }

    fn told(variables: &[(&str, &str)]) -> Option<(usize, usize)> {
        launched(&among(variables))
    }

    #[test]
    fn launchers_are_known_by_their_variables() {
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[("RANK", "3"), ("WORLD_SIZE", "4")]), Some((3, 4)));
        assert_eq!(told(&[("RANK", "0"), ("WORLD_SIZE", "1")]), None);
        let step = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert_eq!(told(&step), Some((1, 2)));
        let script = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")];
        assert_eq!(told(&script), None, "a batch script is no rank");
        let open_mpi = [("OMPI_COMM_WORLD_RANK", "5"), ("OMPI_COMM_WORLD_SIZE", "6")];
        assert_eq!(told(&open_mpi), Some((5, 6)));
        let within = [&open_mpi[..], &step[..]].concat();
        assert_eq!(told(&within), Some((5, 6)), "mpirun within a step of Slurm");
        assert_eq!(
            told(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]),
            None,
            "no such rank"
        );
    }

    #[test]
    fn a_start_has_the_name_that_its_launcher_gives_it() {
        let name = |variables: &[(&str, &str)]| named(&among(variables));
        let step = [
            ("SLURM_JOB_ID", "17"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NUM_TASKS", "4"),
        ];
        assert_eq!(name(&step).as_deref(), Some("17.0"));
        assert_eq!(name(&step[..2]), None);
        for own in ["none", "c17aa1b8-ba7f-4232-afd6-7e5a78abca4a"] {
            assert_eq!(name(&[("TORCHELASTIC_RUN_ID", own)]), None);
        }
        let torchrun = [("TORCHELASTIC_RUN_ID", "../a b")];
        assert_eq!(name(&torchrun).as_deref(), Some("..-a-b"));
    }

    #[test]
    fn who_started_this_process_began_before_now() {
        let begun = begun().unwrap();
        assert_eq!(super::begun(), Some(begun));
        assert!(begun.elapsed().is_ok() && begun > SystemTime::UNIX_EPOCH);
    }
}
