//! `stallscope time-kernels` through the whole program, on the CPU.

mod program;
mod said;

use program::stallscope;
use said::{assert_says, json, text};
use serde_json::Value;
use std::path::Path;
use std::process::Output;

fn time_kernels(arguments: &[&str]) -> Output {
    let mut command = stallscope();
    command
        .arg("time-kernels")
        .args(arguments)
        .output()
        .unwrap()
}

/// What it says where it is refused, with exit status `code`.
fn refused(code: i32, arguments: &[&str]) -> String {
    let out = time_kernels(arguments);
    assert_eq!(out.status.code(), Some(code), "{}", text(&out.stderr));
    text(&out.stderr)
}

fn nanos(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

#[test]
fn passes_of_a_small_image_are_timed() {
    let size = ["--batch", "2", "--size", "32", "--repeats", "3"];
    let out = time_kernels(&[&["--model", "resnet18", "--json"], &size[..]].concat());
    let said = json(&out);
    assert_eq!(said["device"], "cpu");
    assert_eq!(said["kernels"], Value::Null);
    assert_eq!(said["model"], "resnet18");
    assert_eq!((&said["batch"], &said["size"]), (&2.into(), &32.into()));
    assert!(nanos(&said["threads"]) >= 1, "{said}");
    let passes = said["passes"].as_array().unwrap();
    assert_eq!(passes.len(), 3);
    for pass in passes {
        assert!(nanos(&pass["forward_ns"]) > 0, "{said}");
        assert!(nanos(&pass["backward_ns"]) > 0, "{said}");
    }
    let shown = time_kernels(&[&["--model", "resnet18"], &size[..]].concat());
    let shown = text(&shown.stdout);
    assert!(shown.starts_with("forward, ms  backward, ms"), "{shown}");
    assert_eq!(shown.lines().count(), 4, "{shown}");
}

#[test]
fn products_take_longer_the_larger_they_are() {
    let out = time_kernels(&["--matmul", "16,256", "--repeats", "4", "--json"]);
    let said = json(&out);
    let products = said["matmul"].as_array().unwrap();
    let fastest = products.iter().map(|product| {
        let times = product["ns"].as_array().unwrap();
        assert_eq!(times.len(), 4);
        (nanos(&product["n"]), times.iter().map(nanos).min().unwrap())
    });
    let fastest: Vec<(u64, u64)> = fastest.collect();
    assert_eq!([fastest[0].0, fastest[1].0], [16, 256]);
    assert!(fastest[1].1 > 4 * fastest[0].1, "{fastest:?}");
}

#[test]
fn what_cannot_be_timed_is_refused_with_what_to_try() {
    let vgg = ["--model", "vgg16"];
    let with = |more: &[&'static str]| [&vgg[..], more].concat();
    for (code, arguments, parts) in [
        (2, vec![], &["--model"][..]),
        (2, with(&["--matmul", "64"]), &["--matmul"]),
        (2, vec!["--model", "vgg11"], &["vgg16", "resnet200"]),
        (2, vec!["--matmul", "0"], &["at least 1"]),
        (2, vec!["--matmul", "40000"], &["at most 32768"]),
        (1, with(&["--size", "31"]), &["vgg16", "--size 32 or more"]),
        (1, with(&["--device", "tpu"]), &["--device", "cuda:N"]),
        (
            1,
            with(&["--device", "emulated:resnet50-a100"]),
            &["--device cpu"],
        ),
        (1, with(&["--kernels", "plain"]), &["--device cuda:0"]),
    ] {
        assert_says(&refused(code, &arguments), parts);
    }
}

#[test]
fn a_gpu_that_is_not_there_is_told() {
    if Path::new("/dev/nvidiactl").exists() {
        return println!("skipped: there is a GPU");
    }
    for work in [["--matmul", "64"], ["--model", "vgg16"]] {
        let said = refused(1, &[&work[..], &["--device", "cuda:0"]].concat());
        assert_says(
            &said,
            &["cuda:0 is not usable here", "NVIDIA driver", "try:"],
        );
    }
}

#[test]
fn it_is_no_verb_to_look_for() {
    let out = stallscope().arg("help").output();
    assert!(!text(&out.unwrap().stdout).contains("time-kernels"));
}
