//! Pages about an installation, whose commands a test runs as printed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use repot_tests::{TestEnv, binaries, tool};
use tokio::process::Command;

/// Programs that commands of pages use.
const PROGRAMS: [&str; 2] = ["kubectl", "helm"];

/// A block of code below a heading.
#[derive(Clone, Debug, PartialEq)]
struct Block {
    heading: String,
    language: String,
    text: String,
}

/// Pages, and a directory like a checkout in which their commands run.
pub struct Pages {
    blocks: Vec<Block>,
    dir: PathBuf,
    programs: PathBuf,
    variables: Vec<(String, String)>,
}

impl Pages {
    /// Reads pages below `docs`; their commands see these variables.
    pub fn open(env: &TestEnv, pages: &[&str], variables: &[(&str, String)]) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
        let read = |page: &&str| {
            let text =
                fs::read_to_string(root.join("docs").join(page)).with_context(|| (*page).to_owned())?;
            anyhow::Ok(blocks(&text))
        };
        let blocks = pages.iter().map(read).collect::<Result<Vec<_>>>()?.concat();
        let (dir, programs) = (env.make_dir("checkout")?, env.make_dir("programs")?);
        symlink(root.join("deploy"), dir.join("deploy"))?;
        for program in PROGRAMS {
            symlink(binaries::find(program)?, programs.join(program))?;
        }
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Ok(Self { blocks, dir, programs, variables })
    }

    /// All blocks of a language below a heading, one after the other.
    ///
    /// Errors: when there is none.
    pub fn text(&self, heading: &str, language: &str) -> Result<String> {
        let found = self.blocks.iter().filter(|block| block.heading == heading && block.language == language);
        let text: String = found.map(|block| block.text.as_str()).collect();
        ensure!(!text.is_empty(), "below {heading:?} there is no block of {language}");
        Ok(text)
    }

    /// Writes a file in the directory of the commands.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.dir.join(name), text)?)
    }

    /// Runs the commands below these headings as one script, which ends at the first that fails; gives what they print.
    pub async fn run(&self, headings: &[&str]) -> Result<String> {
        let scripts: Result<Vec<_>> = headings.iter().map(|heading| self.text(heading, "sh")).collect();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command.args(["-eux", "-c", &scripts?.concat()]).current_dir(&self.dir).env("HOME", &self.dir);
        command.env("PATH", format!("{}:{path}", self.programs.display())).envs(self.variables.clone());
        command.env("HELM", self.programs.join("helm"));
        tool::run(command, b"").await?.text()
    }
}

fn blocks(text: &str) -> Vec<Block> {
    let (mut found, mut heading, mut open) = (Vec::new(), String::new(), None::<Block>);
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                let (heading, language) = (heading.clone(), language.to_owned());
                open = Some(Block { heading, language, text: String::new() });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => block.text.extend([line, "\n"]),
            (None, None) if line.starts_with('#') => {
                line.trim_start_matches('#').trim().clone_into(&mut heading);
            }
            (None, None) => {}
        }
    }
    found
}

#[test]
fn blocks_belong_to_the_heading_above_them() {
    let page = "# A\n```yaml\na: 1\n```\ntext\n## 1. B\n```sh\n# no heading\nls\n```\n";
    let block = |heading: &str, language: &str, text: &str| Block {
        heading: heading.to_owned(),
        language: language.to_owned(),
        text: text.to_owned(),
    };
    assert_eq!(blocks(page), [block("A", "yaml", "a: 1\n"), block("1. B", "sh", "# no heading\nls\n")]);
}
