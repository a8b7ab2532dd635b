//! A report as text: aligned, wrapped, and safe for a terminal.

use super::{CpuAccounts, HookRow, InterfaceRow, Known, Problem, Report, Severity, ThreadCounting};
use crate::counters::Unavailable;
use crate::symbolize::Sandbox;
use crate::target::{LinkState, VmThreadRole};
use std::fmt::Write as _;

/// Columns of the first column of the tables of facts.
const LABEL: usize = 20;
const INDENT: &str = "  ";
const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// Lines as they grow.
struct Page {
    text: String,
    width: usize,
    colour: bool,
}

pub(super) fn render(report: &Report, width: usize, colour: bool) -> String {
    let mut page = Page { text: String::new(), width: width.max(40), colour };
    verdict(&mut page, report);
    problems(&mut page, &report.problems);
    host(&mut page, report);
    hooks(&mut page, &report.hooks);
    interfaces(&mut page, &report.interfaces);
    machines(&mut page, report);
    containers(&mut page, report);
    automatic(&mut page, report);
    gaps(&mut page, report);
    page.text
}

impl Page {
    fn heading(&mut self, title: &str) {
        let (on, off) = if self.colour { (BOLD, PLAIN) } else { ("", "") };
        let _ = write!(self.text, "\n{on}{title}{off}\n");
    }

    /// A label and its text; further lines of the text stand under the first.
    fn fact(&mut self, label: &str, text: &str) {
        self.columns(INDENT, label, LABEL, text, "");
    }

    fn columns(&mut self, indent: &str, label: &str, label_width: usize, text: &str, colour: &str) {
        let start = indent.len() + label_width;
        let lines = wrap(&printable(text), self.width.saturating_sub(start));
        for (index, line) in lines.iter().enumerate() {
            let label = if index == 0 { printable(label) } else { String::new() };
            let (on, off) = if self.colour && !colour.is_empty() { (colour, PLAIN) } else { ("", "") };
            // A label too long for its column still keeps one space before the text.
            let pad = label_width.saturating_sub(label.chars().count()).max(usize::from(index == 0));
            let _ = writeln!(self.text, "{}", format!("{indent}{on}{label}{off}{:pad$}{line}", "").trim_end());
        }
    }
}

/// Names of processes, interfaces and containers may hold anything; a terminal obeys control
/// characters.
fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

/// Breaks at spaces; a word longer than a line keeps its own.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        let length = line.chars().count();
        if length > 0 && length + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            line.push_str(if length > 0 { " " } else { "" });
            line.push_str(word);
        }
    }
    lines
}

fn verdict(page: &mut Page, report: &Report) {
    let host = &report.host;
    let cpus = host.online_cpus.value().map(|count| format!(", {count} CPUs")).unwrap_or_default();
    let _ = writeln!(page.text, "whylag {} on Linux {} {}{cpus}", report.version, host.kernel, host.architecture);
    page.heading("This host");
    let verdict = &report.verdict;
    page.fact("attach", if verdict.can_run { "can run" } else { "cannot run; see the problems below" });
    let list = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    if report.hooks.is_empty() {
        page.fact("stages, causes", "unknown: no hook was tried");
        return;
    }
    page.fact("sees stages", &list(&verdict.stages));
    page.fact("misses stages", &list(&verdict.missing_stages));
    page.fact("can prove", &list(&verdict.causes));
    page.fact("cannot prove", &list(&verdict.missing_causes));
}

fn problems(page: &mut Page, problems: &[Problem]) {
    page.heading("Problems");
    if problems.is_empty() {
        let _ = writeln!(page.text, "{INDENT}none");
    }
    for problem in problems {
        let colour = match problem.severity {
            Severity::Blocks => RED,
            Severity::Limits => YELLOW,
            Severity::Advice => "",
        };
        page.columns(INDENT, problem.severity.name(), 8, &problem.what, colour);
        page.columns(INDENT, "   fix:", 8, &problem.fix, "");
    }
}

fn show<T>(value: &Known<T>, text: impl Fn(&T) -> String) -> String {
    match value {
        Known::Known(value) => text(value),
        Known::Unknown(reason) => format!("unknown: {reason}"),
    }
}

