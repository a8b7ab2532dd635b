//! Pages from the library's tables.

use probe_user::{
    attribution::{CAUSES, CauseRow, LOSS_PLACES},
    catalog::{FIELDS, Field, Shape, Unit},
    hooks::{Attach, Choice, Cost, Direction, HOOKS, Hook},
    journey::STAGES,
};

use crate::markdown::{code, codes, heading, table};

pub(crate) fn stages() -> String {
    let introduction = "A stage is a named point on a check's path. They stand in the order in which a served \
        check passes them; a check that this host sends passes them from the other end. A span is the time from one \
        stage to the next, and custody says who holds the check in it.";
    let mut page = heading("Stages", "`STAGES`", introduction);
    let head = ["#", "stage", "marks that the check", "seen by", "span that follows", "custody"];
    let rows = STAGES.iter().zip(1..).map(|(row, number): (_, u32)| {
        let custody = row.then.custody().name().to_owned();
        let (meaning, seen_by) = (row.meaning.to_owned(), row.seen_by.to_owned());
        [number.to_string(), code(row.name), meaning, seen_by, code(row.then.name()), custody]
    });
    table(&mut page, head, rows);
    page
}

pub(crate) fn causes() -> String {
    let introduction = "A cause is who took time of a check. The set is closed and its members exclude each other. \
        The thread, cgroup or device behind it is the offender, a field of its own. Time for which no cause is \
        proven is `unexplained`. `whylag explain CAUSE` says more.";
    let mut page = heading("Causes", "`CAUSES`", introduction);
    for family in CAUSES.chunk_by(|one, next| one.family == next.family) {
        let name = family.first().map(|row| format!("{:?}", row.family).to_lowercase());
        page.push_str(&format!("\n## {}\n", name.unwrap_or_default()));
        table(&mut page, ["cause", "must be true", "measured from, and proof"], family.iter().map(cause));
    }
    page
}

fn cause(row: &CauseRow) -> [String; 3] {
    [code(row.name), row.must_be_true.to_owned(), row.proof.to_owned()]
}

pub(crate) fn places() -> String {
    let introduction = "A lost check ends at one of these places. The set is closed. Where the kernel dropped the \
        packet, the drop's reason or the kernel function that dropped it tells the place; without a drop, the last \
        stage that was reached does. The counter is the kernel's own, which moves with it. A drop at a place with a \
        cause proves that cause; elsewhere, who held the packet counts too.";
    let mut page = heading("Places of loss", "`LOSS_PLACES`", introduction);
    let rows = LOSS_PLACES.iter().map(|row| {
        let cause = row.cause.map_or(String::new(), |cause| code(cause.name()));
        [code(row.name), row.meaning.to_owned(), row.counter.to_owned(), cause]
    });
    table(
        &mut page,
        ["place", "what is true of a check lost there", "counted by", "cause that a drop there proves"],
        rows,
    );
    page
}

pub(crate) fn hooks() -> String {
    let introduction = "A hook is a place in the kernel where a program is attached. The first way to attach that \
        the kernel takes is used. A hook that cannot be attached is refused, with the reason; only without a required \
        one whylag does not run. `whylag doctor` says which a host takes. Cost: `rare` runs for what is watched, or a \
        few times a second; `filtered` runs often and rejects what is not watched; `timed` reads the clock on every run. A hook that costs every packet \
        something is attached only once a tap is among the interfaces.";
    let mut page = heading("Hooks", "`HOOKS`", introduction);
    let head =
        ["hook", "tells", "attached as, in order of preference", "informs", "cost", "required", "only with a tap"];
    table(&mut page, head, HOOKS.iter().map(hook));
    page.push_str("\nFields of kernel structures without which a hook is refused, looked up in the kernel's BTF:\n");
    let needing = HOOKS.iter().filter(|hook| !hook.fields.is_empty());
    let fields = needing.map(|hook| [code(hook.name), codes(hook.fields.iter().copied())]);
    table(&mut page, ["hook", "fields"], fields);
    page.push_str("\nA hook is refused where one that it needs does not run: alone it would tell nonsense.\n");
    let alone = HOOKS.iter().filter(|hook| !hook.needs.is_empty());
    table(&mut page, ["hook", "needs"], alone.map(|hook| [code(hook.name), codes(hook.needs.iter().copied())]));
    page
}

fn hook(hook: &Hook) -> [String; 7] {
    [
        code(hook.name),
        hook.tells.to_owned(),
        hook.choices.iter().map(choice).collect::<Vec<_>>().join("; "),
        codes(hook.informs.iter().copied()),
        cost(hook.cost).to_owned(),
        yes(hook.required),
        yes(hook.only_with_tap),
    ]
}

fn choice(choice: &Choice) -> String {
    let way = choice.attach.name();
    match choice.attach {
        Attach::Tcx(Direction::Ingress) | Attach::Clsact(Direction::Ingress) => format!("`{way}` ingress"),
        Attach::Tcx(Direction::Egress) | Attach::Clsact(Direction::Egress) => format!("`{way}` egress"),
        Attach::BtfTracepoint { tracepoint, arguments } => {
            format!("`{way}` `{tracepoint}` with {arguments} or more arguments")
        }
        Attach::Tracepoint { category, tracepoint, .. } => format!("`{way}` `{category}:{tracepoint}`"),
        Attach::TailCall { tracepoint, arguments, .. } => {
            format!("`{way}` from the program on `{tracepoint}` with {arguments} or more arguments")
        }
        Attach::CpuClock => format!("`{way}` `cpu-clock` on each CPU"),
    }
}

const fn cost(cost: Cost) -> &'static str {
    match cost {
        Cost::Rare => "rare",
        Cost::Filtered => "filtered",
        Cost::Timed => "timed",
    }
}

pub(crate) fn fields() -> String {
    let introduction = "The JSON output is one object a line; `type` says what a line holds. In names, `.` leads \
        into an object and `[]` into a list. Fields are added, never renamed. Integers are below 2^53, except \
        nanoseconds, which may use 64 bits.";
    let mut page = heading("Fields", "`catalog::FIELDS`", introduction);
    for record in FIELDS.chunk_by(|one, next| one.record == next.record) {
        page.push_str(&format!("\n## {}\n", record.first().map_or("", |field| field.record)));
        table(&mut page, ["field", "type", "unit", "can be null", "meaning"], record.iter().map(field));
    }
    page
}

fn field(field: &Field) -> [String; 5] {
    let description = field.description.to_owned();
    [code(field.name), shape(field.shape).to_owned(), unit(field.unit).to_owned(), yes(field.nullable), description]
}

const fn shape(shape: Shape) -> &'static str {
    match shape {
        Shape::Integer => "integer",
        Shape::Float => "number",
        Shape::String => "string",
        Shape::Boolean => "boolean",
        Shape::Object => "object",
        Shape::List => "list",
    }
}

const fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "nanoseconds",
        Unit::Timestamp => "RFC 3339, UTC",
        Unit::Count => "count",
        Unit::Ratio => "ratio, 0 to 1",
        Unit::Number => "number of a thing",
        Unit::Text => "text",
        Unit::Flag => "yes or no",
        Unit::Group => "",
    }
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "" }.to_owned()
}
