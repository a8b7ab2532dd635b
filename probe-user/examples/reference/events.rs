//! The page on the kernel's records, from the sources of the wire crate: their doc comments are
//! what there is to say.

use anyhow::{Context as _, Result};
use probe_wire::{EventKind, WIRE_VERSION};
use syn::{Attribute, Expr, ExprLit, Field, Fields, Item, ItemStruct, Lit, Meta};

use crate::markdown::{code, heading, table};

/// The wire crate's files, in the order of the page.
const SOURCES: [&str; 10] = [
    include_str!("../../../probe-ebpf/wire/src/kind.rs"),
    include_str!("../../../probe-ebpf/wire/src/header.rs"),
    include_str!("../../../probe-ebpf/wire/src/net.rs"),
    include_str!("../../../probe-ebpf/wire/src/sock.rs"),
    include_str!("../../../probe-ebpf/wire/src/sched.rs"),
    include_str!("../../../probe-ebpf/wire/src/irq.rs"),
    include_str!("../../../probe-ebpf/wire/src/storage.rs"),
    include_str!("../../../probe-ebpf/wire/src/block.rs"),
    include_str!("../../../probe-ebpf/wire/src/lock.rs"),
    include_str!("../../../probe-ebpf/wire/src/kvm.rs"),
];

pub(crate) fn page() -> Result<String> {
    let introduction = format!(
        "A record of the kernel is a header and the body of its kind, little-endian, without padding. This is wire \
        version {WIRE_VERSION}. A recording holds the same bytes. Times are nanoseconds of `CLOCK_MONOTONIC`."
    );
    let mut page = heading("Events", "the `probe-wire` crate", &introduction);
    let items = items()?;
    table(&mut page, ["number", "event", "meaning and body"], kinds(&items)?);
    for item in &items {
        if let Item::Struct(item @ ItemStruct { fields: Fields::Named(_), .. }) = item {
            structure(&mut page, item);
        }
    }
    Ok(page)
}

fn items() -> Result<Vec<Item>> {
    let mut items = Vec::new();
    for source in SOURCES {
        items.extend(syn::parse_file(source).context("a source of the wire crate")?.items);
    }
    Ok(items)
}

fn kinds(items: &[Item]) -> Result<Vec<[String; 3]>> {
    let kinds = items.iter().find_map(|item| match item {
        Item::Enum(item) if item.ident == "EventKind" => Some(item),
        _ => None,
    });
    let variants = &kinds.context("the wire crate has no EventKind")?.variants;
    let rows = EventKind::ALL.iter().zip(variants);
    Ok(rows.map(|(kind, variant)| [(*kind as u16).to_string(), code(kind.name()), linked(&variant.attrs)]).collect())
}

fn structure(page: &mut String, item: &ItemStruct) {
    page.push_str(&format!("\n## {}\n\n{}\n", item.ident, linked(&item.attrs)));
    table(page, ["field", "type", "meaning"], item.fields.iter().map(field));
}

fn field(field: &Field) -> [String; 3] {
    let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
    [code(&name), code(&type_name(&field.ty)), linked(&field.attrs)]
}

fn type_name(ty: &syn::Type) -> String {
    match ty {
        syn::Type::Array(array) => format!("[{}; {}]", type_name(&array.elem), length(&array.len)),
        syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
        _ => String::new(),
    }
}

fn length(length: &Expr) -> String {
    match length {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.to_string(),
        Expr::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
        _ => String::new(),
    }
}

/// A doc comment in one line, its links to structures of this page turned into links on it.
fn linked(attributes: &[Attribute]) -> String {
    let lines: Vec<String> = attributes.iter().filter_map(doc_line).collect();
    let text = lines.join(" ");
    let mut parts = text.trim().split("[`");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + &link(part))
}

/// What follows on "[`": a name, perhaps its path, and text.
fn link(part: &str) -> String {
    let (name, rest) = part.split_once("`]").unwrap_or((part, ""));
    let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest);
    match name.split("::").next().filter(|structure| structure.ends_with("Body")) {
        Some(structure) => format!("[`{name}`](#{}){rest}", structure.to_lowercase()),
        None => format!("`{name}`{rest}"),
    }
}

fn doc_line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(meta) = &attribute.meta else { return None };
    match &meta.value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if meta.path.is_ident("doc") => {
            Some(text.value().trim().to_owned())
        }
        _ => None,
    }
}
