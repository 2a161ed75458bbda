//! What CubeCL's own threads panicked with. They catch it, log it and tell the caller only that something failed,
//! so that the one message that says why (that memory ran out, say) would be lost.

use crate::pipeline::panic_message;
use std::panic::PanicHookInfo;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// How CubeCL 0.10 names the threads that serve a device: `DSU-0-0` its upper stage (fusion), `DSD-0-0` its server. A
/// thread that one of them starts has its name too.
const DEVICE_THREADS: [&str; 2] = ["DSU-", "DSD-"];

/// Whether a thread of that name serves a device.
pub fn serves_device(name: &str) -> bool {
    DEVICE_THREADS.iter().any(|start| name.starts_with(start))
}

/// The first panic of a device's thread that nobody has asked for yet.
pub struct FirstPanic(Mutex<Option<String>>);

/// That of this process.
pub static FIRST_PANIC: FirstPanic = FirstPanic(Mutex::new(None));

impl FirstPanic {
    /// Notes a panic if it is one of a device's threads; for a panic hook.
    pub fn note(&self, panic: &PanicHookInfo) {
        if thread::current().name().is_some_and(serves_device) {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| panic_message(panic.payload()));
        }
    }

    /// What it was, which is then forgotten.
    pub(super) fn take(&self) -> Option<String> {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.take()
    }

    /// `reason`, with what a device's thread panicked with before it.
    pub(super) fn explained(&self, reason: String) -> String {
        match self.take() {
            Some(told) => format!("{told} ({reason})"),
            None => reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{set_hook, take_hook};

    /// Not the one that other tests forget.
    static OWN: FirstPanic = FirstPanic(Mutex::new(None));

    #[test]
    fn what_a_device_thread_panicked_with_is_told_once() {
        let default = take_hook();
        set_hook(Box::new(|panic| OWN.note(panic)));
        for (name, said) in [
            ("worker", "no"),
            ("DSD-0-0", "out of memory"),
            ("DSD-0-0", "later"),
        ] {
            let thread = thread::Builder::new().name(name.to_owned());
            let thread = thread.spawn(move || panic!("{said}")).unwrap();
            thread.join().unwrap_err();
        }
        set_hook(default);
        assert_eq!(
            OWN.explained("CallError".to_owned()),
            "out of memory (CallError)"
        );
        assert_eq!(OWN.explained("CallError".to_owned()), "CallError");
    }
}
