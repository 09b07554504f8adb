//! The report's text: figures, caveats, and nothing that a name could break out of.

use analysis::export::Export;

use crate::samples::{self, HOSTILE};

/// The report without the chart library, styles and scripts.
fn body(export: &Export) -> String {
    let html = web::report_html(export).unwrap();
    let start = html.find("<main>").unwrap();
    let end = html.find("</main>").unwrap();
    html[start..end].to_owned()
}

/// Text as a reader sees it: tags, islands and the invisible decimals removed, white space folded.
fn text(html: &str) -> String {
    let mut out = String::new();
    let mut rest = html;
    while let Some(open) = rest.find('<') {
        out.push_str(&rest[..open]);
        let skip = ["<script", "<i class=\"pad\""].into_iter().find(|start| rest[open..].starts_with(start));
        let end = match skip {
            Some("<script") => rest[open..].find("</script>").unwrap() + "</script>".len(),
            Some(_) => rest[open..].find("</i>").unwrap() + "</i>".len(),
            None => rest[open..].find('>').unwrap() + 1,
        };
        out.push(' ');
        rest = &rest[open + end..];
    }
    out.push_str(rest);
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The data of the charts, in order.
fn islands(html: &str) -> Vec<serde_json::Value> {
    let mark = "<script type=\"application/json\">";
    let pieces = html.split(mark).skip(1);
    pieces.map(|piece| serde_json::from_str(piece.split("</script>").next().unwrap()).unwrap()).collect()
}

#[test]
fn a_cancelled_run_reads_like_this() {
    let body = body(&samples::cancelled());
    insta::assert_snapshot!("cancelled", text(&body).replace(". ", ".\n"));
}

#[test]
fn a_complete_run_shows_its_figures_and_no_warning() {
    let text = text(&body(&samples::demo()));
    assert!(text.contains("Cases complete 10 of 10"), "{text}");
    assert!(text.contains("48,000 IOPS 187.5 MiB/s"), "{text}");
    assert!(text.contains("×0.74"), "the larger footprint's ratio");
    let figures = text.split("What the figures mean Window").next().unwrap();
    for word in ["incomplete", "cancelled", "not measured", "Warnings:", "cache-fit", "spill"] {
        assert!(!figures.contains(word), "{word}");
    }
}

#[test]
fn an_incomplete_run_is_unmistakable_and_its_figures_are_marked() {
    let body = body(&samples::incomplete());
    let text = text(&body);
    let banner = text.find("This run is incomplete").unwrap();
    assert!(banner < text.find("At a glance").unwrap());
    for expected in [
        "Reason: 1 of 10 cases is incomplete: 8k-random-70-30 on 512GiB",
        "has no O_DIRECT",
        "3 of 4 workers",
        "37 errors",
        "32k-sequential-read, 512GiB: no steady state at the end of preconditioning: the rounds range over 31.0 %",
        "4k-random-write, 512GiB: 37 writes failed or were short",
        "worker-3 was lost 171 s after the start of the sample",
        "75 of the 240 seconds of the sample lack a worker",
        "77 seconds lack a worker and are a gap (the longest: 171 to 240 s, 80 to 86 s",
    ] {
        assert!(text.contains(expected), "{expected}");
    }
    let warnings = body.find("id=\"warnings\"").unwrap();
    assert!(warnings < body.find("id=\"glance\"").unwrap());
    for mark in body.split("href=\"#note-").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(body.contains(&format!("id=\"note-{mark}\"")), "note {mark} is linked and not there");
    }
}

#[test]
fn reads_of_unwritten_bytes_are_said_beside_each_figure() {
    let export = samples::read_unwritten();
    let body = body(&export);
    let reading = export.cases.iter().filter(|case| case.read_percent > 0).count();
    assert_eq!(reading, 6);
    // Once in the overview and once in the table of all figures.
    assert_eq!(body.matches("<span class=\"badge\">reads of unwritten bytes").count(), 2 * reading);
    assert_eq!(body.matches("never written (read_unwritten)").count(), 1, "one note for all");
    assert_eq!(body.matches("not filled").count(), 2);
}

#[test]
fn what_was_not_measured_is_said_to_be_so() {
    let text = text(&body(&samples::cancelled()));
    // 4 of 10 cases were begun; the other 6 are in the overview and in the table.
    assert_eq!(text.matches("not measured").count(), 12);
    assert!(text.contains("This run was cancelled"));
    let empty = self::text(&body(&samples::empty()));
    assert!(empty.contains("This run failed") && empty.contains("2 of 2 workers did not report"));
    assert!(empty.contains("Nothing was measured."));
}

