use super::*;

#[test]
fn pipelines_of_the_same_names_are_one() {
    let names = ["fetch", "tokenize", "pad"];
    let pipeline = Pipeline::of(&names).unwrap();
    assert_eq!(Pipeline::of(&names), Ok(pipeline));
    assert_ne!(Pipeline::of(&names[..2]), Ok(pipeline));
    let images = Pipeline::of(&["read", "decode", "preprocess"]).unwrap();
    assert_eq!(images, Pipeline::IMAGES);
    let all: Vec<Stage> = images.all().collect();
    let known = [
        Stage::READ,
        Stage::DECODE,
        Stage::PREPROCESS,
        Stage::BATCH,
        Stage::COPY,
        Stage::STEP,
        Stage::TRANSFER,
        Stage::DEVICE,
    ];
    assert_eq!(all, known);
}

#[test]
fn each_stage_knows_its_place() {
    for pipeline in [
        Pipeline::IMAGES,
        Pipeline::of(&["fetch"]).unwrap(),
        Pipeline::of(&["a", "b", "c", "d", "e"]).unwrap(),
    ] {
        let all: Vec<Stage> = pipeline.all().collect();
        assert!(all.is_sorted());
        for (number, stage) in all.iter().enumerate() {
            assert_eq!((stage.number(), stage.pipeline()), (number, pipeline));
            assert_eq!(pipeline.named(stage.name()), Some(*stage));
        }
        let before: Vec<Option<Stage>> = all.iter().map(|stage| stage.before()).collect();
        let samples = pipeline.samples().count();
        let last = all.iter().position(|stage| stage.finishes_samples());
        assert_eq!(last, Some(samples - 1));
        assert_eq!(before[0], None);
        assert_eq!(
            before[1..samples + 3],
            all[..samples + 2]
                .iter()
                .copied()
                .map(Some)
                .collect::<Vec<_>>()
        );
        assert_eq!(before[samples + 3..], [None, None]);
    }
}

#[test]
fn names_must_be_words_of_their_own() {
    let refused = |names: &[&str]| Pipeline::of(names).unwrap_err();
    assert_eq!(refused(&[]), StageNameError::None);
    assert_eq!(
        refused(&["a", "b", "a"]),
        StageNameError::Twice("a".to_owned())
    );
    for reserved in ["batch", "device", "workers", "num_workers"] {
        assert_eq!(
            refused(&[reserved]),
            StageNameError::Reserved(reserved.to_owned())
        );
    }
    for odd in ["", "Read", "2nd", "a.b", "a b", "é"] {
        assert_eq!(refused(&[odd]), StageNameError::Characters(odd.to_owned()));
    }
    assert!(matches!(refused(&["a"; 65]), StageNameError::TooMany(65)));
}

#[test]
fn a_stage_is_read_back_by_its_name() {
    let pipeline = Pipeline::of(&["fetch", "tokenize"]).unwrap();
    let stage = pipeline.named("tokenize").unwrap();
    let json = serde_json::to_string(&stage).unwrap();
    assert_eq!(json, "\"tokenize\"");
    let read = || serde_json::from_str::<Stage>(&json);
    assert_eq!(pipeline.reading(read).unwrap(), stage);
    assert!(
        read()
            .unwrap_err()
            .to_string()
            .contains("no stage `tokenize`")
    );
}

#[test]
fn a_pipeline_is_read_back_as_it_was_written() {
    for pipeline in [Pipeline::IMAGES, Pipeline::of(&["fetch"]).unwrap()] {
        let json = serde_json::to_value(pipeline).unwrap();
        let read: &'static Pipeline = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(read, pipeline);
        let first = serde_json::json!({"name": pipeline.all().next().unwrap().name(), "unit": "sample", "where": "loader"});
        assert_eq!(json[0], first);
    }
}

#[test]
fn a_stage_is_as_small_as_a_pointer() {
    assert_eq!(size_of::<Option<Stage>>(), size_of::<usize>());
}
