//! Writes the sample reports into a directory: `cargo run --release -p web --example sample_report -- DIR`.

#[path = "../tests/samples/mod.rs"]
mod samples;

type Sample = (&'static str, fn() -> analysis::export::Export);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args_os().nth(1).ok_or("usage: sample_report DIR")?;
    let all: [Sample; 8] = [
        ("demo", samples::demo),
        ("published", samples::published),
        ("incomplete", samples::incomplete),
        ("cancelled", samples::cancelled),
        ("running", samples::running),
        ("read-unwritten", samples::read_unwritten),
        ("empty", samples::empty),
        ("hostile", samples::hostile),
    ];
    for (name, make) in all {
        let path = std::path::Path::new(&directory).join(format!("{name}.html"));
        std::fs::write(&path, web::report_html(&make())?)?;
        println!("{}", path.display());
    }
    Ok(())
}
