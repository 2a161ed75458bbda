//! `stallscope time-kernels`: how long a model's passes or matrix products take, for the verbs that compare devices.
//! A process of its own: what a device was tuned for, or ran out of, ends with it.
//!
//! May use: `config`, `device`, `reproduce`, `session`, `text`, `train`.

use super::args::{KernelsArg, TimeKernelsArgs, TimedModel, word};
use super::run::catching_panics;
use crate::config::DeviceConfig;
use crate::device::probe;
use crate::reproduce::{KernelTimes, PassTimes, ProductTimes};
use crate::session::{SessionError, cache_folder};
use crate::text::{Column, Table, width};
use crate::train::{
    self, ModelSpec, OptimizerSpec, Precision, Timed, TimedDevice, Times, time_passes,
    time_products,
};
use anyhow::{anyhow, bail, ensure};
use std::io::Write;
use std::process::ExitCode;

/// Of the models, as ImageNet has them.
const CLASSES: usize = 1000;

/// Times what `args` asks for and prints it.
///
/// # Errors
/// Arguments that do not go together, what is missing on this machine, or why the device refused the work.
pub fn time_kernels(args: &TimeKernelsArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let named = args.device.parse();
    let named = named.map_err(|why: String| anyhow!("--device {why}"))?;
    let device = timed_device(named, args.kernels)?;
    if let TimedDevice::Cuda { ordinal, .. } = device {
        train::keep_kernels(cache_folder().as_deref(), &probe::cuda(), ordinal);
    }
    let (warmup, kernels) = match device {
        TimedDevice::Cpu => (1, None),
        TimedDevice::Cuda { .. } => (4, Some(args.kernels.unwrap_or_default())),
    };
    let times = Times {
        warmup: args.warmup.unwrap_or(warmup),
        measured: args.repeats,
    };
    let mut said = KernelTimes {
        device: named.to_string(),
        kernels: kernels.map(word),
        warmup: times.warmup,
        ..KernelTimes::default()
    };
    match args.model {
        Some(model) => {
            let timed = passes(args, model, device, times)?;
            said.model = Some(word(model));
            (said.batch, said.size) = (Some(args.batch), Some(args.size));
            said.threads = timed.threads;
            let passes = timed.measured.iter();
            said.passes = passes.map(written).collect();
        }
        None => {
            for &n in &args.matmul {
                let timed = catching_panics(|| time_products(device, n, times))?;
                let timed = timed.map_err(SessionError::from)?;
                said.threads = said.threads.max(timed.threads);
                let ns = timed.measured;
                said.matmul.push(ProductTimes { n, ns });
            }
        }
    }
    match args.output.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&said)?)?,
        false => write!(out, "{}", table(&said).render(width()))?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn written(pass: &train::PassTimes) -> PassTimes {
    PassTimes {
        forward_ns: pass.forward_ns,
        backward_ns: pass.backward_ns,
    }
}

fn passes(
    args: &TimeKernelsArgs,
    model: TimedModel,
    device: TimedDevice,
    times: Times,
) -> anyhow::Result<Timed<train::PassTimes>> {
    let architecture = model.architecture();
    let least = architecture.least_side();
    ensure!(
        args.size >= least,
        "--size {} is too small for {}; try --size {least} or more",
        args.size,
        word(model)
    );
    let spec = ModelSpec {
        architecture,
        input: [3, args.size, args.size],
        classes: CLASSES,
        // Nothing is learned.
        optimizer: OptimizerSpec::Sgd { momentum: 0.0 },
        learning_rate: 0.0,
        precision: Precision::F32,
        seed: 0,
    };
    let timed = catching_panics(|| time_passes(device, &spec, args.batch, times))?;
    Ok(timed.map_err(SessionError::from)?)
}

fn timed_device(device: DeviceConfig, kernels: Option<KernelsArg>) -> anyhow::Result<TimedDevice> {
    match (device, kernels) {
        (DeviceConfig::Cuda(ordinal), kernels) => Ok(TimedDevice::Cuda {
            ordinal,
            kernels: kernels.unwrap_or_default().into(),
        }),
        (DeviceConfig::Cpu, None) => Ok(TimedDevice::Cpu),
        (DeviceConfig::Cpu, Some(_)) => {
            bail!("--kernels: the CPU has but one kind; leave it out, or try --device cuda:0")
        }
        (DeviceConfig::Emulated(_), _) => {
            bail!("an emulated device has no kernels to time; try --device cpu or --device cuda:0")
        }
    }
}

fn table(said: &KernelTimes) -> Table {
    let ms = |ns: u64| ns as f64 / 1e6;
    if said.passes.is_empty() {
        let mut table = Table::new(["rows", "fastest, ms"].map(Column::figure));
        for ProductTimes { n, ns } in &said.matmul {
            let fastest = ns.iter().min().copied().unwrap_or_default();
            table.push([n.to_string(), format!("{:.4}", ms(fastest))]);
        }
        return table;
    }
    let mut table = Table::new(["forward, ms", "backward, ms"].map(Column::figure));
    for pass in &said.passes {
        table.push([pass.forward_ns, pass.backward_ns].map(|ns| format!("{:.2}", ms(ns))));
    }
    table
}
