//! The native half of the Python package: the command line, and the recording of what hooks see.
//!
//! Times are taken here, and events written, so that a part of a sample costs a fraction of a microsecond.

mod collecting;
mod desk;
mod device;
mod dlpack;
mod drain;
mod events;
mod fetch;
mod loader;
mod process;
mod program;
mod timed;
mod vectorcall;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::collecting::collect;
    #[pymodule_export]
    use crate::device::{device_finish, device_records, device_start, device_step};
    #[pymodule_export]
    use crate::drain::drain;
    #[pymodule_export]
    use crate::events::{
        compute, create_rings, dispatch, finish, forked, is_active, main_work, next_begins,
        next_ends, now, open_rings, pass_begins, pass_ends, pin, receive, rings_fd, start, stop,
        text, thread_cpu, transport, used, worker_begins, worker_ends,
    };
    #[pymodule_export]
    use crate::fetch::{Collate, Items, Stream, begin_batch, end_batch};
    #[pymodule_export]
    use crate::loader::Engine;
    #[pymodule_export]
    use crate::program::{main, torch_arguments};
    #[pymodule_export]
    use crate::timed::{Timed, collects, enter_stage, leave_stage, part, part_name, timed};
}
