//! `stallscope time-kernels`: how long a model's passes or matrix products take, for the verbs that compare devices.
//! A process of its own: what a device was tuned for, or ran out of, ends with it.
//!
//! May use: `config`, `session`, `train`.

use super::args::{KernelsArg, TimeKernelsArgs, TimedModel, word};
use super::run::catching_panics;
use crate::config::DeviceConfig;
use crate::session::SessionError;
use crate::train::{
    ModelSpec, OptimizerSpec, PassTimes, Precision, Timed, TimedDevice, Times, time_passes,
    time_products,
};
use anyhow::{anyhow, bail, ensure};
use serde_json::{Value, json};
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
    let (warmup, kernels) = match device {
        TimedDevice::Cpu => (1, None),
        TimedDevice::Cuda { .. } => (4, Some(args.kernels.unwrap_or_default())),
    };
    let times = Times {
        warmup: args.warmup.unwrap_or(warmup),
        measured: args.repeats,
    };
    let mut said = json!({
        "device": named,
        "kernels": kernels.map(word),
        "warmup": times.warmup,
    });
    let timed = match args.model {
        Some(model) => {
            let passes = passes(args, model, device, times)?;
            said["model"] = json!(word(model));
            said["batch"] = json!(args.batch);
            said["size"] = json!(args.size);
            said["threads"] = json!(passes.threads);
            Work::Passes(passes.measured)
        }
        None => {
            let products = products(&args.matmul, device, times)?;
            said["threads"] = json!(products.iter().map(|(_, timed)| timed.threads).max());
            Work::Products(products)
        }
    };
    match args.json {
        true => print_json(out, said, &timed)?,
        false => print(out, &timed)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// What was measured.
enum Work {
    Passes(Vec<PassTimes>),
    /// By rows of the matrices.
    Products(Vec<(usize, Timed<u64>)>),
}

fn passes(
    args: &TimeKernelsArgs,
    model: TimedModel,
    device: TimedDevice,
    times: Times,
) -> anyhow::Result<Timed<PassTimes>> {
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

fn products(
    rows: &[usize],
    device: TimedDevice,
    times: Times,
) -> anyhow::Result<Vec<(usize, Timed<u64>)>> {
    let mut products = Vec::new();
    for &rows in rows {
        let timed = catching_panics(|| time_products(device, rows, times))?;
        products.push((rows, timed.map_err(SessionError::from)?));
    }
    Ok(products)
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

fn print_json(out: &mut dyn Write, mut said: Value, work: &Work) -> anyhow::Result<()> {
    match work {
        Work::Passes(passes) => {
            let pass = |pass: &PassTimes| json!({"forward_ns": pass.forward_ns, "backward_ns": pass.backward_ns});
            said["passes"] = passes.iter().map(pass).collect();
        }
        Work::Products(products) => {
            let product =
                |(rows, timed): &(usize, Timed<u64>)| json!({"n": rows, "ns": timed.measured});
            said["matmul"] = products.iter().map(product).collect();
        }
    }
    writeln!(out, "{said:#}")?;
    Ok(())
}

fn print(out: &mut dyn Write, work: &Work) -> std::io::Result<()> {
    let ms = |ns: u64| ns as f64 / 1e6;
    match work {
        Work::Passes(passes) => {
            for pass in passes {
                let (forward, backward) = (ms(pass.forward_ns), ms(pass.backward_ns));
                writeln!(
                    out,
                    "forward {forward:>10.2} ms  backward {backward:>10.2} ms"
                )?;
            }
        }
        Work::Products(products) => {
            for (rows, timed) in products {
                let fastest = timed.measured.iter().min().copied().unwrap_or_default();
                writeln!(out, "{rows:>6} rows {:>12.4} ms, the fastest", ms(fastest))?;
            }
        }
    }
    Ok(())
}
