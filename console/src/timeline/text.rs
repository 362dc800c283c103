//! Bars as text.

use jiff::Timestamp;

use super::{Bar, Chart, Detail, scale::Scale};
use crate::{
    migration::Migration,
    text::{duration, one_line},
};

/// Which characters a terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// Blocks of Unicode.
    Unicode,
    /// ASCII alone.
    Ascii,
}

/// Fewest columns that bars get.
const LEAST: u32 = 20;
/// Columns of the side, and of times behind bars.
const SIDE: usize = 11;
const TIME: usize = 8;

/// The timeline in this width, in columns. The bars of each side stand below each other, and the outage below all of them.
#[must_use]
pub fn text(migration: &Migration, detail: Detail, width: u32, charset: Charset, now: Timestamp) -> String {
    text_of(&Chart::of(migration, detail, now), width, charset, now)
}

/// A chart as text in this width.
#[must_use]
pub fn text_of(chart: &Chart<'_>, width: u32, charset: Charset, now: Timestamp) -> String {
    let names = chart.bars().map(|bar| bar.name.chars().count()).max().unwrap_or_default();
    let taken = u32::try_from(SIDE + 1 + names + 2 + TIME + 1).unwrap_or(u32::MAX);
    let width = width.saturating_sub(taken).max(LEAST);
    let times: Vec<Timestamp> = chart.bars().flat_map(|bar| [bar.from, bar.to.unwrap_or(now)]).collect();
    let mut text = one_line(&chart.title) + "\n";
    let Some(scale) = Scale::new(times.into_iter(), width) else {
        return text + "Nothing has begun.\n";
    };
    let indent = " ".repeat(SIDE + 1 + names + 2);
    text.push_str(&format!("\n{indent}{}\n", axis(&scale, width)));
    let line = |side: &str, bar: &Bar<'_>| {
        let drawn = draw(bar, &scale, width, charset, now);
        let tail = duration(bar.seconds(now)) + mark(bar.state);
        let line = format!("{side:SIDE$} {:names$}  {drawn} {tail}", one_line(bar.name));
        line.trim_end().to_owned() + "\n"
    };
    for lane in &chart.lanes {
        for (at, bar) in lane.bars.iter().enumerate() {
            text.push_str(&line(if at == 0 { lane.side } else { "" }, bar));
        }
    }
    if let Some(bar) = &chart.outage {
        text.push_str(&line("", bar));
    }
    text
}

/// What stands behind the time of a bar.
fn mark(state: &str) -> &'static str {
    match state {
        "Running" => " running",
        "Failed" => " failed",
        "Skipped" => " skipped",
        "RolledBack" => " rolled back",
        _ => "",
    }
}

/// Marks of time, as far as they have room.
fn axis(scale: &Scale, width: u32) -> String {
    let mut line = String::new();
    for (seconds, place) in scale.marks(width / 10) {
        let (place, label) = (place as usize, format!("|{}", duration(seconds)));
        let length = line.chars().count();
        if place < length || place + label.len() > width as usize + TIME {
            continue;
        }
        line.push_str(&" ".repeat(place - length));
        line.push_str(&label);
        line.push(' ');
    }
    line.trim_end().to_owned()
}

/// A bar of one column at least.
fn draw(bar: &Bar<'_>, scale: &Scale, width: u32, charset: Charset, now: Timestamp) -> String {
    let from = scale.place(bar.from).min(width.saturating_sub(1));
    let to = scale.place(bar.to.unwrap_or(now)).clamp(from + 1, width);
    let (unicode, ascii) = match bar.state {
        "" => ('▒', 'x'),
        "Running" => ('▶', '>'),
        "Failed" => ('▚', '!'),
        "Skipped" => ('░', '-'),
        _ => ('█', '='),
    };
    let filled = if charset == Charset::Unicode { unicode } else { ascii };
    let column = |at| if (from..to).contains(&at) { filled } else { ' ' };
    (0..width).map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migration::tests::{classic, read};

    fn now() -> Timestamp {
        "2026-11-28T06:00:00Z".parse().expect("a time")
    }

    #[test]
    fn bars_of_each_side_are_on_one_scale_and_the_outage_is_below() {
        let text = text(&read(classic()), Detail::Applied, 80, Charset::Ascii, now());
        let expected = "\
garden-dev/alpha-to-b  Classic  seed-a -> seed-b  Succeeded in 1m05s, API outage 7s

                              |0s         |20s         |40s        |1m00s
garden      TurnTaken         =                                         2s
source      SourceServes       ====                                     5s
            SourceApiStopped                                      =     2s
destination MoveCommitted                                            =  1s
            ApiDnsSwitched                                            = 1s
            API outage                                            xxxxx 7s
";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn step_that_was_not_brought_to_its_end_ran_until_the_migration_went_back() {
        let mut object = classic();
        let step = |name: &str, state: &str, from: &str| serde_json::json!({"name": name, "state": state, "startTime": format!("2026-11-28T05:{from}Z")});
        object["status"] = serde_json::json!({"phase": "RolledBack", "source": {"phase": "RolledBack", "steps": [
            step("StateSynced", "RolledBack", "14:10"), step("SourceApiRestored", "Running", "14:30"),
        ]}});
        let text = text(&read(object), Detail::Applied, 80, Charset::Ascii, now());
        let bar = text.lines().find(|line| line.contains("StateSynced")).unwrap_or_default();
        assert!(bar.ends_with("20s rolled back"), "{text}");
    }

    #[test]
    fn migration_that_has_not_begun_has_no_bars() {
        let mut object = classic();
        object["status"] = serde_json::json!({});
        let text = text(&read(object), Detail::All, 80, Charset::Unicode, now());
        assert!(text.ends_with("Nothing has begun.\n"), "{text}");
    }

    #[test]
    fn narrow_terminal_and_times_far_apart_keep_their_bounds() {
        let mut object = classic();
        object["status"]["source"]["steps"][0]["startTime"] = serde_json::json!("0001-01-01T00:00:00Z");
        for width in [0, 10, 500] {
            let text = text(&read(object.clone()), Detail::All, width, Charset::Unicode, now());
            assert!(text.lines().all(|line| line.chars().count() <= width.max(80) as usize + 20), "{text}");
        }
    }
}