#[test]
fn a_running_run_says_that_it_has_not_ended() {
    let text = text(&body(&samples::running()));
    assert!(text.contains("This run has not ended") && text.contains("Finished not yet"), "{text}");
    assert!(text.contains("not yet measured") && !text.contains("not measured"));
}

#[test]
fn no_name_breaks_out() {
    let export = samples::hostile();
    let html = web::report_html(&export).unwrap();
    assert!(!html.contains("<script>window.pwned") && !html.contains("<img"), "markup of a name is in the page");
    // The page's own scripts: an island a chart, the chart library, and the report's.
    let islands = islands(&html);
    assert_eq!(html.matches("<script").count(), islands.len() + 2);
    assert_eq!(html.matches("</script").count(), islands.len() + 2);
    assert!(islands.iter().any(|island| island.to_string().contains("window.pwned")), "names reach the charts as text");
    let text = text(&body(&export));
    let escaped = "&#60;/script&#62;&#60;script&#62;window.pwned=1&#60;/script&#62;&#34;&#39;&#62;&#60;img src=x onerror=window.pwned=1&#62;&#38;amp;";
    for prefix in [
        "name ",
        "reason ",
        "yaml ",
        "key ",
        "value ",
        "item ",
        "host ",
        "warning ",
        "provider ",
        "level ",
        "event ",
        "pattern ",
        "case warning ",
        "worker ",
        "disk ",
        "planned footprint ",
        "planned workload ",
        "4k-random-read ",
    ] {
        assert!(text.contains(&format!("{prefix}{escaped}")), "{prefix}");
    }
    assert!(!html.contains(HOSTILE));
}

#[test]
fn every_link_within_the_page_has_its_target_once() {
    for export in [samples::demo(), samples::incomplete(), samples::cancelled(), samples::empty(), samples::hostile()] {
        let body = body(&export);
        for target in body.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert_eq!(body.matches(&format!("id=\"{target}\"")).count(), 1, "{target} in {}", export.run.name);
        }
    }
}

#[test]
fn the_policy_lets_only_the_reports_own_scripts_run() {
    let html = web::report_html(&samples::demo()).unwrap();
    let policy = html.split("Content-Security-Policy\" content=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(policy.starts_with("default-src &#39;none&#39;; script-src &#39;sha256-"), "{policy}");
    assert!(!policy.contains("unsafe-eval") && !policy.contains("http"));
    for attribute in ["src=\"http", "href=\"http", "src=\"//", "@import", "url(http"] {
        let ours = html.replace(&html[html.rfind("<script>").map_or(0, |_| html.find("<script>").unwrap())..], "");
        assert!(!ours.contains(attribute), "{attribute}");
    }
}

#[test]
fn gaps_break_lines_and_stay_within_the_limits() {
    let all = islands(&body(&samples::published()));
    let timelines: Vec<_> = all.iter().filter(|island| island["kind"] == "timeline").collect();
    assert_eq!(timelines.len(), 15);
    for line in timelines.iter().flat_map(|island| island["lines"].as_array().unwrap()) {
        let points = line["x"].as_array().unwrap().len();
        assert!((300..=2 * 300 + 2 * 300 + 1).contains(&points), "{points} points of 5,400 seconds");
    }
    let all = islands(&body(&samples::incomplete()));
    let gapped = all.iter().filter(|island| island["kind"] == "timeline").nth(5).unwrap();
    assert_eq!(gapped["precondition"], 60);
    assert_eq!(gapped["sample"], 240);
    let gaps = gapped["gaps"].as_array().unwrap();
    assert_eq!(gaps[0], serde_json::json!([171.0, 240.0]));
    assert_eq!(gaps.len(), 4);
    let breaks = gapped["lines"][0]["y"].as_array().unwrap().iter().filter(|y| y.is_null()).count();
    assert_eq!(breaks, 3, "two in preconditioning, one in the sample; the end is no break");
}

#[test]
fn a_long_report_stays_sane() {
    let html = web::report_html(&samples::published()).unwrap();
    assert!(html.len() < 12_000_000, "{} bytes for 15 cases of 90 minutes on 160 disks", html.len());
}

#[test]
fn write_only_cases_have_no_reads() {
    let export = samples::demo();
    let all = islands(&body(&export));
    let bars: Vec<_> = all.iter().filter(|island| island["kind"] == "footprints").collect();
    let ops = |index: usize| -> Vec<&str> {
        bars[index]["ops"].as_array().unwrap().iter().map(|ops| ops["op"].as_str().unwrap()).collect()
    };
    assert_eq!(ops(0), ["read"]);
    assert_eq!(ops(1), ["write"]);
    assert_eq!(ops(2), ["read", "write"]);
    assert_eq!(bars[1]["ops"][0]["iops"][0], export.cases[1].ops.write.as_ref().unwrap().iops);
}
