//! Pages and tables in Markdown.

/// The start of a page: its title, where it comes from, and what it says in a sentence or two.
pub(crate) fn heading(title: &str, source: &str, introduction: &str) -> String {
    format!("<!-- Made by `cargo xtask docs` from {source}; edit that. -->\n\n# {title}\n\n{introduction}\n")
}

/// Appends a table.
pub(crate) fn table<const N: usize>(page: &mut String, head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    page.push('\n');
    line(page, &head.map(str::to_owned));
    line(page, &head.map(|_| "---".to_owned()));
    rows.into_iter().for_each(|row| line(page, &row));
}

fn line(page: &mut String, cells: &[String]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    page.push_str(&format!("| {} |\n", cells.join(" | ")));
}

/// As code.
pub(crate) fn code(text: &str) -> String {
    format!("`{text}`")
}

/// Each as code, separated by commas.
pub(crate) fn codes<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().map(code).collect::<Vec<_>>().join(", ")
}
