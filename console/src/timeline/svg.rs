//! Bars as SVG: one picture for pages, reports and the web page. It names no font file and loads nothing.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::{Bar, Chart, Detail, scale::Scale};
use crate::{migration::Migration, text::duration};

const WIDTH: u32 = 960;
const NAMES: u32 = 230;
const TIMES: u32 = 90;
const ROW: u32 = 20;
const HEAD: u32 = 52;

/// Colours for light and dark backgrounds. A reader who sees no colours has the words behind the bars.
const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#1f2328}.side{font-weight:600}.quiet{fill:#59636e}\
.mark{stroke:#d1d9e0}.Succeeded{fill:#0969da}.Running{fill:#bf8700}.Failed{fill:#cf222e}.Skipped{fill:#afb8c1}\
.RolledBack{fill:#8250df}.Pending{fill:#afb8c1}.outage{fill:#cf222e;opacity:.25}.back{fill:#fff}\
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.quiet{fill:#9198a1}.mark{stroke:#3d444d}.Succeeded{fill:#4493f8}\
.Running{fill:#d29922}.Failed{fill:#f85149}.Skipped,.Pending{fill:#656c76}.RolledBack{fill:#ab7df8}.outage{fill:#f85149}\
.back{fill:#0d1117}}";

/// The timeline as a document of SVG.
#[must_use]
pub fn svg(migration: &Migration, detail: Detail, now: Timestamp) -> String {
    svg_of(&Chart::of(migration, detail, now), now)
}

/// A chart as a document of SVG.
#[must_use]
pub fn svg_of(chart: &Chart<'_>, now: Timestamp) -> String {
    let rows = u32::try_from(chart.bars().count()).unwrap_or(u32::MAX).min(1000);
    let height = HEAD + ROW * rows + ROW;
    let title = escape(&chart.title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"title\">\n\
         <title id=\"title\">{title}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\"/>\n<text x=\"8\" y=\"20\" class=\"side\">{title}</text>\n",
    );
    let times: Vec<Timestamp> = chart.bars().flat_map(|bar| [bar.from, bar.to.unwrap_or(now)]).collect();
    if let Some(scale) = Scale::new(times.into_iter(), WIDTH - NAMES - TIMES) {
        write_marks(&mut svg, &scale, height);
        if let Some(bar) = &chart.outage {
            write_outage(&mut svg, bar, &scale, height, now);
        }
        let mut y = HEAD;
        for lane in &chart.lanes {
            for (at, bar) in lane.bars.iter().enumerate().take(1000) {
                write_bar(&mut svg, if at == 0 { lane.side } else { "" }, bar, &scale, y, now);
                y += ROW;
            }
        }
        if let Some(bar) = &chart.outage {
            write_bar(&mut svg, "", bar, &scale, y, now);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn write_marks(svg: &mut String, scale: &Scale, height: u32) {
    for (seconds, place) in scale.marks(8) {
        let (x, bottom, label) = (NAMES + place, height - ROW / 2, duration(seconds));
        // Writing to a String does not fail.
        let _ = writeln!(
            svg,
            "<line class=\"mark\" x1=\"{x}\" x2=\"{x}\" y1=\"{}\" y2=\"{bottom}\"/><text class=\"quiet\" x=\"{x}\" y=\"{}\" \
             text-anchor=\"middle\">{label}</text>",
            HEAD - 8,
            HEAD - 12
        );
    }
}

fn write_outage(svg: &mut String, bar: &Bar<'_>, scale: &Scale, height: u32, now: Timestamp) {
    let (from, to) = (scale.place(bar.from), scale.place(bar.to.unwrap_or(now)));
    let _ = writeln!(
        svg,
        "<rect class=\"outage\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
        NAMES + from,
        HEAD - 8,
        to.saturating_sub(from).max(1),
        height - HEAD
    );
}

fn write_bar(svg: &mut String, side: &str, bar: &Bar<'_>, scale: &Scale, y: u32, now: Timestamp) {
    let (from, to) = (scale.place(bar.from), scale.place(bar.to.unwrap_or(now)));
    let width = to.saturating_sub(from).max(2);
    let class = match bar.state {
        "Succeeded" | "Running" | "Failed" | "Skipped" | "RolledBack" => bar.state,
        "" => "Failed",
        _ => "Pending",
    };
    let state = if matches!(bar.state, "" | "Succeeded") { String::new() } else { format!(" {}", bar.state) };
    let (name, tail) = (escape(bar.name), escape(&(duration(bar.seconds(now)) + &state)));
    let text = y + 11;
    let _ = writeln!(
        svg,
        "<text class=\"side\" x=\"8\" y=\"{text}\">{side}</text><text x=\"84\" y=\"{text}\">{name}</text>\
         <rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"14\" rx=\"2\"><title>{name}: {tail}</title></rect>\
         <text class=\"quiet\" x=\"{end}\" y=\"{text}\">{tail}</text>",
        x = NAMES + from,
        end = NAMES + from + width + 4,
    );
}

/// Text for an element of XML.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in crate::text::one_line(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::migration::tests::{classic, read};

    #[test]
    fn picture_names_each_step_once_and_escapes_what_others_wrote() {
        let mut object = classic();
        object["status"]["source"]["steps"][0]["name"] = json!("<script>\u{7}");
        let now = "2026-11-28T06:00:00Z".parse().expect("a time");
        let svg = svg(&read(object), Detail::Applied, now);
        assert!(!svg.contains("<script>") && svg.contains("&lt;script&gt; "), "{svg}");
        for step in ["TurnTaken", "SourceApiStopped", "MoveCommitted", "ApiDnsSwitched", "API outage"] {
            assert_eq!(svg.matches(&format!("\">{step}</text>")).count(), 1, "{step}");
        }
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }
}
