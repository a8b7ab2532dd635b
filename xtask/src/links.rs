//! Relative links in the project's Markdown files.
//!
//! In: the files that git knows. Out: the list of links that lead nowhere. It never asks the
//! network about an absolute link.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use crate::workspace;

/// Fails with every link that leads nowhere.
pub(crate) fn check() -> Result<()> {
    let mut command = Command::new("git");
    command.current_dir(workspace::root()).args(["ls-files", "--cached", "--others", "--exclude-standard", "*.md"]);
    let listed = workspace::capture("links", &mut command)?;
    let mut faults = Vec::new();
    for name in listed.lines() {
        let page = Page::read(workspace::root().join(name))?;
        faults.extend(page.dead_links()?.into_iter().map(|link| format!("{name}: {link}")));
    }
    ensure!(faults.is_empty(), "links that lead nowhere:\n  {}", faults.join("\n  "));
    Ok(())
}

struct Page {
    path: PathBuf,
    links: Vec<String>,
    /// Names by which its headings can be linked.
    anchors: Vec<String>,
}

impl Page {
    fn read(path: PathBuf) -> Result<Self> {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let (links, anchors) = parse(&text);
        Ok(Self { path, links, anchors })
    }

    fn dead_links(&self) -> Result<Vec<&str>> {
        let mut dead = Vec::new();
        for link in self.links.iter().filter(|link| is_relative(link)) {
            if !self.leads_somewhere(link)? {
                dead.push(link.as_str());
            }
        }
        Ok(dead)
    }

    fn leads_somewhere(&self, link: &str) -> Result<bool> {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = self.path.parent().unwrap_or(Path::new("")).join(file);
        if file.is_empty() {
            return Ok(self.has(anchor));
        }
        if anchor.is_empty() || !target.exists() {
            return Ok(target.exists());
        }
        Ok(Self::read(target)?.has(anchor))
    }

    fn has(&self, anchor: &str) -> bool {
        self.anchors.iter().any(|known| known == anchor)
    }
}

fn is_relative(link: &str) -> bool {
    !link.contains("://") && !link.starts_with("mailto:")
}

/// Links and anchors of a Markdown text.
fn parse(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut links, mut anchors) = (Vec::new(), Vec::new());
    let mut heading: Option<String> = None;
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                links.push(dest_url.into_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => anchors.extend(heading.take().map(|title| anchor(&title))),
            Event::Text(part) | Event::Code(part) => heading.iter_mut().for_each(|title| title.push_str(&part)),
            _ => {}
        }
    }
    (links, anchors)
}

/// The anchor that forges make of a heading.
fn anchor(title: &str) -> String {
    let kept = title.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        let (links, anchors) = parse(text);
        Page { path: workspace::root().join("page.md"), links, anchors }
    }

    #[test]
    fn a_link_to_nothing_is_found_and_one_in_code_is_none() {
        let page = page("[a](README.md) [b](no-such-file.md) `[c](nor-this.md)` [d](https://example.org/x)");
        assert_eq!(page.dead_links().unwrap(), ["no-such-file.md"]);
    }

    #[test]
    fn anchors_are_checked_against_headings() {
        let page = page("# What it `costs`, in all\n[a](#what-it-costs-in-all) [b](#what-it-gives)");
        assert_eq!(page.dead_links().unwrap(), ["#what-it-gives"]);
    }
}
