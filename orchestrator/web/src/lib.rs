//! The web report and its exports (HTML, JSON, CSV).
