//! The view for people: a block for every check that was not healthy, a status line on a
//! terminal, and at the end the episodes, ranked, with what was lost and what to do next.

mod check;
mod ending;
mod line;
mod path;
mod queue;
mod receive;
mod rx_ring;
mod tally;

pub(crate) use check::{By, main_offender, percent, verdict_sentence, who};
pub(crate) use ending::rate;

use super::{Context, Sink};
use crate::attribution::Judged;
use crate::pipeline::Output;
use line::{Line, Look};
use std::io::{self, Write};
use tally::{Pace, Tally};

/// Narrowest view.
const LEAST_WIDTH: usize = 40;

/// How the view looks.
#[derive(Debug, Clone, Copy)]
pub struct TextStyle {
    /// Columns.
    pub width: usize,
    /// Colour and emphasis.
    pub colour: bool,
    /// Redraw a status line each second; for terminals only.
    pub status: bool,
}

/// Writes for people.
#[derive(Debug)]
pub struct TextSink<W> {
    to: W,
    style: TextStyle,
    tally: Tally,
    pace: Pace,
    status_shown: bool,
}

impl<W: Write> TextSink<W> {
    /// Writes to `to`.
    pub fn new(to: W, style: TextStyle) -> Self {
        let style = TextStyle { width: style.width.max(LEAST_WIDTH), ..style };
        Self { to, style, tally: Tally::default(), pace: Pace::default(), status_shown: false }
    }

    fn journey(&mut self, judged: &Judged, context: Context<'_>) -> io::Result<()> {
        let news = self.tally.take(judged);
        let held_back = self.pace.turn(judged.journey.known_until);
        self.lines(&held_back)?;
        if news && self.pace.admit(check::likeness(judged), judged.journey.elapsed()) {
            return self.lines(&check::block(judged, context.names, self.style.width));
        }
        Ok(())
    }

    fn held_back(&mut self) -> io::Result<()> {
        let lines = self.pace.held_back();
        self.lines(&lines)
    }

    fn lines(&mut self, lines: &[Line]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        self.clear_status()?;
        let mut text = String::new();
        for row in lines.iter().flat_map(|line| line.render(self.style.width, self.style.colour)) {
            text.push_str(&row);
            text.push('\n');
        }
        self.to.write_all(text.as_bytes())?;
        self.to.flush()
    }

    fn clear_status(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.status_shown) { self.to.write_all(b"\r\x1b[2K") } else { Ok(()) }
    }

    fn status(&mut self, dropped: u64) -> io::Result<()> {
        self.clear_status()?;
        let width = self.style.width.saturating_sub(1);
        let line = status_line(&self.tally, dropped, width).render(width, self.style.colour);
        self.to.write_all(line.first().map_or(&[], |row| row.as_bytes()))?;
        self.to.flush()?;
        self.status_shown = true;
        Ok(())
    }
}

impl<W: Write + Send + std::fmt::Debug> Sink for TextSink<W> {
    fn write(&mut self, output: &Output, context: Context<'_>) -> io::Result<()> {
        match output {
            Output::Journey(judged) => self.journey(judged, context),
            Output::Lapse { signature, target, lapse, .. } => {
                self.lines(&[check::lapse_line(lapse, *target, *signature, context.names)])
            }
            Output::Absence(absence) => self.lines(&[check::absence_line(absence, context.names)]),
            Output::Gone { at, interface, reason } => {
                self.lines(&[check::gone_line(*at, *interface, reason, context.names)])
            }
            Output::Episode(episode) => {
                self.held_back()?;
                self.lines(&ending::episode(episode, context.names))
            }
            Output::Join(report) => self.lines(&ending::join(report)),
            Output::Queue(share) => self.lines(&queue::queue(share, context.names)),
            Output::Receive(share) => self.lines(&receive::receive(share)),
            Output::RxRing(share) => self.lines(&rx_ring::rx_ring(share, context.names)),
            Output::Loss(report) => self.lines(&ending::loss(report, context.dropped)),
            Output::Summary(summary) => self.lines(ending::summary(summary).as_slice()),
            Output::Fact(_) | Output::Activity(_) | Output::Softirq { .. } => Ok(()),
        }
    }

