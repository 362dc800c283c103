//! Examples of the pages, run against `repot dev` as a reader runs them.
//!
//! A block that is marked `sh,run` is run by a shell in a directory that looks as the checkout does after `make dev`. A block that
//! is marked `text,output` says what the block before it prints.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Context, Result, ensure};
use repot_tests::repot::{Dev, program};
use repot_tests::{TestEnv, binaries, run, tool};
use tokio::process::Command;

use super::pages;

/// A block to run.
#[derive(Debug, PartialEq)]
struct Example {
    commands: String,
    /// What it prints, where the page says so.
    output: Option<String>,
}

#[test]
fn examples_of_pages_run_as_printed() {
    run(async |env| {
        let mut ran = Vec::new();
        for page in pages() {
            let examples = examples(&page.text);
            if examples.is_empty() {
                continue;
            }
            play(env, &examples).await.with_context(|| page.path.clone())?;
            ran.push(page.path);
        }
        ensure!(ran.iter().any(|path| path == "README.md"), "README.md has no example; of {ran:?}");
        Ok(())
    });
}

/// Runs the examples of one page, one after the other, against a server of its own.
async fn play(env: &TestEnv, examples: &[Example]) -> Result<()> {
    let dev = Dev::start(env, [""; 0]).await?;
    let checkout = env.make_dir("checkout")?;
    fs::create_dir_all(checkout.join("target/debug"))?;
    symlink(program()?, checkout.join("target/debug/repot"))?;
    symlink(dev.data_dir(), checkout.join("repot-data"))?;
    let kubectl = binaries::find("kubectl")?;
    let mut path = kubectl.parent().context("kubectl is in a directory")?.as_os_str().to_owned();
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    for example in examples {
        let mut command = Command::new("sh");
        command.args(["-eu", "-c", &example.commands]).current_dir(&checkout);
        command.env("PATH", &path).env("HOME", &checkout).env("KUBECONFIG", dev.kubeconfig());
        let printed = tool::run(command, b"").await?.text()?;
        if let Some(expected) = &example.output {
            let (printed, expected) = (comparable(&printed), comparable(expected));
            ensure!(printed == expected, "it printed\n{printed}\nand the page says\n{expected}");
        }
    }
    Ok(())
}

/// Without what differs from run to run: blanks, and the age in the last column of a table.
fn comparable(text: &str) -> String {
    let is_age =
        |word: &&str| word.strip_suffix(['s', 'm']).is_some_and(|number| number.parse::<u32>().is_ok());
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let end = if words.last().is_some_and(is_age) { words.len() - 1 } else { words.len() };
        words[..end].join(" ")
    };
    text.lines().map(line).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

fn examples(text: &str) -> Vec<Example> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(mark) = line.strip_prefix("```").filter(|mark| !mark.is_empty()) else { continue };
        let block = lines.by_ref().take_while(|line| *line != "```").collect::<Vec<_>>().join("\n");
        match mark {
            "sh,run" => found.push(Example { commands: block, output: None }),
            "text,output" => {
                let example = found.last_mut().expect("a block that prints it");
                example.output = Some(block);
            }
            _ => {}
        }
    }
    found
}

#[test]
fn examples_and_what_they_print_are_found() {
    let text = "```sh\na\n```\n\n```sh,run\nb\nc\n```\n\nIt prints:\n\n```text,output\nd  1s\n```\n";
    let found = examples(text);
    assert_eq!(found, [Example { commands: "b\nc".to_owned(), output: Some("d  1s".to_owned()) }]);
    assert_eq!(comparable("NAME AGE\nbig  12   3s\n\n"), comparable("NAME   AGE\nbig 12 0s"));
    assert_ne!(comparable("big 12 3s"), comparable("big 13 3s"));
}
