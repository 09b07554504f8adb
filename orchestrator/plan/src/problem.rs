//! What is wrong with a plan: each problem with its place, what was found and what is allowed.

use std::fmt;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};
use serde::Serialize;

use crate::limits::MAX_PROBLEMS;

/// Longest excerpt of the plan in a message, characters.
const MAX_EXCERPT_CHARS: usize = 60;

/// Longest misspelt name for which a near one is looked for, bytes; names of fields and profiles are shorter.
const MAX_NAME_BYTES: usize = 64;

/// Similarity (Jaro-Winkler, 0 to 1) from which a name counts as misspelt; below it a suggestion misleads.
const NEAR: f64 = 0.75;

/// A place in the plan's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// From 1.
    pub(crate) line: usize,
    /// In characters, from 1.
    pub(crate) column: usize,
    /// Bytes from the start of the text.
    pub(crate) offset: usize,
    /// Bytes that are marked.
    pub(crate) length: usize,
}

impl Place {
    /// The start of the text.
    pub(crate) const START: Self = Self { line: 1, column: 1, offset: 0, length: 0 };
}

/// One problem of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Line in the file, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Path of the field (`workloads[1].block`); empty for the file as a whole.
    pub field: String,
    /// What the plan says there.
    pub found: String,
    /// What it may say.
    pub allowed: String,
    /// What was probably meant, ready to be put in its place.
    pub suggestion: Option<String>,
    #[serde(skip)]
    offset: usize,
    #[serde(skip)]
    length: usize,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "found {}; allowed: {}", self.found, self.allowed)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; did you mean `{suggestion}`?"),
            None => Ok(()),
        }
    }
}

/// The problems found so far, in the order of discovery.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    list: Vec<Problem>,
    omitted: usize,
}

/// A problem was reported; there is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reported;

impl Problems {
    /// Adds a problem, or counts it once the list is full.
    pub(crate) fn add(
        &mut self,
        place: Place,
        field: &str,
        found: impl Into<String>,
        allowed: impl Into<String>,
        suggestion: Option<String>,
    ) -> Reported {
        if self.list.len() == MAX_PROBLEMS {
            self.omitted += 1;
        } else {
            self.list.push(Problem {
                line: place.line,
                column: place.column,
                field: field.to_owned(),
                found: found.into(),
                allowed: allowed.into(),
                suggestion,
                offset: place.offset,
                length: place.length,
            });
        }
        Reported
    }

    /// The value if there was no problem at all, else the problems.
    pub(crate) fn conclude<T>(
        self,
        value: Result<T, Reported>,
        source_name: &str,
        text: &str,
    ) -> Result<T, PlanErrors> {
        match value {
            Ok(value) if self.list.is_empty() => Ok(value),
            _ => Err(self.into_errors(source_name, text)),
        }
    }

    /// The problems in the order of the file.
    pub(crate) fn into_errors(mut self, source_name: &str, text: &str) -> PlanErrors {
        self.list.sort_by_key(|problem| problem.offset);
        let source = Box::new(NamedSource::new(source_name, text.to_owned()).with_language("yaml"));
        PlanErrors { source, problems: self.list, omitted: self.omitted }
    }
}

/// All problems that were found in one plan, in the order of the file; at least one.
///
/// `Display` is plain text, a line a problem (`plan.yaml:12:5: workers.count: found 0; allowed: …`). As a
/// [`miette::Diagnostic`] it also shows the lines themselves. Serialised it is
/// `{"file", "problems": [{"line", "column", "field", "found", "allowed", "suggestion"}], "omitted"}`.
#[derive(Debug, Clone)]
pub struct PlanErrors {
    source: Box<NamedSource<String>>,
    problems: Vec<Problem>,
    omitted: usize,
}

impl PlanErrors {
    /// The file's name as it was given.
    #[must_use]
    pub fn file(&self) -> &str {
        self.source.name()
    }

    /// The problems in the order of the file.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Problems beyond the limit of the list ([`MAX_PROBLEMS`]).
    #[must_use]
    pub fn omitted(&self) -> usize {
        self.omitted
    }
}

impl fmt::Display for PlanErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}:{}:{}: {problem}", self.file(), problem.line, problem.column)?;
        }
        match self.omitted {
            0 => Ok(()),
            omitted => write!(f, "\n{}: and {omitted} more", self.file()),
        }
    }
}

impl std::error::Error for PlanErrors {}

impl Diagnostic for PlanErrors {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&*self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.problems.iter().map(|problem| {
            let label = match &problem.suggestion {
                Some(suggestion) => format!("did you mean `{suggestion}`?"),
                None => format!("allowed: {}", problem.allowed),
            };
            LabeledSpan::new(Some(label), problem.offset, problem.length)
        })))
    }
}

impl Serialize for PlanErrors {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            file: &'a str,
            problems: &'a [Problem],
            omitted: usize,
        }
        Form { file: self.file(), problems: &self.problems, omitted: self.omitted }.serialize(serializer)
    }
}

/// An excerpt of the plan for a message: short, on one line, without control characters.
pub(crate) fn excerpt(text: &str) -> String {
    let shown: String = text.chars().take(MAX_EXCERPT_CHARS).flat_map(char::escape_debug).collect();
    let rest = if text.chars().nth(MAX_EXCERPT_CHARS).is_some() { "…" } else { "" };
    format!("`{}{rest}`", shown.replace("\\\"", "\"").replace("\\'", "'"))
}

/// The name that was probably meant, if one is near.
pub(crate) fn nearest<'a>(found: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    if found.len() > MAX_NAME_BYTES {
        return None;
    }
    let found = found.to_lowercase().replace(['_', ' '], "-");
    names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&found, &name.to_lowercase().replace('_', "-")), name))
        .filter(|(similarity, _)| *similarity >= NEAR)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, name)| name.to_owned())
}
