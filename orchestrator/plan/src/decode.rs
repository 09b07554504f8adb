//! From tree nodes to values: each field has a rule that reads it and can say what it allows.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::problem::{Place, Problems, Reported, excerpt, nearest};
use crate::yaml::{Key, Kind, Node};
use crate::{duration, size};

/// Reads the text of a scalar.
pub(crate) trait Rule {
    type Value;
    /// What the field allows, to follow "allowed: ".
    fn allowed(&self) -> String;
    /// The value, or why not.
    fn read(&self, text: &str) -> Result<Self::Value, Refusal>;
}

/// Why a rule refuses a text: more than "not what is allowed", where there is more to say.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    pub(crate) allowed: Option<String>,
    pub(crate) suggestion: Option<String>,
}

/// A whole number, plain decimal digits.
pub(crate) struct WholeNumber(pub(crate) RangeInclusive<u64>);

impl Rule for WholeNumber {
    type Value = u64;

    fn allowed(&self) -> String {
        format!("a whole number from {} to {}", self.0.start(), self.0.end())
    }

    fn read(&self, text: &str) -> Result<u64, Refusal> {
        let plain = text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
        let number = text.parse().ok().filter(|number| plain && self.0.contains(number));
        number.ok_or_else(Refusal::default)
    }
}

/// A whole number that fits `u32`.
pub(crate) struct Count(pub(crate) RangeInclusive<u64>);

impl Rule for Count {
    type Value = u32;

    fn allowed(&self) -> String {
        WholeNumber(self.0.clone()).allowed()
    }

    fn read(&self, text: &str) -> Result<u32, Refusal> {
        let number = WholeNumber(self.0.clone()).read(text)?;
        u32::try_from(number).map_err(|_| Refusal::default())
    }
}

/// A decimal number without an exponent.
pub(crate) struct Decimal(pub(crate) RangeInclusive<f64>);

impl Rule for Decimal {
    type Value = f64;

    fn allowed(&self) -> String {
        format!("a number from {} to {}", self.0.start(), self.0.end())
    }

    fn read(&self, text: &str) -> Result<f64, Refusal> {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let number = text.parse().ok().filter(|number| plain && self.0.contains(number));
        number.ok_or_else(Refusal::default)
    }
}

/// A size in bytes; a bare whole number is bytes.
pub(crate) struct Size {
    pub(crate) range: RangeInclusive<u64>,
    /// What the size is a multiple of.
    pub(crate) step: u64,
}

impl Rule for Size {
    type Value = u64;

    fn allowed(&self) -> String {
        let range = format!("a size from {} to {}", size::exact(*self.range.start()), size::exact(*self.range.end()));
        if self.is_block() { format!("{range} in binary units, a multiple of {} bytes", self.step) } else { range }
    }

    fn read(&self, text: &str) -> Result<u64, Refusal> {
        let bytes = size::parse(text).map_err(|error| self.refuse(&error))?;
        match self.binary(text) {
            None if self.holds(bytes) => Ok(bytes),
            suggestion => Err(Refusal { suggestion, ..Refusal::default() }),
        }
    }
}

impl Size {
    /// Blocks are counted in binary units only.
    fn is_block(&self) -> bool {
        self.step > 1
    }

    fn holds(&self, bytes: u64) -> bool {
        self.range.contains(&bytes) && bytes.is_multiple_of(self.step)
    }

    fn refuse(&self, error: &size::SizeError) -> Refusal {
        let suggestion = match error {
            size::SizeError::Ambiguous { binary, .. } if self.is_block() => Some(binary.clone()),
            _ => error.suggestion().map(str::to_owned),
        };
        let allowed = match error {
            size::SizeError::NotASize => format!("{}, such as 4KiB, 512MiB or 1.6TB", self.allowed()),
            size::SizeError::TooLarge => self.allowed(),
            _ => error.to_string(),
        };
        Refusal { allowed: Some(allowed), suggestion }
    }

    /// The same number in the binary unit, if this is a block in a decimal one. Whoever writes `64KB` for a block
    /// means 64KiB, and 64,000 happens to be a multiple of 512, so it is refused and not measured.
    fn binary(&self, text: &str) -> Option<String> {
        let (number, unit) = text.split_at_checked(text.len().checked_sub(2)?)?;
        let binary = format!("{}{}iB", number.trim_end(), unit.strip_suffix('B')?.to_ascii_uppercase());
        let block = self.is_block() && size::parse(&binary).is_ok_and(|bytes| self.holds(bytes));
        block.then_some(binary)
    }
}

