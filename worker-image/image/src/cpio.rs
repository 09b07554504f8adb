//! Archives in cpio's "newc" form, as the kernel unpacks them; the same entries always give the same bytes.

use std::collections::BTreeMap;

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    /// A directory, mode 0755.
    Directory,
    /// A file, mode 0644 or 0755.
    File {
        /// Its bytes.
        content: Vec<u8>,
        /// Whether it may be run.
        executable: bool,
    },
    /// A symbolic link to a path.
    Link(String),
    /// A character device: the kernel opens `/dev/console` before anything can be mounted.
    CharDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
}

/// A tree of entries; paths are relative, without a leading slash.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    entries: BTreeMap<String, Node>,
}

impl Archive {
    /// Adds an entry and the directories above it. A later entry of the same path takes the place of the earlier one.
    pub(crate) fn add(&mut self, path: &str, node: Node) {
        let mut end = 0;
        while let Some(slash) = path[end..].find('/') {
            end += slash;
            self.entries.entry(path[..end].to_owned()).or_insert(Node::Directory);
            end += 1;
        }
        self.entries.insert(path.to_owned(), node);
    }

    /// Adds a file.
    pub(crate) fn file(&mut self, path: &str, content: impl Into<Vec<u8>>, executable: bool) {
        self.add(path, Node::File { content: content.into(), executable });
    }

    /// The archive: entries by path, owned by root, all at the same time `mtime` (seconds since 1970).
    pub(crate) fn bytes(&self, mtime: u32) -> Vec<u8> {
        let mut out = Vec::new();
        let mut inode = 0;
        for (path, node) in &self.entries {
            inode += 1;
            entry(&mut out, path, node, inode, mtime);
        }
        entry(&mut out, "TRAILER!!!", &Node::File { content: Vec::new(), executable: false }, 0, 0);
        out
    }
}

fn entry(out: &mut Vec<u8>, path: &str, node: &Node, inode: u32, mtime: u32) {
    let none: &[u8] = &[];
    let (mode, links, content, device) = match node {
        Node::Directory => (0o040_755, 2, none, (0, 0)),
        Node::File { content, executable: true } => (0o100_755, 1, content.as_slice(), (0, 0)),
        Node::File { content, executable: false } => (0o100_644, 1, content.as_slice(), (0, 0)),
        Node::Link(target) => (0o120_777, 1, target.as_bytes(), (0, 0)),
        Node::CharDevice { major, minor } => (0o020_600, 1, none, (*major, *minor)),
    };
    // Sizes are below 4 GiB: the archive is an image of tens of MB.
    let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
    let name_size = u32::try_from(path.len() + 1).unwrap_or(u32::MAX);
    out.extend_from_slice(b"070701");
    let fields = [inode, mode, 0, 0, links, mtime, size, 0, 0, device.0, device.1, name_size, 0];
    for field in fields {
        out.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    out.extend_from_slice(path.as_bytes());
    out.push(0);
    pad(out);
    out.extend_from_slice(content);
    pad(out);
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}
