//! Mutation tests (`storage/tests/mutations`) change a copy of the sources: production code and the program know nothing of them.

use std::fs;
use std::process::Command;

use repot_tests::binaries;

use super::{root, sources};

/// Where production code is.
const PRODUCTION: &[&str] =
    &["apiserver", "certs", "cli", "controllers", "etcd", "samples", "storage", "webhook"];
/// The variable that activates a mutation.
const VARIABLE: &str = "REPOT_MUTATION";
/// What production code would need to know of mutations.
const WORDS: &[&str] = &[VARIABLE, "mutation::is_active"];

#[test]
fn production_code_knows_no_mutation() {
    let (mut read, mut found) = (0, Vec::new());
    for dir in PRODUCTION {
        for path in sources(&root().join(dir)) {
            // Tests beside the sources may know what they like.
            if path.components().any(|part| part.as_os_str() == "tests") {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source");
            let words = WORDS.iter().filter(|word| text.contains(**word));
            found.extend(words.map(|word| format!("{} has {word}", path.display())));
            read += 1;
        }
    }
    assert!(read > 300, "only {read} files were read");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn mutation_tests_activate_a_mutation_by_the_variable() {
    let source = fs::read_to_string(root().join("storage/tests/mutations/source.rs")).expect("a source");
    assert!(source.contains(&format!("\"{VARIABLE}\"")), "the variable has another name by now");
}

#[test]
fn the_program_has_no_mutation() {
    let program = binaries::profile_dir().expect("a profile").join("repot");
    let contains = |word: &str| {
        let status =
            Command::new("grep").args(["--quiet", "--text", "--fixed-strings", word]).arg(&program).status();
        match status.expect("grep").code() {
            Some(0) => true,
            Some(1) => false,
            code => panic!("{} cannot be searched: {code:?}", program.display()),
        }
    };
    assert!(contains("EncryptionConfiguration"), "nothing is found in {}", program.display());
    assert!(!contains(VARIABLE), "{} has mutations", program.display());
}
