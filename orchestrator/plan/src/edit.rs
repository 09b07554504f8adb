//! Reading and changing single fields of a plan's text, so that a form and the text are two views of one plan: comments, order and
//! whatever the form does not know stay as they are.

use std::ops::Range;

use crate::problem::Problems;
use crate::yaml::{self, Key, Kind, Node};

/// Why a field cannot be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The text is no YAML, so nothing in it has a place.
    #[error("the text is not well-formed YAML: mend it first")]
    Malformed,
    /// The text is no group of fields, or what should hold the field is none.
    #[error("there is no group of fields to put it into: change the text")]
    NoGroup,
}

/// An entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// One word or value.
    Value(String),
    /// A group of fields, by its `name`, else its `profile`.
    Group(String),
}

/// The value of a field (`sample`, `workers.count`); none where it is absent or no single value.
#[must_use]
pub fn value(text: &str, field: &str) -> Option<String> {
    match find(&tree(text).ok()?, field)?.kind {
        Kind::Scalar(ref value) => Some(value.to_string()),
        _ => None,
    }
}

/// Whether the text has a field, whatever its value is.
#[must_use]
pub fn has(text: &str, field: &str) -> bool {
    tree(text).is_ok_and(|root| find(&root, field).is_some())
}

/// The entries of a list; none where the field is absent or no list.
#[must_use]
pub fn list(text: &str, field: &str) -> Option<Vec<Item>> {
    let root = tree(text).ok()?;
    let Kind::Sequence(items) = &find(&root, field)?.kind else { return None };
    Some(items.iter().map(item).collect())
}

fn item(node: &Node) -> Item {
    let word = |name: &str| match &entry(node, name)?.kind {
        Kind::Scalar(text) => Some(text.to_string()),
        _ => None,
    };
    match &node.kind {
        Kind::Scalar(text) => Item::Value(text.to_string()),
        Kind::Mapping(_) => Item::Group(word("name").or_else(|| word("profile")).unwrap_or_default()),
        Kind::Nothing | Kind::Sequence(_) => Item::Group(String::new()),
    }
}

/// The text with one field changed, or added where it is absent.
///
/// # Errors
/// [`EditError`] where the text gives no place for it.
pub fn set(text: &str, field: &str, value: &str) -> Result<String, EditError> {
    put(text, field, &scalar(value))
}

/// The text with one field yes or no.
///
/// # Errors
/// As [`set`].
pub fn set_flag(text: &str, field: &str, value: bool) -> Result<String, EditError> {
    put(text, field, if value { "true" } else { "false" })
}

/// The text with a list of single values in place of a field.
///
/// # Errors
/// As [`set`].
pub fn set_list(text: &str, field: &str, values: &[&str]) -> Result<String, EditError> {
    let values: Vec<String> = values.iter().map(|value| scalar(value)).collect();
    put(text, field, &format!("[{}]", values.join(", ")))
}

/// The text with a group of single values in place of a field, one a line where the plan's own fields are.
///
/// # Errors
/// As [`set`].
pub fn set_group(text: &str, field: &str, entries: &[(&str, &str)]) -> Result<String, EditError> {
    let root = tree(text)?;
    let Kind::Mapping(fields) = &root.kind else { return Err(EditError::NoGroup) };
    let parts: Vec<String> = entries.iter().map(|(name, value)| format!("{name}: {}", scalar(value))).collect();
    if is_flow(text, &root) {
        return put(text, field, &format!("{{ {} }}", parts.join(", ")));
    }
    let indent = fields.first().map_or(String::new(), |(first, _)| indent_at(text, first));
    let lines: String = parts.iter().map(|part| format!("\n{indent}  {part}")).collect();
    match fields.iter().find(|(key, _)| *key.name == *field) {
        Some((key, node)) => {
            let colon = text[key.place.offset..].find(':').map_or(text.len(), |colon| key.place.offset + colon + 1);
            Ok(splice(text, colon..span(text, node).end.max(colon), &lines))
        }
        None => insert(text, &root, field, &lines),
    }
}

