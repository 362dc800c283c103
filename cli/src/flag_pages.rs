//! The reference pages of flags: rendered from clap, and compared with `docs/reference/flags`.

use std::{fmt::Write, fs, path::Path};

use clap::{Arg, Command, CommandFactory};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/flags");
/// The longest line of a page, in characters.
const WIDTH: usize = 116;
/// Flags that clap adds to every command.
const COMMON: [&str; 2] = ["help", "version"];

#[test]
fn pages_list_the_flags_of_each_command() {
    let command = super::Cli::command();
    let roles: Vec<&Command> = command.get_subcommands().filter(|role| !role.is_hide_set()).collect();
    assert!(roles.len() > 5, "only {} commands", roles.len());
    golden("index", &index(&command, &roles));
    for role in roles {
        golden(role.get_name(), &page(role));
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
    text.push_str("| command | what it does |\n|---|---|\n");
    for role in roles {
        let name = role.get_name();
        let _ = writeln!(text, "| [`repot {name}`]({name}.md) | {} |", about(role).replace('|', "\\|"));
    }
    text.push_str("\n## Flags of every command\n\n");
    flags(&mut text, command);
    text
}

/// The first sentence of what a command says about itself, in one line of a table.
fn about(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    about.split([':', ';']).next().unwrap_or_default().trim().trim_end_matches('.').to_owned()
}

fn page(role: &Command) -> String {
    let mut text = format!(
        "# repot {}\n\nFor operators. Generated from `repot {} --help`.\n",
        role.get_name(),
        role.get_name()
    );
    section(&mut text, role);
    for task in role.get_subcommands().filter(|task| task.get_name() != "help" && !task.is_hide_set()) {
        let _ = write!(text, "\n## {} {}\n", role.get_name(), task.get_name());
        section(&mut text, task);
    }
    text
}

fn section(text: &mut String, command: &Command) {
    text.push('\n');
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let mut code = false;
    let mut paragraph = String::new();
    for line in about.lines() {
        let is_code = line.starts_with("    ");
        if is_code != code || line.is_empty() {
            paragraph_end(text, &mut paragraph);
        }
        if is_code != code && (is_code || !line.is_empty()) {
            text.push_str(if is_code { "```\n" } else { "```\n\n" });
            code = is_code;
        }
        if code {
            let _ = writeln!(text, "{}", line.strip_prefix("    ").unwrap_or(line));
        } else if !line.is_empty() {
            paragraph.push_str(line);
            paragraph.push(' ');
        }
    }
    paragraph_end(text, &mut paragraph);
    if code {
        text.push_str("```\n\n");
    }
    flags(text, command);
}

/// Writes the paragraph that was collected, in sentences of at most six lines.
fn paragraph_end(text: &mut String, paragraph: &mut String) {
    if paragraph.trim().is_empty() {
        return;
    }
    let mut lines = Vec::new();
    for line in wrap(&escape(paragraph.trim()), "", "") {
        lines.push(line);
    }
    for part in lines.chunks(6) {
        let _ = writeln!(text, "{}\n", part.join("\n"));
    }
    paragraph.clear();
}

fn flags(text: &mut String, command: &Command) {
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        if COMMON.contains(&arg.get_id().as_str()) {
            continue;
        }
        for line in wrap(&describe(arg), "- ", "  ") {
            let _ = writeln!(text, "{line}");
        }
    }
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
    let mut said = format!("{name}: {}", escape(help.trim().trim_end_matches('.')));
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
