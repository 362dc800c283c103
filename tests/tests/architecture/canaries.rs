//! What is planted in storage to try the tests (`storage/src/canary.rs`) gets into nothing that anybody runs.

use std::process::Command;

use repot_tests::binaries;

const FEATURE: &str = "canaries";

#[test]
fn nothing_turns_on_the_feature_that_plants_wrongs() {
    let metadata = super::metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let mut storage = 0;
    for package in packages {
        let name = &package["name"];
        for (feature, implied) in package["features"].as_object().expect("features") {
            let implied = implied.as_array().expect("a list");
            let turns =
                |other: &serde_json::Value| other.as_str().is_some_and(|other| other.contains(FEATURE));
            assert!(!implied.iter().any(turns), "{name} turns it on by its feature {feature}");
        }
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let features = dependency["features"].as_array().expect("features");
            assert!(!features.iter().any(|feature| feature == FEATURE), "{name} turns it on");
        }
        storage += usize::from(name == "repot-storage" && !package["features"][FEATURE].is_null());
    }
    assert_eq!(storage, 1, "the feature has another name by now");
}

#[test]
fn the_program_holds_no_wrong() {
    let program = binaries::profile_dir().expect("a profile").join("repot");
    let holds = |word: &str| {
        let status =
            Command::new("grep").args(["--quiet", "--text", "--fixed-strings", word]).arg(&program).status();
        match status.expect("grep").code() {
            Some(0) => true,
            Some(1) => false,
            code => panic!("{} cannot be searched: {code:?}", program.display()),
        }
    };
    assert!(holds("EncryptionConfiguration"), "nothing is found in it");
    assert!(!holds("REPOT_CANARY"), "{} was built with the feature {FEATURE}", program.display());
}