/// The text without a field; as it is where the field is absent. A group that would be empty goes with it.
///
/// # Errors
/// As [`set`].
pub fn remove(text: &str, field: &str) -> Result<String, EditError> {
    let root = tree(text)?;
    let (path, name) = field.rsplit_once('.').map_or((None, field), |(path, name)| (Some(path), name));
    let group = match path {
        None => &root,
        Some(path) => match find(&root, path) {
            Some(group) => group,
            None => return Ok(text.to_owned()),
        },
    };
    let Kind::Mapping(entries) = &group.kind else {
        return if path.is_none() { Err(EditError::NoGroup) } else { Ok(text.to_owned()) };
    };
    let Some(place) = entries.iter().position(|(key, _)| *key.name == *name) else { return Ok(text.to_owned()) };
    match path {
        Some(path) if entries.len() == 1 => remove(text, path),
        _ => Ok(splice(text, extent(text, group, entries, place), "")),
    }
}

/// What an entry of a group takes up: its lines; on one line, what is between its neighbours, with one comma.
fn extent(text: &str, group: &Node, entries: &[(Key, Node)], place: usize) -> Range<usize> {
    let end = |place: usize| span(text, &entries[place].1).end;
    let start = entries[place].0.place.offset;
    if !is_flow(text, group) {
        return lines_of(text, start..end(place).max(start));
    }
    match (entries.get(place + 1), place.checked_sub(1)) {
        (Some((next, _)), _) => start..next.place.offset,
        (None, Some(before)) => end(before).min(start)..end(place).max(start),
        (None, None) => start..end(place).max(start),
    }
}

/// The text with a single value added at the end of a list.
///
/// # Errors
/// As [`set`].
pub fn add_item(text: &str, field: &str, value: &str) -> Result<String, EditError> {
    let root = tree(text)?;
    let node = match find(&root, field) {
        Some(node) => node,
        None => return set_list(text, field, &[value]),
    };
    let Kind::Sequence(items) = &node.kind else { return set_list(text, field, &[value]) };
    let (Some(last), false) = (items.last(), is_flow(text, node)) else {
        return rewrite(text, node, items, None, Some(value));
    };
    let end = lines_of(text, span(text, last)).end;
    let indent = indent_of(text, last);
    let newline = if text[..end].ends_with('\n') { "" } else { "\n" };
    Ok(splice(text, end..end, &format!("{newline}{indent}- {}\n", scalar(value))))
}

/// The text without the first entry of a list that is this single value.
///
/// # Errors
/// As [`set`].
pub fn remove_item(text: &str, field: &str, value: &str) -> Result<String, EditError> {
    let root = tree(text)?;
    let Some(node) = find(&root, field) else { return Ok(text.to_owned()) };
    let Kind::Sequence(items) = &node.kind else { return Ok(text.to_owned()) };
    let is_it = |item: &Node| matches!(&item.kind, Kind::Scalar(text) if **text == *value);
    let Some(place) = items.iter().position(is_it) else { return Ok(text.to_owned()) };
    if is_flow(text, node) || items.len() == 1 {
        return rewrite(text, node, items, Some(place), None);
    }
    Ok(splice(text, lines_of(text, span(text, &items[place])), ""))
}

/// A list on one line, without one of its entries or with one more.
fn rewrite(
    text: &str,
    node: &Node,
    items: &[Node],
    without: Option<usize>,
    with: Option<&str>,
) -> Result<String, EditError> {
    let kept = items.iter().enumerate().filter(|(place, _)| Some(*place) != without);
    let kept = kept.map(|(_, item)| text[span(text, item)].to_owned());
    let all: Vec<String> = kept.chain(with.map(scalar)).collect();
    Ok(splice(text, span(text, node), &format!("[{}]", all.join(", "))))
}

fn put(text: &str, field: &str, new: &str) -> Result<String, EditError> {
    let root = tree(text)?;
    if let Some(node) = find(&root, field) {
        let range = span(text, node);
        if matches!(node.kind, Kind::Nothing) && range.is_empty() {
            // What is not there stands before the colon of its key.
            let at = text[range.start..].find(':').map_or(range.start, |colon| range.start + colon + 1);
            return Ok(splice(text, at..at, &format!(" {new}")));
        }
        return Ok(splice(text, range, new));
    }
    match field.rsplit_once('.') {
        None => insert(text, &root, field, new),
        Some((path, name)) => match find(&root, path) {
            Some(parent) => insert(text, parent, name, new),
            None => put(text, path, &format!("{{ {name}: {new} }}")),
        },
    }
}