    fn refresh(&mut self, context: Context<'_>) -> io::Result<()> {
        self.held_back()?;
        if self.style.status { self.status(context.dropped) } else { Ok(()) }
    }
}

/// One row on how it goes; what there is no room for is left out, the least important first.
fn status_line(tally: &Tally, dropped: u64, width: usize) -> Line {
    let (open, oldest) = tally.open();
    let parts = [
        Some((Look::Plain, format!("{} checks", tally.checks))),
        Some((if tally.slow == 0 { Look::Dim } else { Look::Warn }, format!("{} slow", tally.slow))),
        Some((if tally.lost == 0 { Look::Dim } else { Look::Bad }, format!("{} lost", tally.lost))),
        oldest.map(|oldest| (Look::Bad, format!("{open} open, oldest {oldest}"))),
        (dropped > 0).then(|| (Look::Bad, format!("{dropped} lines dropped"))),
        tally.latest_cause.map(|cause| (Look::Plain, format!("last cause {cause}"))),
        tally.latest.map(|latest| (Look::Dim, format!("latest {latest}"))),
    ];
    let mut line = Line::new().dim("…");
    for (look, text) in parts.into_iter().flatten() {
        if line.columns() + 2 + text.chars().count() > width {
            break;
        }
        line = line.add(look, format!("  {text}"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{TextSink, TextStyle};
    use crate::attribution::{Cause, Episode, EpisodeCause, Judged};
    use crate::pipeline::Output;
    use crate::sink::{Context, Sink, sample};

    const PIPE: TextStyle = TextStyle { width: 100, colour: false, status: false };

    fn shown(style: TextStyle, checks: impl IntoIterator<Item = Judged>) -> String {
        let names = sample::names();
        let context = Context { names: &names, dropped: 0 };
        let mut sink = TextSink::new(Vec::new(), style);
        for judged in checks {
            sink.write(&Output::Journey(Box::new(judged)), context).unwrap();
        }
        sink.refresh(context).unwrap();
        String::from_utf8(sink.to).unwrap()
    }

    #[test]
    fn a_slow_check_is_told_in_one_block() {
        let text = shown(PIPE, [sample::slow()]);
        for part in ["SLOW", "860 ms", "app.futex >99 %", "(pid 10/12)", "cgroup /pod", "custody", "hold 860 ms"] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }

    #[test]
    fn a_lost_check_names_the_drop() {
        assert!(shown(PIPE, [sample::lost()]).contains("request dropped: SOCKET_RCVBUFF"));
    }

    #[test]
    fn an_episode_says_over_how_many_checks_a_time_is_a_sum() {
        let names = sample::names();
        for width in [80, 100] {
            let mut sink = TextSink::new(Vec::new(), TextStyle { width, ..PIPE });
            let episode = Output::Episode(sample::episode());
            sink.write(&episode, Context { names: &names, dropped: 0 }).unwrap();
            let text = String::from_utf8(sink.to).unwrap();
            assert!(text.contains("2.40 s  over 3 checks"), "{text}");
            assert!(text.contains("from 2020-09-13 12:26:40 UTC for 9.00 s"), "{text}");
            assert!(text.contains("usually 60.0 µs"), "{text}");
        }
    }

    #[test]
    fn what_is_special_of_a_cause_beside_the_verdict_s_is_told() {
        let names = sample::names();
        let mut episode = sample::episode();
        let starves =
            EpisodeCause { cause: Cause::AppOnCpu, meaning: Some("it never sends"), ..episode.causes[0].clone() };
        let plain = EpisodeCause { meaning: Some(Cause::AppRunqueue.row().must_be_true), ..starves.clone() };
        episode.causes.extend([starves, EpisodeCause { cause: Cause::AppRunqueue, ..plain }]);
        let mut sink = TextSink::new(Vec::new(), PIPE);
        sink.write(&Output::Episode(episode), Context { names: &names, dropped: 0 }).unwrap();
        let text = String::from_utf8(sink.to).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(text.matches("it never sends").count(), 1, "{text}");
        assert!(!text.contains(Cause::AppRunqueue.row().must_be_true), "{text}");
    }

    #[test]
    fn what_an_offender_counted_is_told_once_of_each() {
        let names = sample::names();
        let mut episode = sample::episode();
        episode.causes.push(EpisodeCause { cause: Cause::AppOnCpu, ..episode.causes[0].clone() });
        episode.causes.push(EpisodeCause { cause: Cause::AppRunqueue, counted: None, ..episode.causes[0].clone() });
        let mut sink = TextSink::new(Vec::new(), PIPE);
        sink.write(&Output::Episode(episode), Context { names: &names, dropped: 0 }).unwrap();
        let text = String::from_utf8(sink.to).unwrap();
        let said = "counted  evil·[2J: 98 % of a CPU (usually 3 %), 12 switches/s, 3 migrations";
        assert_eq!(text.matches(said).count(), 1, "{text}");
        assert_eq!(text.matches("counted").count(), 1, "{text}");
    }

    #[test]
    fn where_nothing_is_usual_yet_no_time_is_made_up() {
        let names = sample::names();
        let mut sink = TextSink::new(Vec::new(), PIPE);
        let episode = Episode { baseline_p50: None, ..sample::episode() };
        sink.write(&Output::Episode(episode), Context { names: &names, dropped: 0 }).unwrap();
        assert!(String::from_utf8(sink.to).unwrap().contains("no usual time yet"));
    }

    #[test]
    fn a_late_request_is_the_sender_s_or_the_network_s() {
        let names = sample::names();
        let mut sink = TextSink::new(Vec::new(), PIPE);
        sink.write(&sample::lapse(), Context { names: &names, dropped: 0 }).unwrap();
        let text = String::from_utf8(sink.to).unwrap();
        assert!(text.contains("LATE") && text.contains("300 ms") && text.contains("external.outside_host"), "{text}");
    }

    #[test]
    fn an_interface_that_is_gone_is_told() {
        let names = sample::names();
        let mut sink = TextSink::new(Vec::new(), PIPE);
        sink.write(&sample::gone(), Context { names: &names, dropped: 0 }).unwrap();
        let text = String::from_utf8(sink.to).unwrap();
        assert!(text.contains("GONE") && text.contains("it was removed"), "{text}");
    }

    #[test]
    fn healthy_checks_are_silent() {
        assert_eq!(shown(PIPE, [sample::healthy()]), "");
    }

    #[test]
    fn what_was_lost_to_a_cpu_that_receives_is_told_with_what_would_relieve_it() {
        let names = sample::names();
        let mut sink = TextSink::new(Vec::new(), TextStyle { width: 160, ..PIPE });
        sink.write(&Output::Receive(Box::new(sample::receive())), Context { names: &names, dropped: 0 }).unwrap();
        let text = String::from_utf8(sink.to).unwrap();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "CPU 1, which receives 3 checks waited 80.0 ms for CPU 1 to receive them",
            "70.0 ms inven·[2Jtory (pid 10) kept it from receiving",
            "relief give worker another CPU than 1",
        ] {
            assert!(words.contains(part), "{part} is missing in:\n{text}");
        }
    }

    #[test]
    fn what_a_nic_itself_lost_is_told_with_what_would_have_it_lose_less() {
        let names = sample::names();
        let mut sink = TextSink::new(Vec::new(), TextStyle { width: 160, ..PIPE });
        sink.write(&Output::RxRing(Box::new(sample::rx_ring())), Context { names: &names, dropped: 0 }).unwrap();
        let text = String::from_utf8(sink.to).unwrap();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "before the kernel",
            "itself lost up to 1240 packets in 1.20 s (driver pkts rx OOB); 38 requests did not come, of which these may \
             be 38",
            "relief give",
            "rx N, up to 4096 (a receive ring of",
            "CPU 1 had no budget left 2 times",
        ] {
            assert!(words.contains(part), "{part} is missing in:\n{text}");
        }
    }

    #[test]
    fn requests_that_the_own_nic_may_have_lost_are_its_suspects_and_nobody_else_s() {
        let names = sample::names();
        let mut sink = TextSink::new(Vec::new(), TextStyle { width: 300, ..PIPE });
        sink.write(&sample::absence_by_ring(), Context { names: &names, dropped: 0 }).unwrap();
        let text = String::from_utf8(sink.to).unwrap();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("perhaps nic.drop 15 requests never arrived; "), "{text}");
        assert!(words.contains("perhaps 12 of these requests, while 3 at least were lost elsewhere"), "{text}");
        assert!(!text.contains("external.outside_host"), "{text}");
    }

    #[test]
    fn who_filled_a_queue_is_told_with_what_would_relieve_it() {
        let names = sample::names();
        let mut sink = TextSink::new(Vec::new(), TextStyle { width: 160, ..PIPE });
        for share in sample::queues() {
            sink.write(&Output::Queue(Box::new(share)), Context { names: &names, dropped: 0 }).unwrap();
        }
        let text = String::from_utf8(sink.to).unwrap();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "transmit queue 0 of 2  3 checks waited 100 ms in all  served by CPU 1, 0  idle beside it: 1",
            "40 %  worker·[2J (pid 10/11)",
            "10 ± 2 %  senders that were not seen  10 packets, 10000 bytes, at least 1 flow",
            "more  16 senders",
            "1 packet found no room",
            "2 senders share queue 0, while nothing was sent on 1; xps_cpus of this queue is 3",
        ] {
            let part = part.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(&part), "{part} is missing in:\n{text}");
        }
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }

    #[test]
    fn names_of_others_never_reach_the_terminal_raw() {
        let text = shown(PIPE, [sample::slow(), sample::lost()]);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [40, 60, 80, 200] {
            let text = shown(TextStyle { width, ..PIPE }, [sample::slow(), sample::lost(), sample::open(9)]);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        }
    }

    #[test]
    fn nothing_that_matters_is_cut() {
        for width in [40, 80] {
            let text = shown(TextStyle { width, ..PIPE }, [sample::slow(), sample::lost(), sample::open(9)]);
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for part in ["(pid 10/12)", "10.0.0.1:4000 → 10.0.0.1:53", "cgroup /pod", "dropped: SOCKET_RCVBUFF"] {
                assert!(text.contains(part), "{part} is missing in:\n{text}");
            }
        }
    }

    #[test]
    fn a_block_takes_few_rows() {
        let rows = |width, judged| shown(TextStyle { width, ..PIPE }, [judged]).lines().count();
        assert_eq!((rows(100, sample::slow()), rows(80, sample::slow())), (4, 4));
    }

    #[test]
    fn what_is_proven_of_the_app_is_told_and_nothing_else() {
        let said = shown(PIPE, [sample::held()]);
        assert!(said.contains("service  the app is broken: it held the check 860 ms, usually 998 µs"), "{said}");
        assert!(!shown(PIPE, [sample::slow()]).contains("service"));
    }

    #[test]
    fn an_open_check_speaks_each_time_its_age_doubles() {
        let checks = (1..=8).map(|second| sample::open(second * 1_000_000_000));
        assert_eq!(shown(PIPE, checks).matches("OPEN").count(), 4);
    }

    #[test]
    fn checks_that_are_alike_are_shown_once_a_second() {
        let text = shown(PIPE, std::iter::repeat_n(sample::slow(), 50).chain([sample::open(5_000_000_000)]));
        assert_eq!(text.matches("SLOW").count(), 1, "{text}");
        assert!(text.contains("… and 49 more like it, 860 ms\n"), "{text}");
    }

    #[test]
    fn of_several_kinds_the_line_says_which_is_meant() {
        let checks = [sample::slow(), sample::lost(), sample::slow(), sample::slow()];
        let text = shown(PIPE, checks);
        assert!(text.contains("… and 2 more like it (SLOW, app.futex by evil·[2J), 860 ms\n"), "{text}");
    }

    #[test]
    fn the_status_line_is_for_terminals() {
        let terminal = TextStyle { status: true, ..PIPE };
        assert!(shown(terminal, [sample::healthy()]).contains("1 checks  0 slow  0 lost  latest 1.00 ms"));
    }

    #[test]
    fn the_status_line_leaves_out_what_does_not_fit() {
        let terminal = TextStyle { status: true, width: 50, ..PIPE };
        let text = shown(terminal, [sample::slow()]);
        assert!(text.ends_with("…  1 checks  1 slow  0 lost  last cause app.futex"), "{text}");
    }
}
