//! What a module of PTX holds: its version, its kernels, their parameters, and through which of those a kernel reads
//! and writes memory.

use std::collections::HashMap;

/// A module.
#[derive(Debug, Default)]
pub struct Module {
    /// PTX version, major and minor.
    pub version: (u32, u32),
    /// As in `sm_90a`: 90.
    pub target: u32,
    pub kernels: HashMap<String, Kernel>,
}

/// A kernel.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    pub parameters: Vec<Parameter>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameter {
    pub bytes: usize,
    /// Holds a tensor map, which holds an address.
    pub is_tensor_map: bool,
    /// What the kernel does with memory that the parameter points to, as far as its text tells.
    pub reads: bool,
    pub writes: bool,
}

/// Reads a module; `None` where the text is no PTX.
pub fn parse(text: &str) -> Option<Module> {
    let mut module = Module::default();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(version) = line.strip_prefix(".version ") {
            let (major, minor) = version.trim().split_once('.')?;
            module.version = (major.parse().ok()?, minor.parse().ok()?);
        } else if let Some(target) = line.strip_prefix(".target sm_") {
            let digits: String = target.chars().take_while(char::is_ascii_digit).collect();
            module.target = digits.parse().ok()?;
        } else if let Some(at) = line.find(".entry ") {
            let mut head = line[at + 7..].to_owned();
            while !head.contains(')') {
                head.push(' ');
                head.push_str(lines.next()?);
            }
            let (name, kernel) = entry(&head, &mut lines);
            module.kernels.insert(name, kernel);
        }
    }
    (module.version.0 > 0).then_some(module)
}

/// A kernel whose head, from its name to the end of its parameters, is `head`; the body follows.
fn entry<'a>(head: &str, lines: &mut impl Iterator<Item = &'a str>) -> (String, Kernel) {
    let (name, rest) = head.split_once('(').unwrap_or((head, ""));
    let list = rest.split(')').next().unwrap_or("");
    let declared = list.split(',').filter(|one| one.contains(".param"));
    let mut kernel = Kernel::default();
    let mut numbers = HashMap::new();
    for one in declared {
        let (parameter, name) = parameter(one);
        numbers.insert(name, kernel.parameters.len());
        kernel.parameters.push(parameter);
    }
    let mut body = Vec::new();
    let (mut depth, mut begun) = (0_usize, false);
    for line in lines {
        begun |= line.contains('{') && !line.contains(';');
        let opens = line.matches('{').count();
        let closes = line.matches('}').count();
        depth = (depth + opens).saturating_sub(closes);
        body.push(line);
        if begun && depth == 0 {
            break;
        }
    }
    // A number that is no address is none to follow.
    numbers.retain(|_, number| {
        let parameter: &Parameter = &kernel.parameters[*number];
        parameter.bytes == 8 || parameter.is_tensor_map
    });
    trace(&body, &numbers, &mut kernel.parameters);
    (name.trim().to_owned(), kernel)
}

/// As in `.param .align 64 .b8 name[128]`.
fn parameter(text: &str) -> (Parameter, String) {
    let words: Vec<&str> = text.split_whitespace().collect();
    let last = words.last().copied().unwrap_or("");
    let (name, count) = match last.split_once('[') {
        Some((name, count)) => (name, count.trim_end_matches(']').parse().unwrap_or(1)),
        None => (last, 1),
    };
    let size = words.iter().find_map(|word| match *word {
        ".b8" | ".u8" | ".s8" => Some(1),
        ".b16" | ".u16" | ".s16" | ".f16" => Some(2),
        ".b32" | ".u32" | ".s32" | ".f32" => Some(4),
        ".b64" | ".u64" | ".s64" | ".f64" => Some(8),
        _ => None,
    });
    let bytes = size.unwrap_or(8) * count;
    let is_aligned = words
        .windows(2)
        .any(|pair| pair[0] == ".align" && matches!(pair[1], "64" | "128"));
    let parameter = Parameter {
        bytes,
        is_tensor_map: bytes == 128 && is_aligned,
        ..Parameter::default()
    };
    (parameter, name.to_owned())
}