/// A duration in whole seconds.
pub(crate) struct Seconds(pub(crate) RangeInclusive<u64>);

impl Rule for Seconds {
    type Value = u32;

    fn allowed(&self) -> String {
        format!("whole seconds from {} to {}", duration::exact(*self.0.start()), duration::exact(*self.0.end()))
    }

    fn read(&self, text: &str) -> Result<u32, Refusal> {
        let seconds = duration::parse(text).map_err(|error| self.refuse(&error))?;
        let in_range = Some(seconds).filter(|seconds| self.0.contains(seconds));
        in_range.and_then(|seconds| u32::try_from(seconds).ok()).ok_or_else(Refusal::default)
    }
}

impl Seconds {
    fn refuse(&self, error: &duration::DurationError) -> Refusal {
        let allowed = match error {
            duration::DurationError::NotADuration | duration::DurationError::NoUnit { .. } => {
                Some(format!("{}, such as 90s, 30m or 1h30m", self.allowed()))
            }
            duration::DurationError::Fraction | duration::DurationError::Negative => None,
        };
        Refusal { allowed, suggestion: error.suggestion().map(str::to_owned) }
    }
}

/// One of a few words.
pub(crate) struct Choice<'a, T>(pub(crate) &'a [(&'static str, T)]);

impl<T: Copy> Rule for Choice<'_, T> {
    type Value = T;

    fn allowed(&self) -> String {
        list(self.0.iter().map(|(word, _)| word))
    }

    fn read(&self, text: &str) -> Result<T, Refusal> {
        let chosen = self.0.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        chosen.ok_or_else(|| Refusal {
            suggestion: nearest(text, self.0.iter().map(|(word, _)| *word)),
            ..Refusal::default()
        })
    }
}

/// `true` or `false`.
pub(crate) const BOOLEAN: Choice<'static, bool> = Choice(&[("true", true), ("false", false)]);

/// Free text on one line.
pub(crate) struct Text(pub(crate) RangeInclusive<usize>);

impl Rule for Text {
    type Value = String;

    fn allowed(&self) -> String {
        format!("a text of {} to {} characters on one line", self.0.start(), self.0.end())
    }

    fn read(&self, text: &str) -> Result<String, Refusal> {
        let fits =
            self.0.contains(&text.chars().count()) && !text.contains(char::is_control) && !text.trim().is_empty();
        if fits { Ok(text.to_owned()) } else { Err(Refusal::default()) }
    }
}

/// A name that can be part of a file name and a link.
pub(crate) struct Name(pub(crate) RangeInclusive<usize>);

impl Rule for Name {
    type Value = String;

    fn allowed(&self) -> String {
        format!("a name of {} to {} characters: a-z, A-Z, 0-9, `-`, `_` and `.`", self.0.start(), self.0.end())
    }

    fn read(&self, text: &str) -> Result<String, Refusal> {
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if plain && self.0.contains(&text.len()) && text.bytes().any(|byte| byte != b'.') {
            Ok(text.to_owned())
        } else {
            Err(Refusal::default())
        }
    }
}

/// Words in a row for a message: `a, b or c`.
pub(crate) fn list<T: Display>(words: impl IntoIterator<Item = T>) -> String {
    let mut words: Vec<String> = words.into_iter().map(|word| word.to_string()).collect();
    match words.pop() {
        None => String::new(),
        Some(last) if words.is_empty() => last,
        Some(last) => format!("{} or {last}", words.join(", ")),
    }
}

/// Reads one value.
pub(crate) fn value<R: Rule>(
    rule: &R,
    node: &Node,
    field: &str,
    problems: &mut Problems,
) -> Result<R::Value, Reported> {
    let refusal = match &node.kind {
        Kind::Scalar(text) => match rule.read(text) {
            Ok(value) => return Ok(value),
            Err(refusal) => refusal,
        },
        Kind::Nothing | Kind::Sequence(_) | Kind::Mapping(_) => Refusal::default(),
    };
    let allowed = refusal.allowed.unwrap_or_else(|| rule.allowed());
    Err(problems.add(node.place, field, node.found(), allowed, refusal.suggestion))
}

/// The items of a list, at least and at most as many as `allowed` says.
pub(crate) fn items<'n>(
    node: &'n Node,
    field: &str,
    allowed: RangeInclusive<usize>,
    what: &str,
    problems: &mut Problems,
) -> Result<&'n [Node], Reported> {
    let found = match &node.kind {
        Kind::Sequence(items) if allowed.contains(&items.len()) => return Ok(items),
        Kind::Sequence(items) => format!("a list of {}", items.len()),
        Kind::Nothing | Kind::Scalar(_) | Kind::Mapping(_) => node.found(),
    };
    let allowed = format!("a list of {} to {} {what}", allowed.start(), allowed.end());
    Err(problems.add(node.place, field, found, allowed, None))
}

