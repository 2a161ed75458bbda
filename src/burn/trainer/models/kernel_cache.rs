//! Where CubeCL keeps the kernels that it has compiled and what it has tuned.
//!
//! By itself it keeps no compiled kernel, and what it tuned below the folder that the program is started in.
//! Invariants: a file of the user's decides alone, as CubeCL reads it; nothing is set once CubeCL has read its settings.

use burn_cubecl::cubecl::config::cache::CacheConfig;
use burn_cubecl::cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file from which CubeCL would take its settings in `folder`: it, or the first folder above that has one.
fn users_file(folder: &Path) -> Option<PathBuf> {
    let own = CubeClRuntimeConfig::file_names()
        .iter()
        .map(|name| (*name, None));
    let shared = CubeClRuntimeConfig::section_file_names();
    let shared = shared.iter().map(|(name, section)| (*name, Some(*section)));
    let names: Vec<(&str, Option<&str>)> = own.chain(shared).collect();
    let decides = |path: &PathBuf, section: Option<&str>| {
        let text = fs::read_to_string(path).ok();
        text.is_some_and(|text| {
            section.is_none_or(|section| {
                let tables = [format!("[{section}]"), format!("[{section}.")];
                let mut lines = text.lines().map(str::trim_start);
                lines.any(|line| tables.iter().any(|table| line.starts_with(table)))
            })
        })
    };
    folder.ancestors().find_map(|folder| {
        names.iter().find_map(|(name, section)| {
            let path = folder.join(name);
            decides(&path, *section).then_some(path)
        })
    })
}

/// That files can be made in `folder`.
fn writable(folder: &Path) -> Result<(), String> {
    let probe = folder.join(format!("probe.{}.tmp", std::process::id()));
    let written = fs::create_dir_all(folder)
        .and_then(|()| fs::write(&probe, ""))
        .and_then(|()| fs::remove_file(&probe));
    written.map_err(|error| {
        format!(
            "cannot write to {}: {error}; set XDG_CACHE_HOME to a writable folder, or set the cache folder in a \
             cubecl.toml",
            folder.display()
        )
    })
}

/// Has CubeCL keep its kernels in `folder`, unless a file of the user's says otherwise.
pub(crate) fn keep(folder: &Path) -> Result<Option<PathBuf>, String> {
    let here = std::env::current_dir().unwrap_or_default();
    if users_file(&here).is_some() {
        return Ok(None);
    }
    writable(folder)?;
    let mut config = CubeClRuntimeConfig::default().override_from_env();
    config.compilation.cache = Some(CacheConfig::File(folder.to_owned()));
    config.autotune.cache = CacheConfig::File(folder.to_owned());
    let mut settings = CubeClRuntimeConfig::storage().lock();
    if settings.is_some() {
        return Ok(None);
    }
    *settings = Some(Arc::new(config));
    Ok(Some(folder.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("stallscope-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_file_of_the_users_decides() {
        let above = folder("cubecl-above");
        let inside = above.join("a/b");
        fs::create_dir_all(&inside).unwrap();
        assert_eq!(users_file(&inside), None);
        fs::write(above.join("burn.toml"), "[fusion]\n").unwrap();
        assert_eq!(users_file(&inside), None);
        fs::write(above.join("burn.toml"), "[cubecl.autotune]\n").unwrap();
        assert_eq!(users_file(&inside), Some(above.join("burn.toml")));
        fs::write(above.join("a/cubecl.toml"), "").unwrap();
        assert_eq!(users_file(&inside), Some(above.join("a/cubecl.toml")));
        fs::remove_dir_all(&above).unwrap();
    }

    #[test]
    fn kernels_are_kept_in_the_folder_and_set_once() {
        let folder = folder("kernels");
        let file = folder.join("file");
        fs::write(&file, "").unwrap();
        let refused = keep(&file.join("below")).unwrap_err();
        assert!(refused.contains("XDG_CACHE_HOME"), "{refused}");
        let kernels = folder.join("kernels/sm_90");
        assert_eq!(keep(&kernels).unwrap(), Some(kernels.clone()));
        let config = CubeClRuntimeConfig::get();
        let compiled = config.compilation.cache.as_ref().unwrap().root();
        assert_eq!(
            [compiled, config.autotune.cache.root()],
            [kernels.clone(), kernels.clone()]
        );
        assert_eq!(keep(&folder).unwrap(), None, "CubeCL has read its settings");
        assert_eq!(fs::read_dir(&kernels).unwrap().count(), 0);
        fs::remove_dir_all(&folder).unwrap();
    }
}