/// Follows addresses from parameters through registers to loads and stores. Registers of PTX are assigned where they
/// are used next or in loops, so that two passes see all of it.
fn trace(body: &[&str], numbers: &HashMap<String, usize>, parameters: &mut [Parameter]) {
    let mut from: HashMap<&str, u64> = HashMap::new();
    for _ in 0..2 {
        for line in body {
            let line = line.split("//").next().unwrap_or("").trim_end_matches(';');
            let line = match line.strip_prefix('@') {
                Some(guarded) => guarded.split_once(' ').map_or("", |(_, rest)| rest),
                None => line,
            };
            let Some((operation, operands)) = line.split_once([' ', '\t']) else {
                continue;
            };
            let sources = |text: &str| -> u64 {
                let named = |name: &str| {
                    let number = numbers.get(name).filter(|number| **number < 64);
                    number.map_or(0, |number| 1_u64 << number)
                };
                let names = text.split(|c: char| !(c.is_alphanumeric() || "_%$.".contains(c)));
                names
                    .map(|name| from.get(name).copied().unwrap_or(0) | named(name))
                    .sum_bits()
            };
            let address: u64 = operands
                .split('[')
                .skip(1)
                .map(|part| sources(part.split(']').next().unwrap_or("")))
                .sum_bits();
            let is_load = operation.starts_with("ld.param");
            let stores = ["st.", "wmma.store"]
                .iter()
                .any(|name| operation.starts_with(name));
            let both = ["red.", "atom.", "cp.async.bulk", "cp.reduce"]
                .iter()
                .any(|name| operation.starts_with(name));
            if !is_load && !operands.trim_start().starts_with("%dummy") {
                for (number, parameter) in parameters.iter_mut().enumerate().take(64) {
                    if address >> number & 1 == 1 {
                        parameter.writes |= stores || both;
                        parameter.reads |= !stores;
                    }
                }
            }
            let (destination, rest) = operands.split_once(',').unwrap_or((operands, ""));
            let passes_on = is_load || !operation.starts_with("ld");
            if destination.trim().starts_with('%') && passes_on && !stores {
                let bits = sources(rest);
                if bits != 0 {
                    *from.entry(destination.trim()).or_default() |= bits;
                }
            }
        }
    }
}

trait SumBits {
    fn sum_bits(self) -> u64;
}

impl<I: Iterator<Item = u64>> SumBits for I {
    fn sum_bits(self) -> u64 {
        self.fold(0, |all, bits| all | bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
.version 8.8
.target sm_90a
.address_size 64

.visible .entry add(
	.param .u64 .ptr .align 1 add_param_0,
	.param .u64 add_param_1,
	.param .align 8 .b8 add_param_2[24]
)
.maxntid 256, 1, 1
{
	.reg .b32 	%r<4>;
	.reg .b64 	%rd<8>;
	ld.param.u64 	%rd1, [add_param_0];
	ld.param.u64 	%rd2, [add_param_1];
	ld.param.u32 	%r1, [add_param_2+8];
	cvta.to.global.u64 	%rd3, %rd1;
	cvta.to.global.u64 	%rd4, %rd2;
	mul.wide.u32 	%rd5, %r1, 4;
	add.s64 	%rd6, %rd3, %rd5;
	ld.global.u32 	%r2, [%rd6];
	add.s64 	%rd7, %rd4, %rd5;
	@%p1 st.global.u32 	[%rd7], %r2;
	ret;
}
.visible .entry mapped(.param .align 64 .b8 map[128], .param .u64 other)
{
	ret;
}
";

    #[test]
    fn parameters_are_what_the_text_says_of_them() {
        let module = parse(TEXT).unwrap();
        assert_eq!((module.version, module.target), ((8, 8), 90));
        let add = &module.kernels["add"].parameters;
        let flags: Vec<_> = add
            .iter()
            .map(|one| (one.bytes, one.reads, one.writes))
            .collect();
        assert_eq!(
            flags,
            [(8, true, false), (8, false, true), (24, false, false)]
        );
        let mapped = &module.kernels["mapped"].parameters;
        assert!(mapped[0].is_tensor_map && !mapped[1].is_tensor_map);
    }

    #[test]
    fn what_is_no_ptx_is_refused() {
        assert!(parse("int main() {}").is_none());
    }
}
