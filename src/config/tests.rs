//! The whole way from files and `--set` to a resolved configuration or an error.

use std::path::{Path, PathBuf};

use super::*;

/// A folder with `configs/x.toml` and `pipelines/p.toml`.
struct Files {
    folder: tempfile::TempDir,
}

const PIPELINE: &str = "source.path = \"data/x\"\n";
const NAMES_PIPELINE: &str = "pipeline = \"../pipelines/p.toml\"\n";

impl Files {
    fn new(experiment: &str, pipeline: &str) -> Files {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("configs/x.toml", experiment),
            ("pipelines/p.toml", pipeline),
        ] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Files { folder }
    }

    fn resolve(&self, sets: &[&str]) -> Result<Resolved, ConfigError> {
        self.settings(sets)?.resolve()
    }

    fn settings(&self, sets: &[&str]) -> Result<Settings, ConfigError> {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        Settings::load(&self.folder.path().join("configs/x.toml"), &sets)
    }

    /// The error's text, with the temporary folder's name left out.
    fn error(&self, sets: &[&str]) -> String {
        let error = self
            .resolve(sets)
            .expect_err("this should not resolve")
            .to_string();
        error.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

fn experiment(text: &str) -> Files {
    Files::new(&format!("{NAMES_PIPELINE}{text}"), PIPELINE)
}

#[test]
fn names_of_earlier_versions_are_understood() {
    let files = experiment("read.mode = \"mmap\"\n");
    let old = files.settings(&["cache=warm"]).unwrap();
    let resolved = old.resolve().unwrap();
    assert_eq!(resolved.pipeline.read.mode, ReadMode::Mmap);
    assert_eq!(resolved.cache, CacheConfig::Warm);
    let kept: Vec<String> = old
        .typed_keys()
        .into_iter()
        .map(|typed| typed.key)
        .collect();
    assert_eq!(kept, ["source.path", "read.method", "page_cache"]);
    let mnist = files
        .settings(&["read.mode=pread", "source.kind=idx"])
        .unwrap();
    let rows = mnist.rows();
    let kind = rows.iter().find(|row| row.key == "source.kind").unwrap();
    assert_eq!(kind.value.as_deref(), Some("\"mnist\""));
    assert_eq!(key_of("read.mode=ram"), "read.method");
    assert_eq!(check_setting("cache=cold").unwrap(), "\"cold\"");
}

#[test]
fn defaults_fill_everything_but_the_source() {
    let resolved = experiment("").resolve(&[]).unwrap();
    assert_eq!(resolved.name, "x");
    assert_eq!(resolved.device, DeviceConfig::Cpu);
    assert_eq!(resolved.pipeline.num_workers, None);
    assert_eq!(
        resolved.pipeline.read,
        ReadConfig {
            stage: StageConfig {
                workers: 1,
                prefetch: 16
            },
            mode: ReadMode::Pread,
            ahead: 16,
            requests: 64,
            cache: None,
            cache_bytes: 20 << 30,
        }
    );
    assert_eq!(
        resolved.pipeline.copy,
        StageConfig {
            workers: 1,
            prefetch: 2
        }
    );
    assert_eq!(resolved.pipeline.source.path, PathBuf::from("data/x"));
    assert_eq!(resolved.trace.max_bytes, 256 << 20);
    assert_eq!((resolved.generate, resolved.epochs), (None, None));
    let Spatial::RandomResizedCrop { size, scale, ratio } =
        resolved.pipeline.preprocess.transform.spatial
    else {
        panic!("random-resized is the default");
    };
    assert_eq!((size, scale, ratio), (224, [0.08, 1.0], [0.75, 4.0 / 3.0]));
}

#[test]
fn a_model_is_written_down_as_it_was_typed() {
    for kind in [
        "small-cnn",
        "lenet",
        "resnet18",
        "resnet50",
        "resnet200",
        "vgg16",
        "vgg19",
    ] {
        for precision in ["f32", "bf16", "f16"] {
            let sets = [
                format!("model.kind={kind}"),
                format!("model.precision={precision}"),
            ];
            let resolved = experiment("").resolve(&sets.each_ref().map(String::as_str));
            let model = serde_json::to_value(resolved.unwrap().model).unwrap();
            assert_eq!(model["kind"], kind);
            assert_eq!(model["precision"], precision);
        }
    }
}

#[test]
fn every_word_of_a_choice_is_read() {
    let choices = schema::keys().filter_map(|key| match key.kind {
        kind::Kind::Choice(words) => Some((key.name, words)),
        _ => None,
    });
    for (key, words) in choices {
        for word in words {
            let set = format!("{key}={word}");
            if let Err(error) = experiment("").resolve(&[&set, "device=cuda:0"]) {
                let text = error.to_string();
                assert!(!text.contains("a bug in stallscope"), "{text}");
            }
        }
    }
}

#[test]
fn tables_dotted_keys_and_inline_tables_are_the_same() {
    let spellings = [
        "decode.workers = 3\ndecode.prefetch = 8\n",
        "[decode]\nworkers = 3\nprefetch = 8\n",
        "decode = { workers = 3, prefetch = 8 }\n",
    ];
    let [dotted, table, inline] = spellings.map(|text| experiment(text).resolve(&[]).unwrap());
    assert_eq!(
        dotted.pipeline.decode.stage,
        StageConfig {
            workers: 3,
            prefetch: 8
        }
    );
    assert_eq!(dotted, table);
    assert_eq!(dotted, inline);
}

#[test]
fn an_experiment_overrides_its_pipeline_and_set_overrides_both() {
    let files = Files::new(
        &format!("{NAMES_PIPELINE}decode.workers = 2\nbatch.size = 64"),
        &format!("{PIPELINE}decode.workers = 1\nbatch.size = 16\nread.workers = 5"),
    );
    let settings = files
        .settings(&["decode.workers=3", "decode.workers=4"])
        .unwrap();
    let pipeline = settings.resolve().unwrap().pipeline;
    assert_eq!(
        (pipeline.decode.stage.workers, pipeline.batch.size),
        (4, 64)
    );
    assert_eq!(pipeline.read.stage.workers, 5);
    assert_eq!(
        settings.get_origin("decode.workers"),
        Some(&Origin::Set("decode.workers=4".into()))
    );
    assert_eq!(settings.get_origin("steps"), Some(&Origin::Default));
    assert_eq!(settings.get_origin("zebra"), None);
    let Some(Origin::File { path, line, column }) = settings.get_origin("read.workers") else {
        panic!("read.workers stands in a file");
    };
    assert!(path.ends_with("pipelines/p.toml"));
    assert_eq!((*line, *column), (4, 1));
    let rows = settings.rows();
    let row = rows.iter().find(|row| row.key == "decode.workers").unwrap();
    assert_eq!((row.value.as_deref(), row.overrides.len()), (Some("4"), 3));
}

#[test]
fn set_takes_toml_and_bare_text() {
    let sets = [
        "source.path=2024",
        "device=cuda:1",
        "preprocess.mean=[0.5, 0.5, 1]",
        "trace.max_bytes=1GiB",
        "on_error=\"skip\"",
        "shuffle=false",
        " seed = 7 ",
    ];
    let resolved = experiment("").resolve(&sets).unwrap();
    assert_eq!(resolved.pipeline.source.path, PathBuf::from("2024"));
    assert_eq!(resolved.device, DeviceConfig::Cuda(1));
    assert_eq!(resolved.pipeline.preprocess.transform.mean, [0.5, 0.5, 1.0]);
    assert_eq!(resolved.trace.max_bytes, 1 << 30);
    assert_eq!(resolved.pipeline.on_error, OnError::Skip);
    assert_eq!(
        (resolved.pipeline.order, resolved.seed),
        (OrderConfig::Sequential, 7)
    );
}

#[test]
fn set_can_name_another_pipeline_from_where_the_user_stands() {
    let files = experiment("");
    let other = files.folder.path().join("other.toml");
    std::fs::write(&other, "source.path = \"data/other\"").unwrap();
    let resolved = files
        .resolve(&[&format!("pipeline={}", other.display())])
        .unwrap();
    assert_eq!(resolved.pipeline.source.path, PathBuf::from("data/other"));
}

#[test]
fn num_workers_switches_the_mode_over_weaker_layers() {
    let files = Files::new(
        NAMES_PIPELINE,
        &format!("{PIPELINE}decode.workers = 2\nread.prefetch = 4\ncopy.workers = 1"),
    );
    let pipeline = files.resolve(&["num_workers=4"]).unwrap().pipeline;
    assert_eq!(
        (pipeline.num_workers, pipeline.prefetch_factor),
        (Some(4), 2)
    );
    assert_eq!(pipeline.copy.workers, 1, "typed, so it stays");
    let inline = experiment("").resolve(&["num_workers=0"]).unwrap().pipeline;
    assert_eq!((inline.num_workers, inline.prefetch_factor), (Some(0), 2));
    assert_eq!(inline.copy.workers, 0, "the default follows the mode");
}

#[test]
fn stages_can_have_their_workers_back() {
    let files = experiment("num_workers = 4\nprefetch_factor = 3");
    let pipeline = files
        .resolve(&["num_workers=per-stage", "decode.workers=2"])
        .unwrap()
        .pipeline;
    assert_eq!(pipeline.num_workers, None);
    assert_eq!(pipeline.decode.stage.workers, 2);
}

#[test]
fn stage_workers_contradict_whole_batch_workers() {
    let files = experiment("num_workers = 4");
    insta::assert_snapshot!(
        "set_against_num_workers",
        files.error(&["decode.workers=2"])
    );
    let files = experiment("num_workers = 4\n[decode]\nworkers = 2");
    insta::assert_snapshot!("workers_beside_num_workers", files.error(&[]));
    insta::assert_snapshot!(
        "prefetch_factor_alone",
        experiment("prefetch_factor = 4").error(&[])
    );
}

#[test]
fn unknown_keys_point_at_their_line() {
    let files = Files::new(
        &format!(
            "{NAMES_PIPELINE}\n[model]\nlearning_rte = 0.1\n\n[trainer]\nzebra = 1\n[empty]\n"
        ),
        &format!("{PIPELINE}batch_size = 32\ndecode.wokers = 2\n"),
    );
    insta::assert_snapshot!("unknown_keys", files.error(&["stpes=5", "decode"]));
    let problems = files.resolve(&[]).unwrap_err();
    let Origin::File { path, line, column } = &problems.problems()[0].origin else {
        panic!("it stands in a file");
    };
    assert!(path.ends_with("configs/x.toml"));
    assert_eq!((*line, *column), (4, 1));
}

#[test]
fn all_bad_values_are_reported_at_once() {
    let files = experiment(
        "steps = \"abc\"\ndevice = \"emulated:a100\"\nmode = \"loader_only\"\n\
         decode.workers = 0\nbatch.size = 2.5\nseed = -1\ntrace.max_bytes = \"many\"\n\
         preprocess.mean = [0.5, 0.5]\npreprocess.flip = 1.5\nbatch.prefetch = 0\n\
         copy.workers = 2\nepochs = 2024-01-01\n",
    );
    insta::assert_snapshot!("bad_values", files.error(&["read.workers=abc"]));
}

#[test]
fn tables_and_values_are_told_apart() {
    let files = experiment("decode = 4\n[steps]\nmeasured = 3\n[[device]]\nname = 1\n[[device]]\n");
    insta::assert_snapshot!("tables_and_values", files.error(&[]));
}

#[test]
fn contradictions_say_why() {
    let files = experiment(
        "steps = 10\ntrace.start_step = 50\nmodel.classes = 5\n[generate]\nimages = 8\nclasses = 10\n\
         [preprocess]\ncrop = \"center\"\nsize = 300\nscale = [0.5, 1.0]\n",
    );
    insta::assert_snapshot!("contradictions", files.error(&[]));
    let files = experiment("preprocess.scale = [0.9, 0.1]\npreprocess.resize = 300");
    insta::assert_snapshot!("crop_contradictions", files.error(&[]));
}

#[test]
fn row_groups_are_not_mapped() {
    let files = experiment("source.kind = \"parquet\"\nread.method = \"mmap\"");
    let error = files.error(&[]);
    assert!(
        error.contains("read.method") && error.contains("ram"),
        "{error}"
    );
    assert!(files.resolve(&["read.method=ram"]).is_ok());
}

#[test]
fn a_gpu_is_sampled_at_a_sane_rate_or_not_at_all() {
    let sampled = |period: &str| {
        let set = format!("gpu.sample_period={period}");
        let resolved = experiment("").resolve(&["device=cuda:1", &set]);
        resolved.map(|resolved| resolved.gpu.unwrap().sample_period_ns)
    };
    assert_eq!(sampled("0ms").unwrap(), 0);
    assert_eq!(sampled("20ms").unwrap(), 20_000_000);
    for wrong in ["10us", "2h", "120s"] {
        assert!(sampled(wrong).is_err(), "{wrong}");
    }
    let on_cpu = experiment("device = \"cpu\"\ngpu.sample_period = \"50ms\"");
    let error = on_cpu.error(&[]);
    assert!(error.contains("only an NVIDIA GPU"), "{error}");
}

#[test]
fn a_weaker_layer_is_switched_off_not_refused() {
    let files = Files::new(
        NAMES_PIPELINE,
        &format!("{PIPELINE}preprocess.scale = [0.2, 1.0]"),
    );
    assert!(files.resolve(&["preprocess.crop=center"]).is_ok());
    let settings = files.settings(&["preprocess.crop=center"]).unwrap();
    let rows = settings.rows();
    let row = rows
        .iter()
        .find(|row| row.key == "preprocess.scale")
        .unwrap();
    assert!(row.unused_because.is_some());
}

#[test]
fn experiment_keys_do_not_belong_in_a_pipeline() {
    let files = Files::new(NAMES_PIPELINE, &format!("{PIPELINE}steps = 3"));
    insta::assert_snapshot!("experiment_key_in_pipeline", files.error(&[]));
}

#[test]
fn a_missing_source_is_said() {
    insta::assert_snapshot!("missing_source", Files::new("", "").error(&[]));
}

#[test]
fn files_that_are_not_toml_or_not_there() {
    insta::assert_snapshot!("syntax", experiment("[decode]\nworkers = = 2\n").error(&[]));
    let files = Files::new("pipeline = \"../pipelines/pp.toml\"", PIPELINE);
    insta::assert_snapshot!("missing_pipeline", files.error(&[]));
    let path = files.folder.path().join("configs/y.toml");
    let error = Settings::load(&path, &[]).unwrap_err().to_string();
    assert!(
        error.contains("did you mean") && error.contains("configs/x.toml"),
        "{error}"
    );
}

#[test]
fn shipped_configurations_resolve() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for entry in std::fs::read_dir(root.join("configs")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            let resolved = Settings::load(&path, &[]).and_then(|settings| settings.resolve());
            assert!(resolved.is_ok(), "{}", resolved.unwrap_err());
            seen += 1;
        }
    }
    assert!(seen > 0);
}

#[test]
fn every_public_key_is_in_the_reference() {
    let reference = reference_markdown();
    for key in super::schema::keys() {
        let cell = format!("| `{}` |", key.name);
        assert_eq!(reference.contains(&cell), !key.hidden, "{}", key.name);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, &reference).unwrap();
        return;
    }
    assert!(
        written == reference,
        "stale: run `cargo run -- keys > docs/configuration.md`"
    );
}

#[test]
fn resolved_settings_serialize() {
    let resolved = experiment("num_workers = 2")
        .resolve(&["device=cuda"])
        .unwrap();
    let json = serde_json::to_value(&resolved).unwrap();
    assert_eq!(json["device"], "cuda:0");
    assert_eq!(json["pipeline"]["num_workers"], 2);
    assert_eq!(json["pipeline"]["decode"]["workers"], 1);
}
