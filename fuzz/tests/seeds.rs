//! The seeds are what their names say: all that are not called bad are accepted.

use std::fs;
use std::process::Command;

use stallscope_fuzz::checks;

type Check = fn(&[u8]) -> bool;

#[test]
fn seeds_are_accepted_or_bad() {
    let folder = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds.py");
    let made = Command::new("python3")
        .arg(script)
        .arg(folder.path())
        .status();
    assert!(made.unwrap().success());
    let targets: [(&str, Check); 9] = [
        ("kineto", checks::kineto),
        ("idx", checks::idx),
        ("cifar", checks::cifar),
        ("tar", checks::tar),
        ("tfrecord", checks::tfrecord),
        ("mds", checks::mds),
        ("parquet", checks::parquet),
        ("shard_raw", checks::shard),
        ("shard_sealed", checks::shard_sealed),
    ];
    for (target, check) in targets {
        let seeds = fs::read_dir(folder.path().join(target)).unwrap();
        for seed in seeds.map(Result::unwrap) {
            let name = seed.file_name().into_string().unwrap();
            let accepted = check(&fs::read(seed.path()).unwrap());
            assert_eq!(accepted, !name.contains("bad"), "{target}/{name}");
        }
    }
}