/// A further field of a group: before the bracket of one on a line, else on a line of its own after the others.
fn insert(text: &str, group: &Node, name: &str, new: &str) -> Result<String, EditError> {
    let Kind::Mapping(entries) = &group.kind else { return Err(EditError::NoGroup) };
    let range = span(text, group);
    let (Some((first, _)), false) = (entries.first(), is_flow(text, group)) else {
        let close = range.end.saturating_sub(1);
        let comma = if entries.is_empty() { "" } else { ", " };
        let at = text[..close].trim_end().len();
        return Ok(splice(text, at..close, &format!("{comma}{name}: {new} ")));
    };
    let indent = indent_at(text, first);
    let end = lines_of(text, range).end;
    let newline = if text[..end].ends_with('\n') { "" } else { "\n" };
    let space = if new.starts_with('\n') { "" } else { " " };
    Ok(splice(text, end..end, &format!("{newline}{indent}{name}:{space}{new}\n")))
}

/// The spaces before a group's first field.
fn indent_at(text: &str, first: &Key) -> String {
    let line = text[..first.place.offset].rfind('\n').map_or(0, |end| end + 1);
    " ".repeat(first.place.offset - line)
}

fn tree(text: &str) -> Result<Node, EditError> {
    yaml::read(text, &mut Problems::default()).map_err(|_| EditError::Malformed)
}

fn find<'n>(root: &'n Node, field: &str) -> Option<&'n Node> {
    field.split('.').try_fold(root, entry)
}

fn entry<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    let Kind::Mapping(entries) = &node.kind else { return None };
    entries.iter().find(|(key, _)| *key.name == *name).map(|(_, value)| value)
}

/// The bytes of a node. The parser tells where a list or group begins; its end is that of its last part, and the bracket after it.
fn span(text: &str, node: &Node) -> Range<usize> {
    let start = node.place.offset;
    let own_end = start + node.place.length;
    let last = match &node.kind {
        Kind::Nothing | Kind::Scalar(_) => return start..text[..own_end].trim_end().len().max(start),
        Kind::Sequence(items) => items.last(),
        Kind::Mapping(entries) => entries.last().map(|(_, value)| value),
    };
    let inner_end = last.map_or(start, |last| span(text, last).end);
    if !is_flow(text, node) {
        return start..inner_end.max(start);
    }
    let from = inner_end.max(start + 1);
    start..closing(text, from)
}

/// The end of the bracket that closes what was open at `from`: only spaces, commas and comments may stand before it.
fn closing(text: &str, from: usize) -> usize {
    let mut comment = false;
    for (offset, c) in text[from..].char_indices() {
        match c {
            '\n' => comment = false,
            '#' => comment = true,
            ']' | '}' if !comment => return from + offset + 1,
            _ => {}
        }
    }
    text.len()
}

fn is_flow(text: &str, node: &Node) -> bool {
    text[node.place.offset..].starts_with(['[', '{'])
}

/// The whole lines that a range touches.
fn lines_of(text: &str, range: Range<usize>) -> Range<usize> {
    let start = text[..range.start].rfind('\n').map_or(0, |end| end + 1);
    let end = text[range.end..].find('\n').map_or(text.len(), |length| range.end + length + 1);
    start..end
}

/// The spaces before the dash of a list's entry.
fn indent_of(text: &str, item: &Node) -> String {
    let line = lines_of(text, item.place.offset..item.place.offset).start;
    text[line..].chars().take_while(|c| *c == ' ').collect()
}

fn splice(text: &str, range: Range<usize>, new: &str) -> String {
    format!("{}{new}{}", &text[..range.start], &text[range.end..])
}

