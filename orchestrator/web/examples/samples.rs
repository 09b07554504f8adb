//! Shows the sample runs, for whoever works on the pages:
//! `cargo run --release -p web --example samples -- DIR` writes their reports, and with an address after DIR serves the site there.

#![expect(clippy::unwrap_used, reason = "an example that cannot go on stops where it is")]

#[path = "../tests/samples/mod.rs"]
mod samples;
#[path = "../tests/samples/source.rs"]
mod source;

use std::path::Path;
use std::sync::Arc;

use analysis::export::Export;
use store::Role;
use web::Progress;

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("usage: samples DIR [ADDRESS:PORT]")?;
    let exports = all();
    for (name, export) in &exports {
        let path = Path::new(&directory).join(format!("{name}.html"));
        std::fs::write(&path, web::report_html(export)?)?;
        println!("{}", path.display());
    }
    match arguments.next() {
        Some(address) => serve(&address, exports.into_iter().map(|(_, export)| export).collect()).await,
        None => Ok(()),
    }
}

/// The samples under their names; each is a run of its own.
fn all() -> Vec<(&'static str, Export)> {
    type Make = fn() -> Export;
    let makers: [(&str, Make); 11] = [
        ("running", samples::running),
        ("demo", samples::demo),
        ("published", samples::published),
        ("incomplete", samples::incomplete),
        ("cancelled", samples::cancelled),
        ("rehearsal", samples::rehearsal),
        ("open-loop", samples::open_loop),
        ("all-open", samples::all_open),
        ("read-unwritten", samples::read_unwritten),
        ("empty", samples::empty),
        ("hostile", samples::hostile),
    ];
    let numbered = makers.into_iter().enumerate().map(|(index, (name, make))| {
        let mut export = make();
        export.run.id = format!("0199c2a4-5b6e-7d10-9f3a-{index:012x}");
        (name, export)
    });
    numbered.collect()
}

async fn serve(address: &str, exports: Vec<Export>) -> Result<(), Failure> {
    let progress = Progress {
        phase: "256MiB: 8k-random-70-30, sample".to_owned(),
        case: Some("case 3 of 10".to_owned()),
        percent: 24.5,
        iops: Some(24_000.0),
        mib_per_s: Some(187.5),
        seconds_left: Some(93.0),
        ending: None,
    };
    let listener = tokio::net::TcpListener::bind(address).await?;
    let listening = listener.local_addr()?;
    let (_directory, store) = source::new_store().await;
    source::add_user(&store, "admin", Role::Admin).await;
    let app = source::new_app(Arc::new(source::Runs::new(exports, Some(progress))), store, listening);
    println!(
        "http://{listening}/ as admin, {:?}, or http://{listening}{} as a viewer",
        source::PASSWORD,
        app.enter_link()?
    );
    web::serve(listener, None, app, std::future::pending()).await;
    Ok(())
}