fn host(page: &mut Page, report: &Report) {
    let host = &report.host;
    page.heading("Kernel and privileges");
    page.fact("type information", &show(&host.btf, |btf| format!("{}, {}", btf.path.display(), bytes(btf.size_bytes))));
    page.fact("lockdown", &show(&host.lockdown, Clone::clone));
    for (label, held) in [("privileges", true), ("lacking", false)] {
        page.fact(label, &show(&host.privileges, |all| privileges(all, held)));
    }
    page.fact("locked memory", &host.memlock.map_or_else(|| "no limit".to_owned(), bytes));
    page.fact("kernel functions", &show(&host.kernel_symbols, |count| format!("{count} named")));
    for setting in &host.settings {
        // Sysctl names are longer than the column of labels.
        page.columns(INDENT, setting.name, 34, &show(&setting.value, Clone::clone), "");
    }
    page.fact("cgroups", &show(&host.cgroups, |layout| format!("{layout:?}").to_lowercase()));
    page.fact("tracefs", &show(&host.tracefs, |path| path.display().to_string()));
    page.fact("pressure (PSI)", &show(&host.pressure, |on| if *on { "on" } else { "off" }.to_owned()));
    page.fact("clock", &show(&host.clock_source, Clone::clone));
    page.fact("CPU time", &show(&host.cpu_accounts, |accounts| cpu_accounts(*accounts)));
    page.fact("user frames", &show(&host.sandbox, named_by));
    page.fact("thread counters", &thread_counters(host.thread_counters));
}

/// Where nothing can be counted, that is one reason, not two.
fn thread_counters(counting: ThreadCounting) -> String {
    let without = |why: Unavailable| format!("not counted: {}; fix: {}", why.reason(), why.fix());
    match (counting.software, counting.hardware) {
        (Some(why), _) => without(why),
        (None, Some(why)) => {
            format!("CPU time, switches, migrations and page faults; cycles and instructions are {}", without(why))
        }
        (None, None) => "CPU time, switches, migrations, page faults, cycles and instructions".to_owned(),
    }
}

/// Files of watched processes are read by a child; what it can do beyond that is a risk.
fn named_by(sandbox: &Sandbox) -> String {
    let missing: Vec<String> = sandbox.missing().map(|(layer, reason)| format!("without {layer}: {reason}")).collect();
    if missing.is_empty() {
        return "named in a child that can only read what it is handed".to_owned();
    }
    format!("named in a child {}", missing.join("; "))
}

/// What threads are charged besides their own work decides what `host.cpu_gap` can be proven by.
fn cpu_accounts(accounts: CpuAccounts) -> String {
    let CpuAccounts { charged, slices, steal, interrupts } = accounts;
    let witness = match (charged, slices) {
        (true, true) => "switches that are missing show, and are put right",
        (true, false) => "switches that are missing show",
        (false, _) => "switches that are missing may not show",
    };
    let whose = |what: &str, apart: bool| {
        format!("{what} {}", if apart { "apart" } else { "charged to the thread that has the CPU" })
    };
    format!("{witness}; {}; {}", whose("the hypervisor's share", steal), whose("hard interrupts", interrupts))
}

fn privileges(all: &[super::Privilege], held: bool) -> String {
    let names: Vec<_> =
        all.iter()
            .filter(|privilege| privilege.held == held)
            .map(|privilege| {
                if held { privilege.name.to_owned() } else { format!("{} ({})", privilege.name, privilege.needed_for) }
            })
            .collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = UNITS.iter().find(|(scale, _)| count >= *scale);
    unit.map_or_else(|| format!("{count} B"), |(scale, name)| format!("{:.1} {name}", count as f64 / *scale as f64))
}

fn hooks(page: &mut Page, hooks: &[HookRow]) {
    page.heading("Hooks");
    if hooks.is_empty() {
        let _ = writeln!(page.text, "{INDENT}none was tried");
    }
    for hook in hooks {
        let how = hook.choice.as_deref().map_or_else(|| "refused".to_owned(), |choice| format!("by {choice}"));
        let colour = if hook.choice.is_some() { "" } else { YELLOW };
        page.columns(INDENT, &hook.name, 22, &format!("{how}; informs {}", hook.informs.join(", ")), colour);
        for refused in &hook.refused {
            page.columns("    ", "", 20, &format!("not by {}: {}", refused.attempt, refused.reason), "");
            page.columns("    ", "", 20, &format!("fix: {}", refused.fix), "");
        }
    }
}

