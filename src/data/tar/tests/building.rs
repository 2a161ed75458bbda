//! Tar files made by hand, for tests.

use crate::tar::headers::BLOCK;

/// A ustar header with a right checksum.
pub(in crate::tar) fn header(name: &str, kind: u8, size: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    match size {
        0..0o100_000_000_000 => {
            block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes())
        }
        _ => {
            block[124] = 0x80;
            block[128..136].copy_from_slice(&size.to_be_bytes());
        }
    }
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    sum_up(&mut block);
    block
}

/// Makes the checksum right again.
pub(in crate::tar) fn sum_up(block: &mut [u8; BLOCK]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// A member with its header and padding.
pub(in crate::tar) fn entry(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, kind, content.len() as u64).to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

pub(in crate::tar) fn file(name: &str, content: &[u8]) -> Vec<u8> {
    entry(name, b'0', content)
}

pub(in crate::tar) fn pax_record(key: &str, value: &str) -> Vec<u8> {
    let rest = format!(" {key}={value}\n");
    let digits = (1..)
        .find(|digits: &usize| (rest.len() + digits).to_string().len() == *digits)
        .unwrap();
    format!("{}{rest}", rest.len() + digits).into_bytes()
}

/// A pax header for the next member.
pub(in crate::tar) fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let text: Vec<u8> = records
        .iter()
        .flat_map(|(key, value)| pax_record(key, value))
        .collect();
    entry("PaxHeaders/x", b'x', &text)
}

/// The pieces with an end marker.
pub(in crate::tar) fn tar(pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = pieces.concat();
    bytes.resize(bytes.len() + 2 * BLOCK, 0);
    bytes
}

/// Three samples with labels 3, 1 and 4: images of 600, 1 and 512 bytes.
pub(in crate::tar) fn three_samples() -> Vec<u8> {
    tar(&[
        file("a.cls", b"3"),
        file("a.jpg", &[7; 600]),
        file("b.cls", b" 1\n"),
        file("b.png", &[8]),
        file("c.cls", b"4"),
        file("c.jpeg", &[9; 512]),
    ])
}
