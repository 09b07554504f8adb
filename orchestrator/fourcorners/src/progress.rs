//! The progress line: one that redraws itself on a terminal, a line every few seconds elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use run::Progress;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::output;
use crate::table::thousands;

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);
/// Steps of the whole.
const STEPS: u64 = 1_000;

/// Shows progress on standard error until the sender is gone.
pub(crate) async fn show(mut progress: watch::Receiver<Progress>) {
    if std::io::stderr().is_terminal() {
        let (bar, mut told) = (bar(), 0);
        while progress.changed().await.is_ok() {
            let now = progress.borrow_and_update().clone();
            untold(&now, &mut told).iter().for_each(|note| bar.println(note));
            if is_under_way(&now) {
                bar.set_position(share_of(STEPS, now.fraction));
                bar.set_message(line(&now));
            }
        }
        bar.finish_and_clear();
    } else {
        lines(progress).await;
    }
}

async fn lines(mut progress: watch::Receiver<Progress>) {
    let (mut step, mut next, mut told) = (String::new(), Instant::now(), 0);
    while progress.changed().await.is_ok() {
        let now = progress.borrow_and_update().clone();
        untold(&now, &mut told).iter().for_each(output::note);
        if !is_under_way(&now) || now.step == step && Instant::now() < next {
            continue;
        }
        output::note(format!("{:3.0} % {}", now.fraction * 100.0, line(&now)));
        next = Instant::now() + LINE_EVERY;
        step = now.step;
    }
}

/// What is to be told and was not told yet; it counts as told then.
fn untold<'a>(progress: &'a Progress, told: &mut usize) -> &'a [String] {
    let notes = progress.notes.get(*told..).unwrap_or_default();
    *told = progress.notes.len();
    notes
}

/// False before the first step, and once the run has ended: its result is shown instead.
fn is_under_way(progress: &Progress) -> bool {
    !progress.step.is_empty() && progress.step != progress.state
}

/// No more than one line: what does not fit is cut off, so the time left stands first.
fn bar() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{percent:>3} % {wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr()).with_style(style)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a clamped share of 1,000"
)]
fn share_of(steps: u64, fraction: f64) -> u64 {
    (steps as f64 * fraction.clamp(0.0, 1.0)) as u64
}

/// Time left, phase, share of it and live figures.
fn line(progress: &Progress) -> String {
    let left = progress.seconds_left.map_or(String::new(), |left| format!("{} left  ", duration(left)));
    let mut text = format!("{left}{} {:.0} %", progress.step, progress.step_fraction * 100.0);
    if let (Some(iops), Some(mib_per_s)) = (progress.iops, progress.mib_per_s) {
        text.push_str(&format!("  {} IOPS  {} MiB/s", thousands(iops), thousands(mib_per_s)));
    }
    text
}

/// Seconds as `45 s`, `12 min 05 s` or `3 h 20 min`.
pub(crate) fn duration(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded up and not negative")]
    let seconds = seconds.max(0.0).ceil() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_phase_share_figures_and_time_left() {
        let progress = Progress {
            step: "1GiB: 4k-random-read, sample".into(),
            step_fraction: 0.42,
            iops: Some(12_345.0),
            mib_per_s: Some(48.2),
            seconds_left: Some(65.2),
            ..Progress::default()
        };
        assert_eq!(line(&progress), "1 min 06 s left  1GiB: 4k-random-read, sample 42 %  12,345 IOPS  48.2 MiB/s");
        assert_eq!(duration(12_000.0), "3 h 20 min");
        assert_eq!(share_of(1_000, 7.0), 1_000);
        assert!(is_under_way(&progress) && !is_under_way(&Progress::default()));
        assert!(!is_under_way(&Progress { state: "done".into(), step: "done".into(), ..progress }));
    }
}