/// The fields of a mapping.
pub(crate) struct Fields<'n> {
    /// Where the mapping, or its own field's name, stands.
    pub(crate) place: Place,
    /// Path of the mapping; empty for the plan itself.
    pub(crate) path: String,
    values: HashMap<&'n str, &'n Node>,
    /// Names that unknown fields were probably meant to be; they are not reported as missing as well.
    suggested: HashSet<String>,
}

impl<'n> Fields<'n> {
    /// The fields of `node`; unknown and repeated ones are reported. `Err` only if it is no mapping.
    pub(crate) fn of(node: &'n Node, path: &str, names: &[&str], problems: &mut Problems) -> Result<Self, Reported> {
        let Kind::Mapping(entries) = &node.kind else {
            let allowed = format!("the fields {}", names.join(", "));
            return Err(problems.add(node.place, path, node.found(), allowed, None));
        };
        let mut fields =
            Self { place: node.place, path: path.to_owned(), values: HashMap::new(), suggested: HashSet::new() };
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (key, value) in entries {
            if let Some(line) = seen.get(&*key.name) {
                let found = format!("{} a second time (first at line {line})", excerpt(&key.name));
                problems.add(key.place, path, found, "each field once", None);
            } else if names.contains(&&*key.name) {
                fields.values.insert(&key.name, value);
            } else {
                fields.unknown(key, names, problems);
            }
            seen.entry(&key.name).or_insert(key.place.line);
        }
        Ok(fields)
    }

    fn unknown(&mut self, key: &Key, names: &[&str], problems: &mut Problems) {
        let found = format!("the unknown field {}", excerpt(&key.name));
        let suggestion = nearest(&key.name, names.iter().copied());
        self.suggested.extend(suggestion.clone());
        problems.add(key.place, &self.path, found, format!("the fields {}", names.join(", ")), suggestion);
    }

    /// Path of a field of this mapping.
    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The field's value if the plan has it.
    pub(crate) fn node(&self, name: &str) -> Option<&'n Node> {
        self.values.get(name).copied()
    }

    /// Where the field's value stands, or else the mapping.
    pub(crate) fn place_of(&self, name: &str) -> Place {
        self.node(name).map_or(self.place, |node| node.place)
    }

    /// Reads a field that may be left out.
    pub(crate) fn optional<R: Rule>(
        &self,
        name: &str,
        rule: &R,
        problems: &mut Problems,
    ) -> Result<Option<R::Value>, Reported> {
        self.node(name).map(|node| value(rule, node, &self.path_of(name), problems)).transpose()
    }

    /// Reads a field that must be there.
    pub(crate) fn required<R: Rule>(
        &self,
        name: &str,
        rule: &R,
        problems: &mut Problems,
    ) -> Result<R::Value, Reported> {
        match self.node(name) {
            Some(node) => value(rule, node, &self.path_of(name), problems),
            None => Err(self.missing(name, &rule.allowed(), problems)),
        }
    }

    /// The node of a field that must be there.
    pub(crate) fn required_node(
        &self,
        name: &str,
        allowed: &str,
        problems: &mut Problems,
    ) -> Result<&'n Node, Reported> {
        self.node(name).ok_or_else(|| self.missing(name, allowed, problems))
    }

    pub(crate) fn missing(&self, name: &str, allowed: &str, problems: &mut Problems) -> Reported {
        if self.suggested.contains(name) {
            return Reported;
        }
        problems.add(self.place, &self.path_of(name), "nothing", allowed, None)
    }
}
