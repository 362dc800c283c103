//! `kubectl repot`: the same program under the name that kubectl looks for, with the commands of operators alone in its help.

use std::{ffi::OsString, path::Path};

use clap::{Command, CommandFactory, FromArgMatches};

use crate::Cli;

/// The name by which kubectl finds a plugin.
const PLUGIN: &str = "kubectl-repot";
/// Commands of people. The others run servers and agents, and stay possible.
const OPERATORS: [&str; 24] = [
    "plan",
    "migrate",
    "status",
    "timeline",
    "ui",
    "history",
    "abort",
    "pause",
    "resume",
    "retry",
    "force-shrink",
    "confirm",
    "drain",
    "isolate",
    "failback",
    "etcd",
    "doctor",
    "rehearse",
    "preflight",
    "owner",
    "snapshots",
    "certs",
    "example",
    "completion",
];

/// What a first-time reader does with them.
const LESSON: &str = "A move, from the first question to the last:
  kubectl repot plan alpha --to seed-b        what it will do, how long that takes, what is against it
  kubectl repot migrate alpha --to seed-b     asks, and starts it
  kubectl repot status alpha                  what it waits for, and what you can do
  kubectl repot abort alpha                   back to the source, until the point of no return
  kubectl repot timeline alpha                what took how long, and when the API was away
  kubectl repot history alpha                 all moves of the Shoot
  kubectl repot ui                            all of it in a browser";

/// Reads the command line. Bad usage ends the program with exit code 2.
pub fn parse() -> Cli {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let is_plugin = arguments.first().is_some_and(|name| is_plugin(Path::new(name)));
    let command = command(is_plugin);
    let matches = command.get_matches_from(arguments);
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// How this program was called: what commands that it names begin with.
pub fn called() -> &'static str {
    let program = std::env::args_os().next().unwrap_or_default();
    if is_plugin(Path::new(&program)) { "kubectl repot" } else { "repot" }
}

fn is_plugin(program: &Path) -> bool {
    program.file_stem().is_some_and(|name| name == PLUGIN)
}

fn command(is_plugin: bool) -> Command {
    let command = Cli::command();
    if !is_plugin {
        return command;
    }
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let hidden = names.into_iter().filter(|name| !OPERATORS.contains(&name.as_str()));
    let command = command.bin_name("kubectl repot").after_help(LESSON);
    hidden.fold(command, |command, name| command.mut_subcommand(name, |one| one.hide(true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_shows_the_commands_of_people_and_still_has_the_others() {
        let mut plugin = command(true);
        plugin.build();
        let shown = plugin.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help");
        let mut shown: Vec<&str> = shown.map(Command::get_name).collect();
        let mut wanted = OPERATORS.to_vec();
        shown.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(shown, wanted);
        assert!(plugin.find_subcommand("apiserver").is_some());
        assert!(plugin.render_help().to_string().contains("kubectl repot [OPTIONS] <COMMAND>"));
    }

    #[test]
    fn program_is_a_plugin_by_its_name() {
        for (name, wanted) in
            [("/usr/bin/kubectl-repot", true), ("kubectl-repot.exe", true), ("/usr/local/bin/repot", false)]
        {
            assert_eq!(is_plugin(Path::new(name)), wanted, "{name}");
        }
    }
}
