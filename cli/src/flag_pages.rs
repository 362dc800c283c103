//! The reference pages of flags: rendered from clap, and compared with `docs/reference/flags`.

use std::{fmt::Write, fs, path::Path};

use clap::{Arg, Command, CommandFactory};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/flags");
/// The longest line of a page, in characters.
const WIDTH: usize = 120;
/// The most lines of a page, but for a link at its end.
const LINES: usize = 196;
/// The most lines of a paragraph.
const PARAGRAPH: usize = 6;
/// Flags that clap adds to every command.
const COMMON: [&str; 2] = ["help", "version"];

#[test]
fn pages_list_the_flags_of_each_command() {
    let command = super::Cli::command();
    let roles: Vec<&Command> = command.get_subcommands().filter(|role| !role.is_hide_set()).collect();
    assert!(roles.len() > 5, "only {} commands", roles.len());
    golden("index", &index(&command, &roles));
    for (name, text) in roles.into_iter().flat_map(pages) {
        golden(&name, &text);
    }
}

fn golden(name: &str, rendered: &str) {
    let file = Path::new(DIRECTORY).join(format!("{name}.md"));
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::create_dir_all(DIRECTORY).expect("the directory");
        fs::write(&file, rendered).expect("the page");
    }
    let stored = fs::read_to_string(&file).unwrap_or_default();
    assert!(stored == rendered, "{} is out of date; UPDATE_GOLDENS=1 renews it", file.display());
}

fn index(command: &Command, roles: &[&Command]) -> String {
    let mut text = "# Flags\n\nFor operators. These pages are generated from `repot --help`.\n\n".to_owned();
    for role in roles {
        let name = role.get_name();
        push(&mut text, &wrap(&format!("[`repot {name}`]({name}.md): {}.", about(role)), "- ", "  "));
    }
    text.push_str("\n## Flags of every command\n\n");
    flags(&mut text, &listed(command));
    text
}

/// The first part of what a command says about itself.
fn about(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    escape(about.split([':', ';']).next().unwrap_or_default().trim().trim_end_matches('.'))
}

/// The page of a role; where its commands take more than [`LINES`] lines, the rest of them are on a second one.
fn pages(role: &Command) -> Vec<(String, String)> {
    let name = role.get_name();
    let mut text = format!("# repot {name}\n\nFor operators. Generated from `repot {name} --help`.\n\n");
    description(&mut text, role);
    flags(&mut text, &listed(role));
    let tasks: Vec<&Command> =
        role.get_subcommands().filter(|task| task.get_name() != "help" && !task.is_hide_set()).collect();
    let shared = shared(&tasks);
    if !shared.is_empty() {
        let _ = write!(text, "## Flags of every `repot {name}` command\n\n");
        flags(&mut text, &shared);
    }
    let mut rest = String::new();
    for task in tasks {
        let section = section(name, task, &shared);
        let is_full = !rest.is_empty() || text.lines().count() + section.lines().count() > LINES;
        if is_full { &mut rest } else { &mut text }.push_str(&section);
    }
    if rest.is_empty() {
        return vec![(name.to_owned(), end(text))];
    }
    let _ = writeln!(text, "[Further commands of `repot {name}`]({name}-further.md).");
    let title = format!(
        "# repot {name}: further commands\n\nFor operators. Continues [the first page]({name}.md).\n\n"
    );
    vec![(name.to_owned(), end(text)), (format!("{name}-further"), end(title + &rest))]
}

fn section(role: &str, task: &Command, shared: &[String]) -> String {
    let mut text = format!("## {role} {}\n\n", task.get_name());
    description(&mut text, task);
    flags(&mut text, &listed(task).into_iter().filter(|flag| !shared.contains(flag)).collect::<Vec<_>>());
    text
}

fn end(mut text: String) -> String {
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// What several commands have in common.
fn shared(tasks: &[&Command]) -> Vec<String> {
    let Some((first, others)) = tasks.split_first().filter(|(_, others)| !others.is_empty()) else {
        return Vec::new();
    };
    let others: Vec<Vec<String>> = others.iter().map(|task| listed(task)).collect();
    listed(first).into_iter().filter(|flag| others.iter().all(|other| other.contains(flag))).collect()
}

fn listed(command: &Command) -> Vec<String> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    shown.filter(|arg| !COMMON.contains(&arg.get_id().as_str())).map(describe).collect()
}

fn flags(text: &mut String, listed: &[String]) {
    for flag in listed {
        push(text, &wrap(flag, "- ", "  "));
    }
    if !listed.is_empty() {
        text.push('\n');
    }
}

fn push(text: &mut String, lines: &[String]) {
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
}

/// What a command says about itself: paragraphs, and examples, which are indented.
fn description(text: &mut String, command: &Command) {
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    for block in about.split("\n\n") {
        if block.lines().all(|line| line.starts_with("    ")) {
            let lines: Vec<&str> = block.lines().map(|line| line.trim_start()).collect();
            let _ = write!(text, "```\n{}\n```\n\n", lines.join("\n"));
        } else {
            paragraph(text, block);
        }
    }
}

/// Writes sentences in paragraphs of at most [`PARAGRAPH`] lines.
fn paragraph(text: &mut String, block: &str) {
    let words = block.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = Vec::new();
    let mut kept = String::new();
    for sentence in escape(&words).split_inclusive(". ") {
        let longer = wrap(&format!("{kept}{sentence}"), "", "");
        if longer.len() > PARAGRAPH && !lines.is_empty() {
            push(text, &lines);
            text.push('\n');
            kept.clear();
        }
        kept.push_str(sentence);
        lines = wrap(&kept, "", "");
    }
    push(text, &lines);
    text.push('\n');
}

/// `--name VALUE`: help. Default. Variable.
fn describe(arg: &Arg) -> String {
    let value = arg.get_value_names().filter(|_| arg.get_action().takes_values());
    let value = value.map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    let name = match (arg.get_long(), value) {
        (Some(long), Some(value)) => format!("`--{long} {value}`"),
        (Some(long), None) => format!("`--{long}`"),
        (None, value) => format!("`{}`", value.unwrap_or_else(|| arg.get_id().to_string())),
    };
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let paragraphs: Vec<&str> = help.split("\n\n").map(|text| text.trim().trim_end_matches('.')).collect();
    let mut said = format!("{name}: {}", escape(&paragraphs.join(". ")));
    said.push('.');
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && arg.get_action().takes_values() && !arg.is_hide_default_value_set() {
        let _ = write!(said, " Default: `{}`.", defaults.join(","));
    }
    let choices: Vec<_> = arg.get_possible_values();
    let choices: Vec<_> = choices
        .iter()
        .filter(|choice| !choice.is_hide_set())
        .map(clap::builder::PossibleValue::get_name)
        .collect();
    if !choices.is_empty() && choices != ["true", "false"] && arg.get_action().takes_values() {
        let _ = write!(said, " One of `{}`.", choices.join("`, `"));
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(said, " Variable: `{}`.", variable.to_string_lossy());
    }
    if arg.is_required_set() {
        said.push_str(" Required.");
    }
    said
}

/// Keeps text from being read as HTML, outside of code.
fn escape(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(at, part)| match at % 2 {
        0 => part.replace('<', "&lt;").replace('*', "\\*"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

fn wrap(text: &str, first: &str, rest: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = first.to_owned();
    for word in text.split_whitespace() {
        let begins = line == first || line == rest;
        if !begins && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::replace(&mut line, rest.to_owned()));
        } else if !begins {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}
