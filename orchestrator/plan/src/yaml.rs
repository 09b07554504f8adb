//! YAML text to a tree of nodes that know their place. The tree is bounded: size, nesting and expanded aliases.
//!
//! Plans are read from a tree, not through serde: serde stops at the first problem and knows no place once a value
//! is read, so that neither "all problems together" nor "this footprint, at this line" could be said.

use std::collections::HashMap;
use std::rc::Rc;

use granit_parser::{Event, Options, Parser, ScalarStyle, Span};

use crate::limits::{MAX_NESTING, MAX_VALUES, MAX_YAML_BYTES};
use crate::problem::{Place, Problems, Reported, excerpt};

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) kind: Kind,
}

/// What a value is. Scalars are text; what they mean is for the field to say.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// Nothing: an empty, `null` or `~` plain scalar.
    Nothing,
    /// Shared, so that many aliases of one long text stay small.
    Scalar(Rc<str>),
    Sequence(Vec<Node>),
    Mapping(Vec<(Key, Node)>),
}

/// A field's name and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) place: Place,
    pub(crate) name: Rc<str>,
}

impl Node {
    /// What was found here, for a message.
    pub(crate) fn found(&self) -> String {
        match &self.kind {
            Kind::Nothing => "nothing".to_owned(),
            Kind::Scalar(text) => excerpt(text),
            Kind::Sequence(_) => "a list".to_owned(),
            Kind::Mapping(_) => "a group of fields".to_owned(),
        }
    }

    fn values(&self) -> usize {
        1 + match &self.kind {
            Kind::Nothing | Kind::Scalar(_) => 0,
            Kind::Sequence(items) => items.iter().map(Node::values).sum(),
            Kind::Mapping(entries) => entries.iter().map(|(_, value)| value.values()).sum(),
        }
    }
}

/// Reads the one document of `text`.
pub(crate) fn read(text: &str, problems: &mut Problems) -> Result<Node, Reported> {
    if text.len() > MAX_YAML_BYTES {
        let found = format!("{} bytes", text.len());
        return Err(problems.add(Place::START, "", found, format!("at most {MAX_YAML_BYTES} bytes of YAML"), None));
    }
    let mut builder = Builder::default();
    for step in Parser::new_from_str_with_options(text, options()) {
        let outcome = step.map_err(|error| syntax(&error)).and_then(|(event, span)| builder.take(event, &place(&span)));
        if let Err(Syntax { place, found, allowed }) = outcome {
            return Err(problems.add(clamp(place, text), "", found, allowed, None));
        }
    }
    builder.root.ok_or_else(|| problems.add(Place::START, "", "an empty plan", "the fields of a test plan", None))
}

fn options() -> Options {
    granit_parser::options! {
        disallow_directives: true,
        emit_comments: false,
        flow_nesting_limit: MAX_NESTING,
        block_nesting_limit: MAX_NESTING,
    }
}

/// YAML that a plan cannot be; reading ends here.
struct Syntax {
    place: Place,
    found: String,
    allowed: &'static str,
}

fn syntax(error: &granit_parser::ScanError) -> Syntax {
    let marker = error.marker();
    let place = Place {
        line: marker.line(),
        column: marker.col() + 1,
        offset: marker.byte_offset().unwrap_or_default(),
        length: 1,
    };
    Syntax { place, found: format!("malformed YAML ({})", error.info()), allowed: "well-formed YAML" }
}

fn place(span: &Span) -> Place {
    let range = span.byte_range().unwrap_or_default();
    Place { line: span.start.line(), column: span.start.col() + 1, offset: range.start, length: range.len() }
}

/// Keeps a place within the text: the end of the input may be marked past its last byte.
fn clamp(place: Place, text: &str) -> Place {
    let offset = place.offset.min(text.len());
    Place { offset, length: place.length.min(text.len() - offset), ..place }
}

/// A list or mapping that is not finished yet.
struct Open {
    place: Place,
    anchor: usize,
    content: Content,
}

