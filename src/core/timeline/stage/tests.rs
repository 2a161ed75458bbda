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
fn parts_stand_before_their_stage_and_belong_to_it() {
    let rows = [
        ("fetch", Role::Stream),
        ("split", Role::Part),
        ("augment", Role::Part),
        ("prepare", Role::Stage),
    ];
    let pipeline = Pipeline::of_rows(&rows).unwrap();
    assert_eq!(Pipeline::of_rows(&rows), Ok(pipeline));
    let others = ["fetch", "split", "augment", "prepare"];
    assert_ne!(Pipeline::of(&others), Ok(pipeline), "these are stages");
    let named = |name| pipeline.named(name).unwrap();
    let [fetch, split, augment, prepare] = others.map(named);
    assert_eq!(prepare.parts().collect::<Vec<_>>(), [split, augment]);
    assert_eq!(
        (
            fetch.parts().count(),
            split.parts().count(),
            prepare.other(StageKind::Batch).parts().count()
        ),
        (0, 0, 0)
    );
    assert_eq!(
        [split, augment, prepare, fetch].map(Stage::owner),
        [prepare, prepare, prepare, fetch]
    );
    assert_eq!((prepare.first_row(), fetch.first_row()), (split, fetch));
    assert!(split.is_within(prepare) && !prepare.is_within(split) && !fetch.is_within(prepare));
    assert!(fetch.is_serial() && !prepare.is_serial() && prepare.finishes_samples());
    assert!(pipeline.samples().eq([fetch, prepare]));
    assert_eq!(
        Pipeline::of_rows(&rows[..3]),
        Err(StageNameError::NoStage("augment".to_owned()))
    );
    let read: &'static Pipeline =
        serde_json::from_str(&serde_json::to_string(pipeline).unwrap()).unwrap();
    assert_eq!(read, pipeline);
}

#[test]
fn batches_may_go_through_rows_of_other_names() {
    let rows = [
        ("to-tensor", Role::Part),
        ("fetch", Role::Stage),
        ("collate", Role::Batch),
        ("transport", Role::Copy),
        ("pin", Role::Copy),
        ("main", Role::Main),
    ];
    let pipeline = Pipeline::of_rows(&rows).unwrap();
    let names: Vec<&str> = pipeline.all().map(Stage::name).collect();
    let ends = ["step", "transfer", "device"];
    assert_eq!(names, [&rows.map(|(name, _)| name)[..], &ends].concat());
    let kinds = [StageKind::Batch, StageKind::Copy, StageKind::Main];
    let own = kinds.map(|kind| pipeline.the(kind).name());
    assert_eq!(own, ["collate", "transport", "main"]);
    let main = pipeline.named("main").unwrap();
    assert!(!main.of_loader() && main.before() == pipeline.named("pin"));
    assert!(pipeline.named("fetch").unwrap().finishes_samples());
    let json = serde_json::to_string(pipeline).unwrap();
    let read: &'static Pipeline = serde_json::from_str(&json).unwrap();
    assert_eq!(read, pipeline);
    // The usual rows need no mention, and no other row may have their names.
    let usual = [("batch", Role::Batch), ("fetch", Role::Stage)];
    assert_eq!(Pipeline::of_rows(&usual), Pipeline::of(&["fetch"]));
    let odd = [("fetch", Role::Stage), ("copy", Role::Main)];
    assert_eq!(
        Pipeline::of_rows(&odd),
        Err(StageNameError::Reserved("copy".to_owned()))
    );
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

#[test]
fn our_own_loader_may_have_parts() {
    assert_eq!(Pipeline::images_with(&[]), Pipeline::IMAGES);
    let with = Pipeline::images_with(&["randaugment"]);
    assert!(with.is_of_images() && with != Pipeline::IMAGES);
    let preprocess = Stage::PREPROCESS.within(with);
    let parts: Vec<&str> = preprocess.parts().map(Stage::name).collect();
    assert_eq!(parts, ["randaugment"]);
    assert!(preprocess.finishes_samples());
    assert_eq!(Stage::READ.within(with).number(), 0);
    let other = Pipeline::of(&["fetch"]).unwrap();
    assert!(!other.is_of_images());
    let stages = |first, part| {
        let rows = [
            ("read", first),
            ("decode", Role::Stage),
            (part, Role::Part),
            ("preprocess", Role::Stage),
        ];
        Pipeline::of_rows(&rows).unwrap()
    };
    assert_eq!(stages(Role::Stage, "randaugment"), with);
    assert!(!stages(Role::Stage, "own-part").is_of_images());
    assert!(!stages(Role::Stream, "randaugment").is_of_images());
    assert_eq!(Stage::READ.within(other), Stage::READ);
}
