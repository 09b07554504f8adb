//! Rebuilds the crate when a migration changes: `sqlx::migrate!` reads the directory at compile time.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
