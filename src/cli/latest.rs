//! `traces/latest`: a symbolic link to the folder of the last run. May use: nothing of this crate.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// The folder that runs write into unless they are told another.
pub(super) const TRACES: &str = "traces";
const LATEST: &str = "latest";

/// Points `traces/latest` to `run_dir`, where that lies in a folder `traces`, or in a run's folder there as that of a rank
/// does. A file system without links has none.
pub fn point_to(run_dir: &Path) {
    let above = run_dir.ancestors().skip(1).take(2);
    let mut above = above.filter(|folder| folder.file_name().is_some_and(|name| name == TRACES));
    let Some((traces, name)) =
        above.find_map(|traces| Some((traces, run_dir.strip_prefix(traces).ok()?)))
    else {
        return;
    };
    if name.starts_with(LATEST) {
        return;
    }
    // Made beside and renamed, so that a reader finds the old link or the new one.
    let unfinished = traces.join(format!(".{LATEST}-{}", std::process::id()));
    let linked = symlink(name, &unfinished);
    if linked
        .and_then(|()| fs::rename(&unfinished, traces.join(LATEST)))
        .is_err()
    {
        fs::remove_file(&unfinished).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_follows_the_last_run() {
        let place = tempfile::tempdir().unwrap();
        let traces = place.path().join(TRACES);
        for run in ["a", "b"] {
            let run_dir = traces.join(run);
            fs::create_dir_all(&run_dir).unwrap();
            point_to(&run_dir);
            assert_eq!(fs::read_link(traces.join(LATEST)).unwrap(), Path::new(run));
        }
        let rank = traces.join("c/rank-0");
        fs::create_dir_all(&rank).unwrap();
        point_to(&rank);
        let link = traces.join(LATEST);
        assert_eq!(
            fs::canonicalize(link).unwrap(),
            fs::canonicalize(rank).unwrap()
        );
        point_to(&traces.join("b"));
        point_to(&place.path().join("elsewhere"));
        point_to(&traces.join(LATEST));
        assert_eq!(fs::read_link(traces.join(LATEST)).unwrap(), Path::new("b"));
        assert_eq!(
            fs::read_dir(&traces).unwrap().count(),
            4,
            "nothing is left over"
        );
    }

    #[test]
    fn a_folder_of_that_name_stays() {
        let place = tempfile::tempdir().unwrap();
        let traces = place.path().join(TRACES);
        fs::create_dir_all(traces.join("latest/mine")).unwrap();
        point_to(&traces.join("a"));
        assert!(traces.join("latest/mine").is_dir());
        assert_eq!(fs::read_dir(&traces).unwrap().count(), 1);
    }
}
