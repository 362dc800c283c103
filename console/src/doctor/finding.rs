//! What a check has found, and the report of all checks.

use serde::Serialize;

use crate::text::one_line;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// It is as it has to be.
    Ok,
    /// It could not be looked at, such as for lack of rights.
    NotChecked,
    /// It works, and somebody should look at it.
    Warning,
    /// Something does not work.
    Problem,
}

/// What a check has found at one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The object or server that is meant.
    #[serde(rename = "where")]
    pub subject: String,
    /// What was found.
    #[serde(rename = "what")]
    pub message: String,
    /// What to do about it; empty where there is nothing to do.
    #[serde(rename = "todo", skip_serializing_if = "String::is_empty")]
    pub advice: String,
}

impl Finding {
    fn new(
        severity: Severity,
        check: &'static str,
        subject: impl AsRef<str>,
        message: impl AsRef<str>,
        advice: impl AsRef<str>,
    ) -> Self {
        let [subject, message, advice] = [subject.as_ref(), message.as_ref(), advice.as_ref()].map(one_line);
        Self { check, severity, subject, message, advice }
    }

    /// It is as it has to be.
    #[must_use]
    pub fn ok(check: &'static str, subject: impl AsRef<str>, message: impl AsRef<str>) -> Self {
        Self::new(Severity::Ok, check, subject, message, "")
    }

    /// It could not be looked at, for this reason.
    #[must_use]
    pub fn not_checked(check: &'static str, subject: impl AsRef<str>, reason: impl AsRef<str>) -> Self {
        Self::new(Severity::NotChecked, check, subject, format!("not checked: {}", reason.as_ref()), "")
    }

    /// It works, and somebody should look at it.
    #[must_use]
    pub fn warning(
        check: &'static str,
        subject: impl AsRef<str>,
        message: impl AsRef<str>,
        advice: impl AsRef<str>,
    ) -> Self {
        Self::new(Severity::Warning, check, subject, message, advice)
    }

    /// Something does not work.
    #[must_use]
    pub fn problem(
        check: &'static str,
        subject: impl AsRef<str>,
        message: impl AsRef<str>,
        advice: impl AsRef<str>,
    ) -> Self {
        Self::new(Severity::Problem, check, subject, message, advice)
    }
}

/// What all checks have found, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// All findings of all checks.
    pub findings: Vec<Finding>,
}

impl Report {
    /// How many findings are as bad as this.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// Whether nothing that was looked at is broken.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.count(Severity::Problem) == 0
    }

    /// One line for each finding, a second one with what to do, and a sum. `wide` shows each object that is well, too.
    #[must_use]
    pub fn text(&self, wide: bool) -> String {
        let mut text = String::new();
        let mut shown: Vec<&'static str> = Vec::new();
        for finding in &self.findings {
            let is_first = !shown.contains(&finding.check);
            if finding.severity == Severity::Ok && !wide && !is_first {
                continue;
            }
            shown.push(finding.check);
            text.push_str(&self.line(finding, wide));
        }
        let [problems, warnings, unchecked, ok] =
            [Severity::Problem, Severity::Warning, Severity::NotChecked, Severity::Ok]
                .map(|severity| self.count(severity));
        text.push_str(&format!(
            "\n{problems} problems, {warnings} warnings, {unchecked} not checked, {ok} ok\n"
        ));
        text
    }

    fn line(&self, finding: &Finding, wide: bool) -> String {
        let mark = match finding.severity {
            Severity::Ok => "ok",
            Severity::NotChecked => "-",
            Severity::Warning => "warning",
            Severity::Problem => "PROBLEM",
        };
        let is_ok = |other: &&Finding| other.check == finding.check && other.severity == Severity::Ok;
        let more = match finding.severity {
            Severity::Ok if !wide => self.findings.iter().filter(is_ok).count() - 1,
            _ => 0,
        };
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        let subject = match finding.subject.as_str() {
            "" => String::new(),
            subject => format!("{subject}: "),
        };
        let mut line = format!("{mark:<8} {:<15} {subject}{}{more}\n", finding.check, finding.message);
        if !finding.advice.is_empty() {
            line.push_str(&format!("{:<24} -> {}\n", "", finding.advice));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_names_what_is_broken_and_counts_what_is_well() {
        let findings = vec![
            Finding::ok("pods", "Pod/a", "runs"),
            Finding::ok("pods", "Pod/b", "runs"),
            Finding::problem("pods", "Pod/c", "does not run", "see its log"),
            Finding::not_checked("seeds", "", "forbidden"),
        ];
        let report = Report { findings };
        let expected = "\
ok       pods            Pod/a: runs (and 1 more)
PROBLEM  pods            Pod/c: does not run
                         -> see its log
-        seeds           not checked: forbidden

1 problems, 0 warnings, 1 not checked, 2 ok
";
        assert_eq!(report.text(false), expected);
        assert!(report.text(true).contains("Pod/b: runs\n") && !report.is_well());
    }

    #[test]
    fn text_of_others_has_no_terminal_escapes() {
        let finding = Finding::warning("pods", "a\u{1b}[31m", "b\r\nc", "d");
        assert!(!Report { findings: vec![finding] }.text(false).contains(['\u{1b}', '\r']));
    }
}
