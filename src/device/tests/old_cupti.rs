//! A library that is refused, and one of CUDA 12.4 after it. CUPTI takes one clock in the life of a process, so this
//! is a test by itself.

mod imitation;

use std::path::Path;

#[test]
fn the_next_library_is_tried_and_of_all_calls_the_launches_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let build = |name, define| imitation::cupti(folder.path(), name, &[define]);
    let Some(newer) = build("libcupti.so.13", "REFUSES") else {
        return;
    };
    let older = build("libcupti.so.12", "OLD").unwrap();
    let again = folder.path().join("libcupti.so");
    std::os::unix::fs::symlink(&newer, &again).unwrap();
    let absent = Path::new("/nowhere/libcupti.so.12");
    let (mut recording, refused) = imitation::record(&[absent, &newer, &again, &older]);
    let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused[0].contains("/nowhere/libcupti.so.12 cannot be opened"));
    assert!(refused[1].contains("libcupti.so.13: cuptiActivityEnable failed with 18"));
    assert!(refused[1].contains("CUPTI_ERROR_NOT_COMPATIBLE"));
    assert_eq!(recording.version(), 22);
    assert!(recording.records_all_driver_calls());
    assert_eq!(imitation::functions(&mut recording), [307, 307]);
    let count = recording.count();
    assert_eq!((count.read, count.other_calls, count.lost()), (2, 2, 0));
}
