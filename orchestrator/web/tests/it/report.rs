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
fn what_disks_did_beside_their_ios_is_shown_where_there_is_something() {
    let text = text(&body(&samples::incomplete()));
    assert_eq!(text.matches("Errors, stalls and device counters (").count(), 1, "one case has something to show");
    let table = text.split("Errors, stalls and device counters (1 of 8 disks)").nth(1).unwrap();
    let table = table.split("By worker").next().unwrap();
    assert!(table.contains("37 EIO, first at byte 8,192; 1,048,576"), "{table}");
    assert!(table.contains("2, 3.8 s together; longest 2.2 s from 20.0 s"), "{table}");
    assert!(table.contains(" write requests (") && table.contains(" merged) for "), "{table}");
    assert!(table.contains("fc-0101") && !table.contains("fc-0102"), "a device that agrees is not listed: {table}");
}

#[test]
fn a_disturbed_figure_shows_its_cause() {
    let body = body(&samples::incomplete());
    let text = text(&body);
    let cause = "4k-random-write, 512GiB: the storage cluster was not at rest in the window: HEALTH_WARN (PG_DEGRADED), \
                 recovery at up to 5 MiB a second, up to 12.50 % of the objects displaced.";
    assert!(text.contains(cause), "{text}");
    assert_eq!(
        body.matches("<span class=\"badge\">storage not at rest").count(),
        2,
        "in the overview and among all figures"
    );
    let table = text.split("Hosts and storage during the case (8 samples)").nth(1).unwrap();
    let table = table.split("By worker").next().unwrap();
    assert!(table.contains("pve1 23.5 (27.0) 24 GiB of 64 GiB 3.5 (7.0) –"), "{table}");
    assert!(table.contains("pve2 5.0 (5.0) 24 GiB of 64 GiB – –"), "{table}");
    let stretches = ["−20 0 HEALTH_OK 0 B 0.00 0", "10 30 HEALTH_WARN (PG_DEGRADED) 5 MiB 12.50 0", "40 50 HEALTH_OK"];
    for stretch in stretches {
        assert!(table.contains(stretch), "{stretch}: {table}");
    }
    assert!(!self::text(&self::body(&samples::demo())).contains("Hosts and storage"), "nothing is known there");
}

#[test]
fn a_result_limited_by_the_generator_is_marked() {
    let limited = body(&samples::incomplete());
    // Once in the overview and once in the table of all figures.
    assert_eq!(limited.matches("<span class=\"badge\">the load generator may limit").count(), 2);
    let said = "Load generator: the busiest engine thread used 97 % of its CPU, kernel I/O workers (io-wq) 0.25 CPUs, steal at most 2.1 %.";
    assert!(text(&limited).contains(said), "{}", text(&limited));
    let free = body(&samples::demo());
    assert!(!free.contains("the load generator may limit"));
    assert!(
        text(&free).contains("the busiest engine thread used 31 % of its CPU, kernel I/O workers (io-wq) 0.00 CPUs.")
    );
}

#[test]
fn an_open_loop_says_so_and_shows_both_latencies() {
    let export = samples::open_loop();
    let body = body(&export);
    let text = text(&body);
    for expected in [
        "4 KiB hot-spot (90 % of the I/Os in 10 % of the space) on 0 % to 50 % of each region aligned to 512 B, read, \
         open loop at 12,500 IOPS a disk (Poisson arrivals), at most 2 outstanding a disk, on an error: stop after 100, stalls from 5 s",
        "8 KiB random, 70 % read, 30 % write, open loop at 6,000 IOPS a worker, at most 2 outstanding a disk, \
         data compressible 2 to 1, data duplicated 1.5 to 1, a flush every 1,000 writes",
        "Open loop: 50,000 IOPS asked, 48,000 achieved; of 250,000 I/Os, 1,200 started more than 0.1 ms late (at most 3.4 ms) and 7 not at all.",
        "Latency in an open loop From an I/O’s intended start",
        "Latency in a closed loop From just before",
        "Service time Of the same I/Os",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    // Two open workloads on two footprints; the mixed one has three rows, the other one.
    assert_eq!(text.matches(", service time").count(), 2 * (3 + 1));
    let response = export.cases[0].ops.read.as_ref().unwrap().latency_us.as_ref().unwrap();
    assert_eq!(text.matches("service p50").count(), 4, "in the overview");
    let shown = format!("service p50 {:.1}, p99 {:.1} µs", response.p50 / 10.0, response.p99 / 10.0);
    assert!(text.contains(&shown), "{shown}");

    let open_only = self::text(&self::body(&samples::all_open()));
    assert!(!open_only.contains("closed loop"), "nothing claims a closed loop");
    let closed_only = self::text(&self::body(&samples::demo()));
    assert!(closed_only.contains("The load is a closed loop") && !closed_only.contains("open loop"));
    assert!(!closed_only.contains("service"));
}

#[test]
fn engines_and_disks_are_shown_as_they_were_set() {
    let text = text(&body(&samples::demo()));
    let table = text.split("Load engines and data disks as they were set").nth(1).unwrap();
    let granted =
        "worker-1, worker-2 2 SINGLE_ISSUER, DEFER_TASKRUN NO_SQARRAY: Invalid argument (os error 22) tsc 64 KiB 4 MiB";
    assert!(table.contains(granted), "equal workers are one row: {table}");
    let settings = "worker-1/fc-0101, worker-2/fc-0201 block yes 1 none 2 (no merges) 256 1,280 –";
    assert!(table.contains(settings), "{table}");
    assert!(!self::text(&body(&samples::empty())).contains("Load engines and data disks"), "nothing was recorded");
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
        "enrolled ",
        "granted ",
        "refused ",
        "clock ",
        "serial ",
        "kind ",
        "scheduler ",
        "policy ",
        "per ",
        "error kind ",
    ] {
        assert!(text.contains(&format!("{prefix}{escaped}")), "{prefix}");
    }
    assert!(!html.contains(HOSTILE));
}

#[test]
fn every_link_within_the_page_has_its_target_once() {
    for export in [
        samples::demo(),
        samples::incomplete(),
        samples::cancelled(),
        samples::empty(),
        samples::hostile(),
        samples::open_loop(),
    ] {
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

#[test]
fn the_file_has_the_note_and_hosts_beside_workers() {
    let mut export = samples::incomplete();
    export.run.note = "Node 3 had a failed disk.\nReplaced <since>.".to_owned();
    let html = web::report_html(&export).unwrap();
    assert!(html.contains("Node 3 had a failed disk.\nReplaced &#60;since&#62;."), "the note is text");
    assert!(html.contains("<summary>By host</summary>"));
    assert!(html.contains("<th scope=\"row\">pve2</th><td>2 of 2</td>"), "both workers of the second host");
    let demo = web::report_html(&samples::demo()).unwrap();
    assert!(demo.contains("this machine") && !demo.contains("class=\"note\""));
}
