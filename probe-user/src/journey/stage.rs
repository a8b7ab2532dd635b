//! The stages of a check's path and the spans between them.

use serde::{Deserialize, Serialize};

/// A named point on a check's path, in path order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Came in at the physical NIC.
    PnicRx = 1,
    /// Left the host through the host end of the tap or veth, or came in through a macvtap.
    VnicTx = 2,
    /// Taken off the tap by the vhost worker or the VMM.
    BackendRx = 3,
    /// Came in inside the guest or pod.
    GuestRx = 4,
    /// Entered the receiving socket's queue.
    SockEnqueue = 5,
    /// Read by a thread.
    SockRead = 6,
    /// The reply entered the stack.
    AppSend = 7,
    /// Left the guest or pod.
    GuestTx = 8,
    /// Came in at the host end of the tap or veth, or left through a macvtap.
    VnicRx = 9,
    /// Reached the physical NIC, before its queueing discipline.
    PnicQueue = 10,
    /// Handed to the driver.
    PnicXmit = 11,
    /// Freed by the driver.
    PnicDone = 12,
}

/// What is known of a stage.
#[derive(Debug, Clone, Copy)]
pub struct StageRow {
    /// The stage.
    pub stage: Stage,
    /// Public name.
    pub name: &'static str,
    /// What it marks.
    pub meaning: &'static str,
    /// What sees it.
    pub seen_by: &'static str,
    /// Who holds the check from here on, when it is served.
    pub then: Span,
}

/// A stretch of a check's path, named for what the check does in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Span {
    /// From the NIC up to the socket.
    Receive,
    /// Between two devices of the host.
    Forward,
    /// Inside a VM or a namespace that is not looked into.
    Vm,
    /// In the socket's receive queue.
    Queue,
    /// With the thread that serves it.
    Hold,
    /// In the socket's send queue.
    Send,
    /// In the transmit path: queueing discipline and device queue.
    Transmit,
    /// Outside this host.
    Outside,
}

/// Who holds a check in a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Custody {
    /// Nobody on this host.
    Outside,
    /// The receive path.
    ReceivePath,
    /// Forwarding between devices.
    Forwarding,
    /// A VM.
    Vm,
    /// A socket.
    Socket,
    /// A thread.
    Thread,
    /// The transmit path.
    TransmitPath,
}

impl Custody {
    /// The public name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Outside => "outside",
            Self::ReceivePath => "receive path",
            Self::Forwarding => "forwarding",
            Self::Vm => "vm",
            Self::Socket => "socket",
            Self::Thread => "thread",
            Self::TransmitPath => "transmit path",
        }
    }
}

impl Span {
    /// Every span, in the order in which a served check passes them.
    pub const ALL: [Self; 8] =
        [Self::Receive, Self::Forward, Self::Vm, Self::Queue, Self::Hold, Self::Send, Self::Transmit, Self::Outside];

    /// The public name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Forward => "forward",
            Self::Vm => "vm",
            Self::Queue => "queue",
            Self::Hold => "hold",
            Self::Send => "send",
            Self::Transmit => "transmit",
            Self::Outside => "outside",
        }
    }

    /// The letter that stands for it in a drawing.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Receive => 'r',
            Self::Forward => 'f',
            Self::Vm => 'V',
            Self::Queue => 'q',
            Self::Hold => 'H',
            Self::Send => 's',
            Self::Transmit => 't',
            Self::Outside => 'o',
        }
    }

    /// Who holds the check in it.
    #[must_use]
    pub const fn custody(self) -> Custody {
        match self {
            Self::Receive => Custody::ReceivePath,
            Self::Forward => Custody::Forwarding,
            Self::Vm => Custody::Vm,
            Self::Queue | Self::Send => Custody::Socket,
            Self::Hold => Custody::Thread,
            Self::Transmit => Custody::TransmitPath,
            Self::Outside => Custody::Outside,
        }
    }
}

/// The table of stages, in path order.
pub const STAGES: [StageRow; 12] = [
    row(
        Stage::PnicRx,
        "pnic_rx",
        "came in at the physical NIC",
        "TCX or clsact ingress on the physical NIC",
        Span::Receive,
    ),
    row(
        Stage::VnicTx,
        "vnic_tx",
        "offered to the VM or pod",
        "TCX or clsact egress on the host end of the tap or veth; ingress on a macvtap",
        Span::Vm,
    ),
    row(Stage::BackendRx, "backend_rx", "taken off the tap", "consume_skb in the VMM or vhost worker", Span::Vm),
    row(
        Stage::GuestRx,
        "guest_rx",
        "came in inside the guest or pod",
        "TCX or clsact ingress inside the guest or pod",
        Span::Receive,
    ),
    row(Stage::SockEnqueue, "sock_enqueue", "in the socket's receive queue", "sock:sk_data_ready", Span::Queue),
    row(Stage::SockRead, "sock_read", "read by a thread", "sock:sock_recv_length", Span::Hold),
    row(
        Stage::AppSend,
        "app_send",
        "the reply entered the stack",
        "first of sock:sock_send_length and egress in the sender's context",
        Span::Send,
    ),
    row(
        Stage::GuestTx,
        "guest_tx",
        "left the guest or pod",
        "TCX or clsact egress inside the guest or pod",
        Span::Transmit,
    ),
    row(
        Stage::VnicRx,
        "vnic_rx",
        "given back by the VM or pod",
        "TCX or clsact ingress on the host end of the tap or veth; egress on a macvtap",
        Span::Forward,
    ),
    row(
        Stage::PnicQueue,
        "pnic_queue",
        "reached the physical NIC",
        "TCX or clsact egress on the physical NIC, before the qdisc",
        Span::Transmit,
    ),
    row(Stage::PnicXmit, "pnic_xmit", "handed to the driver", "net:net_dev_start_xmit", Span::Transmit),
    row(
        Stage::PnicDone,
        "pnic_done",
        "freed by the driver",
        "skb:consume_skb from the driver, where seen",
        Span::Outside,
    ),
];

const fn row(stage: Stage, name: &'static str, meaning: &'static str, seen_by: &'static str, then: Span) -> StageRow {
    StageRow { stage, name, meaning, seen_by, then }
}

impl Stage {
    /// Its row in the table.
    #[must_use]
    pub const fn row(self) -> &'static StageRow {
        &STAGES[self as usize - 1]
    }

    /// The public name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }
}
