//! How the tests of `cupti` read buffers that CUPTI has not filled.

use super::*;

impl Cupti {
    /// Reads a buffer that somebody else has filled, with the library's own walk over its records; `only_launches`: of
    /// a library that records all calls.
    pub(in crate::cupti) fn read(
        self,
        bytes: &[u8],
        only_launches: bool,
    ) -> (Vec<Activity>, RecordCount) {
        let mut memory = vec![0_u64; bytes.len().div_ceil(8)].into_boxed_slice();
        for (word, bytes) in memory.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        let mut buffer = Buffer {
            memory,
            valid: bytes.len(),
        };
        let mut recording = self.recording(Buffers {
            completed: unbounded().1,
            returned: unbounded().0,
            _taken: Arc::new(Taken),
        });
        if only_launches {
            recording.wanted = Some(self.functions.launches().into_iter().collect());
        }
        let mut activities = Vec::new();
        recording.read(&mut buffer, &mut |activity| activities.push(activity));
        (activities, recording.count)
    }
}
