//! Records that found no room: idle time that may have led to them is unattributed, and no other cause gains by them.

use crate::planted::{Planted, Rig};
use crate::{MS, any_device, any_run};
use proptest::prelude::*;
use stallscope::analysis::Cause;
use stallscope::timeline::Nanos;

/// The same run, with room for its records and without.
fn check(run: &Planted, rig: &Rig, lazy: (usize, u64)) -> Result<u64, TestCaseError> {
    let full = run.run_on(rig).summary;
    let lossy = run.run_on(&Rig {
        lazy: Some(lazy),
        ..rig.clone()
    });
    let (total, spans, lossy) = (lossy.causes_total(), lossy.idle_spans, lossy.summary);
    prop_assert_eq!(lossy.steps, full.steps);
    prop_assert_eq!(lossy.samples, full.samples);
    prop_assert_eq!(lossy.window, full.window);
    // A thread that ran ahead of its device waited before the window, too; how long may be lost.
    match &rig.device {
        None => prop_assert_eq!(lossy.data_wait_total, full.data_wait_total),
        Some(_) => prop_assert!(lossy.data_wait_total >= full.data_wait_total),
    }
    prop_assert_eq!(total, lossy.device_idle());
    prop_assert_eq!(spans, lossy.device_idle());
    prop_assert!(lossy.device_busy <= full.device_busy);
    let window = full.window.length().0 as f64;
    for (cause, length) in &lossy.causes {
        let more = (*length - full.cause(*cause)).0 as f64 / window;
        prop_assert!(
            *cause == Cause::Unattributed || more < 0.01,
            "{cause} has {more} of the window more: {:?}, and with all records {:?}",
            lossy.causes,
            full.causes
        );
    }
    if lossy.dropped == 0 {
        prop_assert_eq!(
            lossy.cause(Cause::Unattributed),
            full.cause(Cause::Unattributed)
        );
    }
    Ok(lossy.dropped)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn what_dropped_records_hide_is_unattributed(
        mut run in any_run(), steps in 60u64..200, device in prop::option::of(any_device()), host in 0u64..MS,
        room in 4usize..9, every in 10u64..30,
    ) {
        run.steps = steps;
        let rig = Rig { device, host_code: Nanos(host), ..Rig::default() };
        check(&run, &rig, (1 << room, every))?;
    }
}
