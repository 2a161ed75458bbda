//! A library that can record launches alone, as from CUDA 12.5 on. CUPTI takes one clock in the life of a process,
//! so this is a test by itself.

mod imitation;

#[test]
fn only_launches_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = imitation::cupti(folder.path(), "libcupti.so.12", &[]) else {
        return;
    };
    let (mut recording, refused) = imitation::record(&[&library]);
    assert!(refused.is_empty() && !recording.records_all_driver_calls());
    assert_eq!(imitation::functions(&mut recording), [307, 307]);
    assert_eq!(recording.count().other_calls, 0);
}