enum Content {
    Items(Vec<Node>),
    Entries(Vec<(Key, Node)>, Option<Key>),
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    root: Option<Node>,
    values: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, place: &Place) -> Result<(), Syntax> {
        let refuse = |found: &str, allowed| Err(Syntax { place: *place, found: found.to_owned(), allowed });
        if event.tag().is_some() {
            return refuse("a YAML tag", "plain values without tags");
        }
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let nothing = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                let kind = if nothing { Kind::Nothing } else { Kind::Scalar(text.into()) };
                self.finish(Node { place: *place, kind }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(place, anchor, Content::Items(Vec::new())),
            Event::MappingStart(_, anchor, _) => self.begin(place, anchor, Content::Entries(Vec::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(node) => self.alias(node.clone(), place),
                None => refuse("an alias of the value that it stands in", "aliases of earlier values"),
            },
            Event::DocumentStart(..) if self.root.is_some() => refuse("a second YAML document", "one plan a file"),
            _ => Ok(()),
        }
    }

    /// A key that is no scalar has no name; it is refused where it begins.
    fn begin(&mut self, place: &Place, anchor: usize, content: Content) -> Result<(), Syntax> {
        if let Some(Open { content: Content::Entries(_, None), .. }) = self.open.last() {
            return Err(Syntax { place: *place, found: "a list or group as a field's name".into(), allowed: "names" });
        }
        self.open.push(Open { place: *place, anchor, content });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Syntax> {
        let Some(Open { place, anchor, content }) = self.open.pop() else { return Ok(()) };
        let kind = match content {
            Content::Items(items) => Kind::Sequence(items),
            Content::Entries(entries, _) => Kind::Mapping(entries),
        };
        self.finish(Node { place, kind }, anchor)
    }

    fn alias(&mut self, mut node: Node, place: &Place) -> Result<(), Syntax> {
        self.count(node.values() - 1, place)?;
        node.place = *place;
        self.finish(node, 0)
    }

    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), Syntax> {
        self.count(1, &node.place)?;
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::Items(items)) => items.push(node),
            Some(Content::Entries(entries, name @ Some(_))) => entries.extend(name.take().map(|name| (name, node))),
            Some(Content::Entries(_, name)) => *name = Some(Key { place: node.place, name: key_name(node.kind) }),
        }
        Ok(())
    }

    fn count(&mut self, values: usize, place: &Place) -> Result<(), Syntax> {
        self.values += values;
        if self.values > MAX_VALUES {
            let found = format!("more than {MAX_VALUES} values (aliases expanded)");
            return Err(Syntax { place: *place, found, allowed: "a plan of fewer" });
        }
        Ok(())
    }
}

fn key_name(kind: Kind) -> Rc<str> {
    match kind {
        Kind::Scalar(name) => name,
        Kind::Nothing | Kind::Sequence(_) | Kind::Mapping(_) => Rc::from(""),
    }
}

#[cfg(test)]
mod tests {
    //! `serde_yaml` reads the same text as the peer: the tree must hold what it holds.

    use proptest::prelude::*;
    use serde_yaml::Value;

    use super::*;

    fn same(node: &Node, value: &Value) -> bool {
        match (&node.kind, value) {
            (Kind::Nothing, Value::Null) => true,
            (Kind::Scalar(text), Value::String(string)) => **text == **string,
            (Kind::Scalar(text), Value::Bool(flag)) => text.parse() == Ok(*flag),
            (Kind::Scalar(text), Value::Number(number)) => {
                serde_yaml::from_str::<Value>(text).is_ok_and(|read| read == Value::Number(number.clone()))
            }
            (Kind::Sequence(nodes), Value::Sequence(values)) => {
                nodes.len() == values.len() && nodes.iter().zip(values).all(|(node, value)| same(node, value))
            }
            (Kind::Mapping(entries), Value::Mapping(map)) => {
                entries.len() == map.len()
                    && entries.iter().all(|(key, node)| map.get(&*key.name).is_some_and(|value| same(node, value)))
            }
            _ => false,
        }
    }

    fn agree(text: &str) -> bool {
        let mut problems = Problems::default();
        match (read(text, &mut problems), serde_yaml::from_str::<Value>(text)) {
            (Ok(node), Ok(value)) => same(&node, &value),
            (Err(_), Err(_)) => true,
            _ => false,
        }
    }

    #[test]
    fn the_shipped_plans_are_read_as_serde_yaml_reads_them() {
        let disagree: Vec<&str> = crate::examples().filter(|name| !crate::example(name).is_some_and(agree)).collect();
        assert_eq!(disagree, [""; 0]);
        assert!(!same(
            &read("a: [1, x]", &mut Problems::default()).ok().unwrap(),
            &serde_yaml::from_str("a: [1, y]").unwrap()
        ));
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~]{0,12}".prop_map(Value::from),
            "[a-z0-9.:]{1,8}(KiB|MB|s|m)?".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map("[a-z_]{1,10}", inner, 0..6).prop_map(|map| Value::Mapping(
                    map.into_iter().map(|(key, value)| (Value::from(key), value)).collect()
                )),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_serde_yaml_writes_is_read_back(value in values()) {
            let text = serde_yaml::to_string(&value).unwrap();
            prop_assert!(agree(&text), "{}", text);
        }
    }
}