/// Interfaces of the first namespace, whylag's own, one by one; of the others only how many.
fn interfaces(page: &mut Page, rows: &[InterfaceRow]) {
    page.heading("Interfaces");
    let Some(home) = rows.first().map(|row| row.interface.id.netns) else {
        let _ = writeln!(page.text, "{INDENT}unknown: none could be read");
        return;
    };
    page.columns(
        INDENT,
        "NAME",
        16,
        &format!("{:<9} {:<14} {:>7}  {:<7} OFFLOADS", "KIND", "DRIVER", "TX/RX", "STATE"),
        "",
    );
    for row in rows.iter().filter(|row| row.interface.id.netns == home) {
        interface(page, row);
    }
    let elsewhere = rows.iter().filter(|row| row.interface.id.netns != home).count();
    if elsewhere > 0 {
        let _ = writeln!(page.text, "{INDENT}and {elsewhere} in other namespaces");
    }
}

fn interface(page: &mut Page, row: &InterfaceRow) {
    let one = &row.interface;
    let state = match (one.up, one.state) {
        (false, _) | (true, LinkState::Down | LinkState::LowerLayerDown) => "down",
        (true, LinkState::Dormant) => "dormant",
        (true, LinkState::Up | LinkState::Unknown) => "up",
    };
    let offloads = one.offloads.map_or_else(
        || "unknown".to_owned(),
        |offloads| {
            let named = [("gro", offloads.gro), ("gso", offloads.gso), ("tso", offloads.tso), ("lro", offloads.lro)];
            named.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
        },
    );
    let queues = format!("{}/{}", one.tx_queues, one.rx_queues);
    let driver = one.driver.as_deref().unwrap_or("-");
    let text = format!("{:<9} {driver:<14} {queues:>7}  {state:<7} {offloads}", one.kind);
    // Its spaces align columns, so it is not wrapped.
    let line = format!("{INDENT}{:<16}{text}", one.name);
    let _ = writeln!(page.text, "{}", printable(line.trim_end()));
}

fn machines(page: &mut Page, report: &Report) {
    page.heading("Virtual machines");
    if report.machines.is_empty() {
        let _ = writeln!(page.text, "{INDENT}none found");
    }
    let name_of =
        |id| report.interfaces.iter().find(|row| row.interface.id == id).map(|row| row.interface.name.clone());
    for machine in &report.machines {
        let taps: Vec<_> = machine.taps.iter().copied().filter_map(name_of).collect();
        let taps = if taps.is_empty() { "no tap".to_owned() } else { format!("tap {}", taps.join(", ")) };
        let count = |role| machine.threads.iter().filter(|thread| thread.role == role).count();
        let threads = format!(
            "threads: {} vCPU, {} vhost, {} I/O, {} other",
            count(VmThreadRole::Vcpu),
            count(VmThreadRole::Vhost),
            count(VmThreadRole::Io),
            count(VmThreadRole::Main)
        );
        let disks: Vec<_> =
            machine.disks.iter().map(|disk| format!("{} on {}", disk.path.display(), disk.device)).collect();
        let disks = if disks.is_empty() { String::new() } else { format!("; disks: {}", disks.join(", ")) };
        page.fact(&machine.name, &format!("{} (pid {}), {taps}; {threads}{disks}", machine.comm, machine.tgid));
    }
}

fn containers(page: &mut Page, report: &Report) {
    page.heading("Containers");
    if report.containers.is_empty() {
        let _ = writeln!(page.text, "{INDENT}none found");
    }
    for container in &report.containers {
        let inside = |row: &&InterfaceRow| Some(row.interface.id.netns) == container.netns;
        let place = report.interfaces.iter().find(inside).map_or("unknown", |row| row.namespace.as_str());
        let runtime = container.runtime;
        let text = format!("{runtime}, {} processes, network of {place}", container.tgids.len());
        page.fact(&container.display_name(), &text);
    }
}

fn automatic(page: &mut Page, report: &Report) {
    page.heading("whylag attach, with nothing named");
    match &report.automatic {
        Known::Known(automatic) => automatic.reasons.iter().for_each(|reason| page.columns(INDENT, "-", 2, reason, "")),
        Known::Unknown(reason) => page.columns(INDENT, "-", 2, reason, ""),
    }
}

fn gaps(page: &mut Page, report: &Report) {
    if report.gaps.is_empty() {
        return;
    }
    page.heading("Not seen");
    for gap in &report.gaps {
        page.columns(INDENT, "-", 2, &format!("{}: {}", gap.what, gap.reason), "");
    }
}