/// A value as YAML reads it back: plain where that is safe, else in double quotes as JSON has them.
fn scalar(value: &str) -> String {
    let safe = |c: char| c.is_alphanumeric() || " ._/%+-".contains(c);
    let plain = value.starts_with(|c: char| c.is_alphanumeric())
        && value.chars().all(safe)
        && !value.ends_with(' ')
        && !matches!(value, "null" | "true" | "false");
    if plain { value.to_owned() } else { serde_json::Value::from(value).to_string() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAN: &str = "# mine\nname: Demo # of today\nworkers:\n  count: 2   # two\n  disks: 4\nfootprints: [256MiB, 1GiB]\n\
                        sample: 5s\nworkloads:\n  - 4k-random-read\n  # a group\n  - profile: deep/4k-random-write\n    name: mine\n  - x\n";

    #[test]
    fn values_are_read_where_they_stand() {
        assert_eq!(value(PLAN, "name").as_deref(), Some("Demo"));
        assert_eq!(value(PLAN, "workers.count").as_deref(), Some("2"));
        assert_eq!((value(PLAN, "workers"), value(PLAN, "nothing")), (None, None));
        assert!(has(PLAN, "workers") && has(PLAN, "workers.count") && !has(PLAN, "workers.nothing"));
        let items = list(PLAN, "workloads").unwrap();
        assert_eq!(items[0], Item::Value("4k-random-read".into()));
        assert_eq!(items[1], Item::Group("mine".into()));
        assert_eq!(list("a: [", "a"), None);
    }

    #[test]
    fn a_change_leaves_everything_else_as_it_was() {
        assert_eq!(set(PLAN, "workers.count", "16").unwrap(), PLAN.replace("count: 2 ", "count: 16 "));
        assert_eq!(set(PLAN, "name", "a: b").unwrap(), PLAN.replace("Demo ", "\"a: b\" "));
        assert_eq!(set_list(PLAN, "footprints", &["1TB"]).unwrap(), PLAN.replace("[256MiB, 1GiB]", "[1TB]"));
        assert_eq!(set(PLAN, "seed", "7").unwrap(), format!("{PLAN}seed: 7\n"));
        assert_eq!(set(PLAN, "workers.vcpus", "1").unwrap(), PLAN.replace("disks: 4\n", "disks: 4\n  vcpus: 1\n"));
        assert_eq!(set("a: {b: 1}", "a.c", "2").unwrap(), "a: {b: 1, c: 2 }");
        assert_eq!(set_flag("a: {b: 1}", "g.f", false).unwrap(), "a: {b: 1}\ng: { f: false }\n");
        assert_eq!(set("a:\nb: 1\n", "a", "x").unwrap(), "a: x\nb: 1\n");
        assert_eq!(set("a: 1", "w.x", "2").unwrap(), "a: 1\nw: { x: 2 }\n");
        assert_eq!(remove(PLAN, "sample").unwrap(), PLAN.replace("sample: 5s\n", ""));
        assert_eq!(set("a: [", "a", "1"), Err(EditError::Malformed));
        assert_eq!(set("[1]", "a", "1"), Err(EditError::NoGroup));
        assert_eq!(set("a: 1", "b.c.d", "x").unwrap(), "a: 1\nb: { c: { d: x } }\n");
        assert_eq!(set("a: 1", "a.b", "1"), Err(EditError::NoGroup));
    }

    #[test]
    fn a_field_goes_with_its_group_where_that_would_be_empty() {
        let block = "a: 1\nt:\n  v:\n    first: 1\n    last: 2\n  n: x # one\nb: 2\n";
        assert_eq!(remove(block, "t.v.first").unwrap(), block.replace("    first: 1\n", ""));
        let without = remove(&remove(block, "t.v.first").unwrap(), "t.v.last").unwrap();
        assert_eq!(without, "a: 1\nt:\n  n: x # one\nb: 2\n");
        assert_eq!(remove(&without, "t.n").unwrap(), "a: 1\nb: 2\n");
        assert_eq!(remove(block, "t.none.first"), Ok(block.to_owned()));
        assert_eq!(remove(block, "a.x"), Ok(block.to_owned()));
        let flow = "t: {v: {first: 1, last: 2}, n: x, m: [1, 2]} # flow\n";
        assert_eq!(remove(flow, "t.v.first").unwrap(), flow.replace("first: 1, ", ""));
        assert_eq!(remove(flow, "t.v.last").unwrap(), flow.replace(", last: 2", ""));
        assert_eq!(remove(flow, "t.v").unwrap(), "t: {n: x, m: [1, 2]} # flow\n");
        assert_eq!(remove(flow, "t.m").unwrap(), "t: {v: {first: 1, last: 2}, n: x} # flow\n");
        assert_eq!(remove("{a: 1}", "a").unwrap(), "{}");
    }

    #[test]
    fn a_group_takes_the_place_of_whatever_was_there() {
        let new = [("provider", "proxmox"), ("connection", "lab")];
        let lines = "target:\n  provider: proxmox\n  connection: lab";
        for (before, after) in [
            ("a: 1\ntarget: {provider: local}  # mine\nb: 2\n", format!("a: 1\n{lines}  # mine\nb: 2\n")),
            ("target:\n    provider: local\n    image: x\nb: 2\n", format!("{lines}\nb: 2\n")),
            ("target: local\n", format!("{lines}\n")),
            ("target:\nb: 2\n", format!("{lines}\nb: 2\n")),
            ("b: 2", format!("b: 2\n{lines}\n")),
        ] {
            let changed = set_group(before, "target", &new).unwrap();
            assert_eq!(changed, after, "{before:?}");
            assert_eq!(value(&changed, "target.connection").as_deref(), Some("lab"));
        }
        assert_eq!(set_group("{b: 2}", "t", &[("x", "1")]).unwrap(), "{b: 2, t: { x: 1 } }");
        assert_eq!(set_group("[1]", "t", &[("x", "1")]), Err(EditError::NoGroup));
    }

    #[test]
    fn list_entries_come_and_go() {
        let more = add_item(PLAN, "workloads", "deep/8k-random-70-30").unwrap();
        assert_eq!(more, format!("{PLAN}  - deep/8k-random-70-30\n"));
        assert_eq!(remove_item(&more, "workloads", "deep/8k-random-70-30").unwrap(), PLAN);
        assert_eq!(remove_item(PLAN, "workloads", "x").unwrap(), PLAN.replace("  - x\n", ""));
        assert_eq!(remove_item(PLAN, "workloads", "mine").unwrap(), PLAN, "a group is no single value");
        assert_eq!(add_item("w: [a]\nb: 1", "w", "c").unwrap(), "w: [a, c]\nb: 1");
        assert_eq!(remove_item("w: [a, {name: b}] # c\n", "w", "a").unwrap(), "w: [{name: b}] # c\n");
        assert_eq!(remove_item("w:\n  - a\n", "w", "a").unwrap(), "w:\n  []\n");
        assert_eq!(add_item("w:\n- a", "w", "b").unwrap(), "w:\n- a\n- b\n");
        assert_eq!(add_item("n: 1\n", "w", "b").unwrap(), "n: 1\nw: [b]\n");
    }

    #[test]
    fn every_field_of_every_shipped_plan_can_be_changed_and_read_back() {
        for name in crate::examples() {
            let plan = crate::example(name).unwrap();
            for (field, new) in
                [("name", "a # b"), ("workers.count", "3"), ("workers.memory", "1GiB"), ("sample", "7s")]
            {
                let changed = set(plan, field, new).unwrap();
                assert_eq!(value(&changed, field).as_deref(), Some(new), "{name}: {field}");
            }
            let changed = set_list(plan, "footprints", &["1TB", "2TB"]).unwrap();
            assert_eq!(list(&changed, "footprints").unwrap().len(), 2, "{name}:\n{changed}");
            let more = add_item(plan, "workloads", "deep/4k-random-read").unwrap();
            assert_eq!(list(&more, "workloads").unwrap().len(), list(plan, "workloads").unwrap().len() + 1, "{name}");
            assert_eq!(list(&more, "footprints"), list(plan, "footprints"), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_comes_back(new in "\\PC{0,40}") {
            let changed = set(PLAN, "name", &new).unwrap();
            prop_assert_eq!(value(&changed, "name"), Some(new));
            prop_assert_eq!(value(&changed, "workers.disks"), Some("4".to_owned()));
            prop_assert_eq!(list(&changed, "workloads"), list(PLAN, "workloads"));
        }

        #[test]
        fn no_text_breaks_an_edit(text in "[a-c:\\[\\]{},\\-# \n\"]{0,40}", new in "[a-z]{1,3}") {
            // Whatever the text, the answer is an error or a text; it never panics.
            let _ = set(&text, "a.b", &new);
            let _ = add_item(&text, "a", &new).and_then(|more| remove_item(&more, "a", &new));
            let _ = remove(&text, "a");
            let _ = remove(&text, "a.b");
            let _ = set(&text, "a.b.c", &new);
            let _ = set_group(&text, "a", &[("b", new.as_str())]);
        }
    }
}
