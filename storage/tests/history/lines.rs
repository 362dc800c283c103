//! A history as lines of text, for a process that will not live to tell it otherwise. Nothing in here does I/O.
//!
//! ```text
//! asked <number> <client> <name> <moment> get .
//! answered <number> <moment> seen <tag> <version> .
//! ```

use super::record::{Answer, Call, Name, State, Time};

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Asked { number: usize, client: u32, name: Name, moment: Time, call: Call },
    Answered { number: usize, moment: Time, answer: Answer },
}

impl Line {
    pub fn text(&self) -> String {
        match self {
            Self::Asked { number, client, name, moment, call } => {
                let call = match call {
                    Call::Get => "get".to_owned(),
                    Call::Create(tag) => format!("create {tag}"),
                    Call::Update { from, tag } => format!("update {from} {tag}"),
                    Call::Delete { from } => format!("delete {from}"),
                };
                format!("asked {number} {client} {name} {moment} {call} .")
            }
            Self::Answered { number, moment, answer } => {
                let answer = match answer {
                    Answer::Seen(Some(State { tag, version })) => format!("seen {tag} {version}"),
                    Answer::Seen(None) => "nothing".to_owned(),
                    Answer::Done(version) => format!("done {version}"),
                    Answer::Refused => "refused".to_owned(),
                    Answer::NotDone => "not-done".to_owned(),
                    Answer::Unknown(_) => "unknown".to_owned(),
                };
                format!("answered {number} {moment} {answer} .")
            }
        }
    }

    /// Lines of others, and lines that were cut, are none.
    pub fn parse(text: &str) -> Option<Self> {
        let words: Vec<_> = text.strip_suffix(" .")?.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().ok();
        match words[..] {
            ["asked", own, client, name, moment, ref call @ ..] => Some(Self::Asked {
                number: own.parse().ok()?,
                client: client.parse().ok()?,
                name: name.parse().ok()?,
                moment: number(moment)?,
                call: match *call {
                    ["get"] => Call::Get,
                    ["create", tag] => Call::Create(number(tag)?),
                    ["update", from, tag] => Call::Update { from: number(from)?, tag: number(tag)? },
                    ["delete", from] => Call::Delete { from: number(from)? },
                    _ => return None,
                },
            }),
            ["answered", own, moment, ref answer @ ..] => Some(Self::Answered {
                number: own.parse().ok()?,
                moment: number(moment)?,
                answer: match *answer {
                    ["seen", tag, version] => {
                        Answer::Seen(Some(State { tag: number(tag)?, version: number(version)? }))
                    }
                    ["nothing"] => Answer::Seen(None),
                    ["done", version] => Answer::Done(number(version)?),
                    ["refused"] => Answer::Refused,
                    ["not-done"] => Answer::NotDone,
                    ["unknown"] => Answer::Unknown(None),
                    _ => return None,
                },
            }),
            _ => None,
        }
    }
}

#[test]
fn lines_come_back() {
    let calls = [Call::Get, Call::Create(1), Call::Update { from: 2, tag: 3 }, Call::Delete { from: 4 }];
    let answers = [
        Answer::Seen(None),
        Answer::Seen(Some(State { tag: 5, version: 6 })),
        Answer::Done(7),
        Answer::Refused,
        Answer::NotDone,
        Answer::Unknown(None),
    ];
    let asked = calls.map(|call| Line::Asked { number: 8, client: 9, name: 10, moment: 11, call });
    let answered = answers.map(|answer| Line::Answered { number: 8, moment: 12, answer });
    for line in asked.into_iter().chain(answered) {
        let text = line.text();
        assert_eq!(Line::parse(&text), Some(line));
        assert_eq!(Line::parse(&text[..text.len() - 1]), None);
    }
    assert_eq!(Line::parse("running 1 test"), None);
}
