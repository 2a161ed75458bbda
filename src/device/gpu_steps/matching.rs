//! Which call launched which work: both have a number in common, and come in any order.
//!
//! Invariants: memory is bounded; work is handed on once, with its call or, where that was lost, without.

use super::LaunchedWork;
use crate::cupti::{Activity, ApiCall, DeviceWork};
use stallscope_core::timeline::Nanos;
use std::collections::HashMap;

/// So many calls are remembered at least. Most of them have launched nothing that is recorded, and one may have
/// launched many kernels.
const CALLS_REMEMBERED: usize = 1 << 17;
/// Work that may wait for its call.
const MOST_WORKS: usize = 1 << 18;

/// Calls and work whose other half has not been seen.
#[derive(Default)]
pub(super) struct Matching {
    calls: HashMap<u32, ApiCall>,
    /// As many that came before them.
    older_calls: HashMap<u32, ApiCall>,
    works: HashMap<u32, Vec<DeviceWork>>,
    works_waiting: usize,
}

impl Matching {
    /// Takes one activity; what is matched is added to `launched`.
    pub(super) fn take(&mut self, activity: Activity, launched: &mut Vec<LaunchedWork>) {
        match activity {
            Activity::Call(call) => {
                let works = self.works.remove(&call.correlation).unwrap_or_default();
                self.works_waiting -= works.len();
                launched.extend(works.into_iter().map(|work| LaunchedWork {
                    work,
                    call: Some(call.clone()),
                }));
                if self.calls.len() >= CALLS_REMEMBERED {
                    self.older_calls = std::mem::take(&mut self.calls);
                }
                self.calls.insert(call.correlation, call);
            }
            Activity::Work(work) => {
                let number = work.correlation;
                let call = self.calls.get(&number);
                match call.or_else(|| self.older_calls.get(&number)).cloned() {
                    Some(call) => launched.push(LaunchedWork {
                        work,
                        call: Some(call),
                    }),
                    None => {
                        self.works.entry(number).or_default().push(work);
                        self.works_waiting += 1;
                    }
                }
            }
        }
    }

    /// Gives up waiting for the calls of work that `matches`.
    pub(super) fn give_up(&mut self, matches: impl Fn(&DeviceWork) -> bool) -> Vec<LaunchedWork> {
        let mut without = Vec::new();
        self.works.retain(|_, works| {
            let all = std::mem::take(works);
            let (given_up, waiting): (Vec<_>, Vec<_>) = all.into_iter().partition(&matches);
            without.extend(
                given_up
                    .into_iter()
                    .map(|work| LaunchedWork { work, call: None }),
            );
            *works = waiting;
            !works.is_empty()
        });
        self.works_waiting -= without.len();
        without.sort_by_key(|launched| (launched.work.interval.start, launched.work.correlation));
        without
    }

    /// The same for all work, where nothing more will come or too much of it waits.
    pub(super) fn give_up_all(&mut self, at_the_end: bool) -> Vec<LaunchedWork> {
        if at_the_end || self.works_waiting > MOST_WORKS {
            self.give_up(|_| true)
        } else {
            Vec::new()
        }
    }

    /// The same for work that `step`'s own followed on its stream, and which was therefore launched before that.
    pub(super) fn give_up_before(&mut self, step: &[LaunchedWork]) -> Vec<LaunchedWork> {
        if self.works.is_empty() {
            return Vec::new();
        }
        let mut followed: HashMap<u32, Nanos> = HashMap::new();
        for LaunchedWork { work, .. } in step {
            let last = followed.entry(work.stream).or_default();
            *last = work.interval.start.max(*last);
        }
        self.give_up(|work| {
            let last = followed.get(&work.stream);
            last.is_some_and(|last| work.interval.end <= *last)
        })
    }
}
