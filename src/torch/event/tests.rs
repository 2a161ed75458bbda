//! Events and their words.

use super::*;
use proptest::prelude::*;
use stallscope_device::cupti::{Direction, HostMemory};

fn batch(numbers: [u64; 2]) -> Batch {
    Batch {
        pass: Pass::from_word(numbers[0]),
        number: numbers[1],
    }
}

fn span(numbers: [u64; 2]) -> Span {
    Span {
        start: numbers[0],
        end: numbers[1],
    }
}

fn used(numbers: [u64; 2]) -> Used {
    Used {
        cpu: numbers[0],
        delay: numbers[1],
    }
}

#[test]
fn a_long_text_is_sent_in_pieces() {
    let text = "é".repeat(3000);
    let (mut whole, mut last) = (Vec::new(), 0);
    for event in Event::texts(TextKind::Loader, 3, &text) {
        let mut words = Vec::new();
        event.write(&mut words);
        match Event::read(&words) {
            Some(Event::Text {
                subject: 3,
                more,
                bytes,
                ..
            }) => {
                whole.extend(bytes);
                last += u32::from(!more);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((whole, last), (text.into_bytes(), 1));
}

proptest! {
    /// What is written is read again, whatever it says.
    #[test]
    fn events_are_read_as_they_were_written(a in any::<[u64; 2]>(), b in any::<[u64; 2]>(), c in any::<[u64; 2]>(), few in any::<[u32; 2]>(), flags in any::<[bool; 2]>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..2000), times in proptest::collection::vec(any::<(u16, u32, u64)>(), 0..120)) {
        let parts: Vec<PartTime> = times.into_iter().map(|(part, count, length)| PartTime { part, count, length }).collect();
        let (worker, samples) = (few[0], few[1]);
        let direction = [Direction::HostToDevice, Direction::DeviceToHost, Direction::OnDevice, Direction::Other][few[0] as usize % 4];
        let host = [HostMemory::Pinned, HostMemory::Pageable, HostMemory::Unknown][few[1] as usize % 3];
        let (batch, pass) = (batch(a), Pass::from_word(a[1]));
        let events = [
            Event::Text { kind: TextKind::Problem, subject: worker, more: flags[0], bytes },
            Event::PassBegins { pass, grad: flags[0], at: b[0] },
            Event::PassEnds { pass, early: flags[0], at: b[0] },
            Event::Dispatch { batch, worker, samples, sampler: span(b), cpu: c[1], put: c[0] },
            Event::NextBegins { pass, at: b[0], used: used(c) },
            Event::NextEnds { batch, is_some: flags[0], grad: flags[1], samples, at: b[0], used: used(c) },
            Event::Receive { batch, worker, parked: flags[0], waited_from: c[0], work: span(b), bytes: c[1] },
            Event::Compute { phase: Compute::Optimizer, span: span(b) },
            Event::Main { work: Main::Iter, pass, subject: worker, span: span(b), used: used(c) },
            Event::Stage { part: worker as u16, span: span(b) },
            Event::WorkerBegins { pass, worker, span: span(b), used: used(c) },
            Event::WorkerEnds { pass, worker, at: b[0] },
            Event::Sample { batch, place: worker, index: c[0], samples, span: span(b), cpu: c[1], parts: parts.clone() },
            Event::Fetch { batch, worker, samples, wait: span(a), span: span(b), collate: span(c), used: used(a), parts, ended: flags[0] },
            Event::Transport { batch, worker, pickle: span(b), sent: c[0], bytes: c[1], shared: a[1], used: used(a) },
            Event::Pin { batch, receive: span(b), pin: span(c), used: used(a) },
            Event::Device(DeviceEvent::Work { kind: Kind::Kernel, about: samples.into(), stream: few[0], correlation: few[1], span: span(b), other: None }),
            Event::Device(DeviceEvent::Work { kind: Kind::Timed, about: 0, stream: few[0], correlation: few[1], span: span(c), other: None }),
            Event::Device(DeviceEvent::Work { kind: Kind::Set, about: a[0], stream: few[0], correlation: few[1], span: span(b), other: flags[0].then_some(few[1]) }),
            Event::Device(DeviceEvent::Work { kind: Kind::Copy(direction, host), about: a[0], stream: few[0], correlation: few[1], span: span(b), other: None }),
            Event::Device(DeviceEvent::Call { api: if flags[0] { Api::Runtime } else { Api::Driver }, function: few[0], thread: few[1], correlation: few[0], span: span(a) }),
            Event::Device(DeviceEvent::Told { at: a[0], read: b[0], lost: c[0] }),
        ];
        let mut words = Vec::new();
        for event in &events {
            event.write(&mut words);
        }
        let mut rest = &words[..];
        for event in &events {
            let (_, _, length) = parse_head(rest[0]);
            prop_assert_eq!(Event::read(&rest[..length]), Some(event.clone()));
            // One that was cut is none, or shorter.
            (0..length).for_each(|cut| drop(Event::read(&rest[..cut])));
            rest = &rest[length..];
        }
        prop_assert!(rest.is_empty());
    }
}
